//! `clone3` with chosen ids: its arguments, and why the kernel refuses it.

use std::time::Duration;

use nix::errno::Errno;

use crate::error::Error;

/// How long an ended process that nobody has reaped may keep a wanted id, as its own or as its session or group.
pub const REAPING_TIMEOUT: Duration = Duration::from_secs(5);

/// Why this user cannot make a process with id `pid`.
pub fn may_not_choose(pid: i32) -> Error {
    let what = format!("give the rebuilt program its id {pid}");
    Error::ids_not_to_be_had(what, "it needs CAP_CHECKPOINT_RESTORE", "restart as root or with that capability")
}

/// Why a thread or process could not be made with id `tid`.
pub fn clone_refused(tid: i32, errno: Errno) -> Error {
    let what = format!("give the rebuilt program its id {tid}");
    match errno {
        Errno::EPERM => may_not_choose(tid),
        Errno::EEXIST => {
            let why = "it is in use, perhaps as the id of a session or process group whose leader has ended";
            Error::ids_not_to_be_had(what, why, "wait until its holder ends")
        }
        Errno::EINVAL => Error::environment(what, "it is beyond kernel.pid_max", "raise it with sysctl kernel.pid_max"),
        errno => Error::environment(what, errno.desc(), "see clone3(2) for the cause"),
    }
}

/// `struct clone_args`, with the kernel's own names.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CloneArguments {
    pub flags: u64,
    pub pidfd: u64,
    pub child_tid: u64,
    pub parent_tid: u64,
    pub exit_signal: u64,
    pub stack: u64,
    pub stack_size: u64,
    pub tls: u64,
    pub set_tid: u64,
    pub set_tid_size: u64,
    pub cgroup: u64,
}

impl CloneArguments {
    /// As in memory.
    pub fn to_bytes(self) -> Vec<u8> {
        let CloneArguments {
            flags,
            pidfd,
            child_tid,
            parent_tid,
            exit_signal,
            stack,
            stack_size,
            tls,
            set_tid,
            set_tid_size,
            cgroup,
        } = self;
        let words =
            [flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup];
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}
