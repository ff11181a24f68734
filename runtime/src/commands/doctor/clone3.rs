//! Making processes by the newer of the two calls.

use nix::errno::Errno;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use super::finding::{Finding, State};
use super::trial::{Failure, Outcome, in_child, unless_deadly};

const PROBE: &str = "clone3";
const TRIED: &str = "make a child by clone3, without a wish for its pid";
const ADVICE: &str =
    "allow clone3 in the container's seccomp profile: without it no id can be chosen; checkpoints do without";

/// The probe.
pub fn probe() -> Finding {
    Finding::of(PROBE, TRIED, in_child(make), State::Degraded, ADVICE)
        .gives_up("chosen ids (clone3)", "--security-opt seccomp=FILE")
}

fn make() -> Outcome {
    unless_deadly(&[libc::SYS_clone3])?;
    // SAFETY: zero is a valid `clone_args`.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.exit_signal = libc::SIGCHLD as u64;
    // SAFETY: like fork: the child has its own copy of everything. The kernel reads `arguments`.
    let child = unsafe { libc::syscall(libc::SYS_clone3, &arguments, size_of::<libc::clone_args>()) };
    if child == 0 {
        // SAFETY: _exit ends the child.
        unsafe { libc::_exit(0) };
    }
    let child = Errno::result(child).map_err(|errno| Failure::call("clone3", errno))?;
    waitpid(Pid::from_raw(child as i32), None).map_err(|errno| Failure::call("waitpid", errno))?;
    Ok("works".to_owned())
}
