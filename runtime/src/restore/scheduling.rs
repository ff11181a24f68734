//! How a thread is scheduled: policy, nice value, priority, CPUs, I/O. All of it is set from outside, by the thread's id.

use std::sync::Once;

use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::image::Scheduling;

/// The one flag of `sched_setattr` that is state of an ordinary thread.
const SCHED_FLAG_RESET_ON_FORK: u64 = 1;

/// `struct sched_attr` of the first version.
#[derive(Debug, Default)]
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Sets the scheduling of thread `tid`.
pub fn set(tid: i32, scheduling: &Scheduling) -> Result<()> {
    set_affinity(tid, &scheduling.affinity);
    set_io_priority(tid, scheduling.io_priority);
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: scheduling.policy,
        flags: scheduling.flags & SCHED_FLAG_RESET_ON_FORK,
        nice: scheduling.nice,
        priority: scheduling.priority,
        ..Attributes::default()
    };
    // SAFETY: sched_setattr reads `size` bytes from `attributes`.
    let set = Errno::result(unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &attributes, 0) });
    set.map_err(|errno| refused(tid, scheduling, errno))?;
    // Real-time and idle threads have a nice value for later, which sched_setattr leaves alone.
    // SAFETY: takes numbers only.
    let set = Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, tid as libc::id_t, scheduling.nice) });
    set.map(drop).map_err(|errno| refused(tid, scheduling, errno))
}

fn refused(tid: i32, scheduling: &Scheduling, errno: Errno) -> Error {
    let what = format!(
        "give thread {tid} its scheduling (policy {}, nice {}, priority {})",
        scheduling.policy, scheduling.nice, scheduling.priority
    );
    Error::environment(what, errno.desc(), "restart as root, or with CAP_SYS_NICE and no lower limits")
}

/// Gives a thread its CPUs. A host without any of them is not refused: the thread then may use all.
fn set_affinity(tid: i32, mask: &[u8]) {
    const ALL: [u8; 128] = [0xff; 128];
    let wanted = if mask.is_empty() { &ALL } else { mask };
    if let Err(errno) = change_affinity(tid, wanted) {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            log::warn!("thread {tid}, and perhaps others, cannot have the CPUs it had ({errno}): it may use all");
        });
        if let Err(errno) = change_affinity(tid, &ALL) {
            log::warn!("thread {tid} stays on the restarter's CPU: {errno}");
        }
    }
}

/// Gives a thread its I/O priority. A user who may not is not refused: the thread then has one by its nice value.
fn set_io_priority(tid: i32, priority: u16) {
    const WHO_PROCESS: i32 = 1;
    const CLASS_SHIFT: u32 = 13;
    if priority >> CLASS_SHIFT == 0 {
        return;
    }
    // SAFETY: takes numbers only.
    let set = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, tid, i32::from(priority)) };
    if let Err(errno) = Errno::result(set) {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            log::warn!(
                "thread {tid}, and perhaps others, cannot have the I/O priority it had ({errno}): it has one by its nice value"
            );
        });
    }
}

fn change_affinity(tid: i32, mask: &[u8]) -> Result<(), Errno> {
    // SAFETY: sched_setaffinity reads `len` bytes from `mask`; the kernel takes any length and those CPUs that exist.
    let set = unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, mask.len(), mask.as_ptr()) };
    Errno::result(set).map(drop)
}
