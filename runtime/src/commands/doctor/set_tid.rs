//! Giving a process the pid it had.

use nix::errno::Errno;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use super::finding::{Finding, State};
use super::trial::{Child, Failure, Outcome, in_child, unless_deadly};

const PROBE: &str = "set_tid";
const TRIED: &str = "clone3 with set_tid: make a child with a chosen free pid";
const ADVICE: &str = "see the row process ids for what is done instead; restart with CAP_CHECKPOINT_RESTORE";
const ADVICE_IN_NAMESPACE: &str = "nothing: a restart makes a pid namespace for the program, where it works";
/// A free pid may be taken before we ask for it.
const ATTEMPTS_MAX: u32 = 5;

/// The probe. `in_namespace`: whether it works in a pid namespace made for the program.
pub fn probe(in_namespace: bool) -> Finding {
    let advice = if in_namespace { ADVICE_IN_NAMESPACE } else { ADVICE };
    Finding::of(PROBE, TRIED, in_child(choose_a_pid), State::Degraded, advice)
}

/// Makes a child with a pid of our choice.
pub fn choose_a_pid() -> Outcome {
    unless_deadly(&[libc::SYS_clone3])?;
    let mut last = Errno::EEXIST;
    for _ in 0..ATTEMPTS_MAX {
        let wanted = free_pid()?;
        match clone_as(wanted) {
            Ok(()) => return Ok(format!("works (made pid {wanted})")),
            Err(Errno::EEXIST) => {}
            Err(errno) => {
                last = errno;
                break;
            }
        }
    }
    Err(Failure::call("clone3 with set_tid", last))
}

/// A pid that was somebody's a moment ago.
fn free_pid() -> Result<i32, Failure> {
    let child = Child::idle()?;
    Ok(child.pid().as_raw())
}

/// Makes a child with the pid `wanted`, which ends at once.
fn clone_as(wanted: i32) -> Result<(), Errno> {
    // SAFETY: zero is a valid `clone_args`.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.exit_signal = libc::SIGCHLD as u64;
    arguments.set_tid = (&raw const wanted) as u64;
    arguments.set_tid_size = 1;
    // SAFETY: like fork: without CLONE_VM the child has its own copy of everything. The kernel reads `arguments`
    // and, through it, `wanted`.
    let child = unsafe { libc::syscall(libc::SYS_clone3, &arguments, size_of::<libc::clone_args>()) };
    if child == 0 {
        // SAFETY: _exit ends the child.
        unsafe { libc::_exit(0) };
    }
    let child = Errno::result(child)?;
    let _ = waitpid(Pid::from_raw(child as i32), None);
    if child == i64::from(wanted) { Ok(()) } else { Err(Errno::EINVAL) }
}
