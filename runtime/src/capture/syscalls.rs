//! The system calls of capture that neither std nor nix wraps: typed arguments in, typed results out.

use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::image::{RobustList, Scheduling};
use crate::proc::task;

/// `ioprio_get(2)` of one thread.
const IOPRIO_WHO_PROCESS: i32 = 1;
/// `getpriority(2)` gives the nice value subtracted from this.
const NICE_BIAS: i32 = 20;
/// `struct sched_attr` without the utilisation clamps (SCHED_ATTR_SIZE_VER0).
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// The robust-futex list of thread `tid`.
pub fn robust_list(tid: i32) -> Result<RobustList> {
    let (mut head, mut bytes) = (0u64, 0u64);
    // SAFETY: the call writes one pointer and one size to the two variables.
    let result = unsafe { libc::syscall(libc::SYS_get_robust_list, tid, &raw mut head, &raw mut bytes) };
    Errno::result(result)
        .map(|_| RobustList { head, bytes })
        .map_err(|source| Error::io("read the robust list of", format!("/proc/{tid}"), source))
}

/// How thread `tid` is scheduled.
pub fn scheduling(tid: i32) -> Result<Scheduling> {
    let failed = |source: Errno| Error::io("read the scheduling of", format!("/proc/{tid}"), source);
    let mut attr = SchedAttr::default();
    let bytes = size_of::<SchedAttr>();
    // SAFETY: the call writes at most `bytes` bytes to `attr`.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, bytes, 0) };
    Errno::result(result).map_err(failed)?;
    // The attributes of a real-time thread do not tell the nice value that it has for later.
    // SAFETY: takes numbers only.
    let nice_below = unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, tid) };
    let mut affinity = vec![0u8; 1024];
    // SAFETY: the call writes at most `affinity.len()` bytes to `affinity`.
    let used = unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, affinity.len(), affinity.as_mut_ptr()) };
    affinity.truncate(Errno::result(used).map_err(failed)? as usize);
    // The slack of a thread is readable by its id although it has no directory of its own in a listing of /proc. 0 here: it is not
    // to be read from outside.
    let timer_slack_ns = task::text(tid, "timerslack_ns").ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    // SAFETY: takes numbers only.
    let io_priority = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, tid) };
    Ok(Scheduling {
        policy: attr.policy,
        nice: NICE_BIAS - Errno::result(nice_below).map_err(failed)? as i32,
        priority: attr.priority,
        flags: attr.flags,
        affinity,
        timer_slack_ns,
        io_priority: u16::try_from(io_priority).unwrap_or(0),
    })
}
