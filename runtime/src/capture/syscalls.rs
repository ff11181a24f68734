//! The system calls of capture that neither std nor nix wraps: typed arguments in, typed results out.

use std::cmp::Ordering;

use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::image::{RobustList, Scheduling};
use crate::proc::task;

const KCMP_FILE: i32 = 0;
const KCMP_EPOLL_TFD: i32 = 7;
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

/// Whether two descriptors, each a process and a number, are one open file description.
pub fn same_open_file(a: (i32, i32), b: (i32, i32)) -> Result<bool> {
    // SAFETY: takes numbers only.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, a.0, b.0, KCMP_FILE, a.1, b.1) };
    Errno::result(order)
        .map(|order| order == 0)
        .map_err(|source| Error::io("compare (kcmp) descriptors of", format!("/proc/{}/fd/{}", a.0, a.1), source))
}

/// What an epoll instance watches, as the kernel takes it: the instance's number, the number under which something was added, and how many
/// with that number come before it.
#[repr(C)]
struct EpollSlot {
    epoll: u32,
    target: u32,
    offset: u32,
}

/// Whether a descriptor, a process and a number, is the open file description that the epoll instance `epoll` watches under the number
/// `target`, the one behind `before` others with that number.
pub fn is_watched(descriptor: (i32, i32), epoll: (i32, i32), target: i32, before: usize) -> Result<bool> {
    let slot = EpollSlot { epoll: epoll.1 as u32, target: target as u32, offset: before as u32 };
    // SAFETY: the kernel reads one slot.
    let order =
        unsafe { libc::syscall(libc::SYS_kcmp, descriptor.0, epoll.0, KCMP_EPOLL_TFD, descriptor.1, &raw const slot) };
    Errno::result(order).map(|order| order == 0).map_err(|source| {
        Error::io("compare (kcmp) what is watched by", format!("/proc/{}/fd/{}", epoll.0, epoll.1), source)
    })
}

/// How the `what` of two threads, or main threads of processes, stand to each other in an order that lasts: equal if they have one and
/// the same.
pub fn order(a: i32, b: i32, what: Shared) -> nix::Result<Ordering> {
    // SAFETY: takes numbers only.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, a, b, what as i32, 0, 0) };
    Errno::result(order).map(|order| match order {
        0 => Ordering::Equal,
        1 => Ordering::Less,
        _ => Ordering::Greater,
    })
}

/// What two processes may have together, by the kernel's numbers.
#[derive(Clone, Copy, Debug)]
pub enum Shared {
    /// Their memory.
    Memory = 1,
    /// Their descriptor table.
    Descriptors = 2,
    /// Working directory, root and umask.
    FileSystem = 3,
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
