//! Who may choose pids, and which ones the kernel chooses by itself.

use nix::errno::Errno;

use crate::capabilities::{CAP_CHECKPOINT_RESTORE, CAP_SYS_ADMIN, OwnCapabilities};
use crate::error::{Error, Result};
use crate::filtered;

/// Where the kernel is told which pid the last process got.
pub(super) const LAST_ID: &str = "/proc/sys/kernel/ns_last_pid";

/// Whether this process may make processes with pids of its choice. It is found out by asking for one that is taken; where it has no
/// right to, not even that, since a filter may end who asks.
pub fn may_choose_ids() -> bool {
    let effective = OwnCapabilities::read().map_or(0, |own| own.effective());
    let has_right = effective & (1 << CAP_SYS_ADMIN | 1 << CAP_CHECKPOINT_RESTORE) != 0;
    if !has_right || filtered::is_deadly(libc::SYS_clone3, 0) {
        return false;
    }
    let taken = std::process::id() as i32;
    // SAFETY: zero is a valid `clone_args`.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.exit_signal = libc::SIGCHLD as u64;
    arguments.set_tid = (&raw const taken) as u64;
    arguments.set_tid_size = 1;
    // SAFETY: the kernel reads `arguments` and `taken`. No process is made: the id is our own.
    let made = unsafe { libc::syscall(libc::SYS_clone3, &arguments, size_of::<libc::clone_args>()) };
    if made == 0 {
        // SAFETY: should a kernel make one all the same, this ends it.
        unsafe { libc::_exit(0) };
    }
    Errno::result(made) == Err(Errno::EEXIST)
}

/// Has the kernel give new processes and threads of our pid namespace higher ids than `id`, so that none of ours gets
/// one that the program had.
pub fn let_new_ids_begin_after(id: i32) -> Result<()> {
    std::fs::write(LAST_ID, id.to_string()).map_err(|source| Error::io("write", LAST_ID, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_may_choose_ids() {
        if nix::unistd::geteuid().is_root() {
            assert!(may_choose_ids());
        }
    }
}
