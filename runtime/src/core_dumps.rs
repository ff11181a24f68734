//! Core dumps of processes that hold a program's memory: there are none.
//!
//! Such a process is not the program, and its dump would lie where the program's owner does not look for secrets. The soft limit of
//! one byte is what the kernel takes for "none", also where `core_pattern` names a program to be given the dump: that gets one
//! under a limit of 0. The hard limit stays, so that the program of a restart gets its own limit back.
//!
//! Agents and restarters stay dumpable (`PR_SET_DUMPABLE`) otherwise: without it an ordinary user's process could not open its own
//! files in /proc, and other processes of ckpt could not tell that it is one of theirs. Who may look at it so may look at the
//! program as well.

use nix::sys::prctl::set_dumpable;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Where the kernel dumps nothing at all.
const NO_DUMP_BYTES: u64 = 1;

/// This process and those that it forks leave no core.
pub fn forbid() {
    let limited = getrlimit(Resource::RLIMIT_CORE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_CORE, NO_DUMP_BYTES.min(hard), hard));
    if let Err(errno) = limited {
        log::warn!("a core dump of this process cannot be forbidden: {}", errno.desc());
    }
}

/// The same, and its memory is closed to other processes of its user: for commands that only read what is stored.
pub fn forbid_and_close() {
    forbid();
    // It fails for other values alone.
    let _ = set_dumpable(false);
}
