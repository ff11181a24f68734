//! Signals that a process sends to `ckpt run` reach the program, once and with their value.

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::WaitStatus;

use crate::process::Running;

#[test]
fn a_signal_reaches_the_program_once() {
    let (running, _) = Running::tell_signals(&[]);
    for signal in [Signal::SIGUSR1, Signal::SIGHUP, Signal::SIGWINCH, Signal::SIGINT, Signal::SIGALRM] {
        running.signal(signal);
        assert_eq!(running.lines.next(), format!("signal {} code 0 value 0", signal as i32));
    }
    running.signal(Signal::SIGTERM);
    assert_eq!(running.exit_status(), 9);
    assert_eq!(running.lines.rest(), ["signal 15 code 0 value 0"]);
}

#[test]
fn queued_signals_keep_their_values_and_their_number() {
    let (running, _) = Running::tell_signals(&[]);
    let signal = libc::SIGRTMIN() + 3;
    for value in 1..=50 {
        let value = libc::sigval { sival_ptr: value as *mut libc::c_void };
        // SAFETY: sigqueue takes two integers and a value that nobody dereferences.
        assert_eq!(unsafe { libc::sigqueue(running.pid().as_raw(), signal, value) }, 0);
    }
    for value in 1..=50 {
        assert_eq!(running.lines.next(), format!("signal {signal} code {} value {value}", libc::SI_QUEUE));
    }
}

#[test]
fn a_signal_that_the_program_sends_to_its_own_group_does_not_come_back() {
    let running = Running::start(&["sh", "-c", "trap 'echo told' USR1; kill -USR1 0; echo after; read line"]);
    let mut lines = vec![running.lines.next(), running.lines.next()];
    // A second one would come before this, which takes the same way.
    running.signal(Signal::SIGTERM);
    lines.extend(running.lines.rest());
    assert_eq!(lines, ["told", "after"]);
    assert_eq!(running.exit_status(), 143);
}

#[test]
fn a_stop_that_came_through_us_stops_us_and_a_continuation_continues_both() {
    let mut running = Running::start(&["sh", "-c", "echo ready; exec cat"]);
    assert_eq!(running.lines.next(), "ready");
    running.signal(Signal::SIGTSTP);
    assert_eq!(running.next_status(), WaitStatus::Stopped(running.pid(), Signal::SIGTSTP));
    running.signal(Signal::SIGCONT);
    assert_eq!(running.next_status(), WaitStatus::Continued(running.pid()));
    running.write("on\n");
    assert_eq!(running.lines.next(), "on");
    running.input = None;
    assert_eq!(running.exit_status(), 0);
}

#[test]
fn without_a_terminal_a_stop_of_the_program_alone_stays_its_own() {
    let mut running = Running::start(&["sh", "-c", "echo $$; exec cat"]);
    let program = nix::unistd::Pid::from_raw(running.lines.next().parse().unwrap());
    for _ in 0..20 {
        kill(program, Signal::SIGSTOP).unwrap();
        kill(program, Signal::SIGCONT).unwrap();
    }
    running.input = None;
    assert_eq!(running.exit_status(), 0);
}
