//! The program's exit status becomes that of `ckpt run`.

use std::process::Command;

use nix::sys::signal::{Signal, kill};

use crate::process::Running;
use crate::scratch;

#[test]
fn the_exit_status_passes_through() {
    for status in [0, 7, 255] {
        assert_eq!(Running::start(&["sh", "-c", &format!("exit {status}")]).exit_status(), status);
    }
}

#[test]
fn the_end_by_a_signal_is_128_and_its_number() {
    assert_eq!(Running::start(&["sh", "-c", "kill -KILL $$"]).exit_status(), 137);
    let running = Running::start(&["sh", "-c", "echo ready; exec cat"]);
    assert_eq!(running.lines.next(), "ready");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.exit_status(), 143);
}

#[test]
fn a_command_that_cannot_be_executed_is_121_and_one_that_cannot_be_checkpointed_is_124() {
    assert_eq!(Running::start(&["no-such-command-here"]).exit_status(), 121);
    assert_eq!(Running::start(&["/dev/null"]).exit_status(), 121);
    std::fs::write(scratch::path("damaged"), b"\x7fELF and nothing else").unwrap();
    assert_eq!(Running::start(&[&scratch::path("damaged")]).exit_status(), 124);
}

#[test]
fn the_program_gets_its_settings() {
    let running = Running::start(&["sh", "-c", "echo $LD_PRELOAD; echo $CKPT_DIR; echo $CKPT_AGENT_PID"]);
    assert_eq!(running.lines.next(), scratch::path("libckpt.so"));
    let dir = running.lines.next();
    assert!(dir.starts_with('/') && dir.ends_with("/ckpt-store"), "{dir}");
    let agent: i32 = running.lines.next().parse().unwrap();
    assert!(agent > 1, "the agent has been started first: {agent}");
}

/// Blocked and ignored signals of a program that the shell starts by `command` after `preparation`.
fn signal_state(preparation: &str, command: &str) -> Vec<u64> {
    let script = format!("{preparation}\nexec {command} cat /proc/self/status");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let status = String::from_utf8(output.stdout).unwrap();
    // The C library keeps 32 and 33 for itself, and ignores them in what posix_spawn starts.
    let own = 0b11 << 31;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    ["SigBlk:", "SigIgn:"].map(|name| u64::from_str_radix(&field(name), 16).unwrap() & !own).to_vec()
}

#[test]
fn the_program_starts_with_the_signal_state_that_we_were_started_with() {
    let run = format!("{} run --", scratch::path("ckpt"));
    for preparation in ["", "trap '' PIPE", "trap '' HUP CHLD TSTP USR1"] {
        assert_eq!(signal_state(preparation, &run), signal_state(preparation, ""), "{preparation}");
    }
}

#[test]
fn the_program_runs_on_when_its_parent_is_killed() {
    let mut running = Running::start(&["sh", "-c", "echo $$; exec cat"]);
    let program = nix::unistd::Pid::from_raw(running.lines.next().parse().unwrap());
    running.signal(Signal::SIGKILL);
    assert!(matches!(running.next_status(), nix::sys::wait::WaitStatus::Signaled(_, Signal::SIGKILL, _)));
    running.write("still here\n");
    assert_eq!(running.lines.next(), "still here");
    kill(program, Signal::SIGKILL).unwrap();
}
