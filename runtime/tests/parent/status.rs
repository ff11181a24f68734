//! The program's exit status becomes that of `ckpt run`.

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
fn the_program_gets_its_settings_and_nothing_else_changes() {
    let running =
        Running::start(&["sh", "-c", "echo $LD_PRELOAD; echo $CKPT_DIR; echo $CKPT_JOB; exec cat /proc/self/status"]);
    assert_eq!(running.lines.next(), scratch::path("libckpt.so"));
    let dir = running.lines.next();
    assert!(dir.starts_with('/') && dir.ends_with("/ckpt-store"), "{dir}");
    assert_eq!(running.lines.next().len(), 16);
    let status = running.lines.rest();
    let ours = std::fs::read_to_string("/proc/self/status").unwrap();
    // The Rust runtime of this test ignores SIGPIPE, which is bit 12, and resets it for what it starts.
    let field = |name: &str| status.iter().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    let ignored = ours.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim().to_owned();
    let ignored = u64::from_str_radix(&ignored, 16).unwrap() & !(1 << 12);
    assert_eq!(u64::from_str_radix(&field("SigIgn:"), 16).unwrap(), ignored);
    assert_eq!(field("SigBlk:"), "0000000000000000");
    assert_eq!(running.exit_status(), 0);
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
