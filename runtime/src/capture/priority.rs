//! How the threads that write a checkpoint are scheduled while the program runs: after it.
//!
//! The calling thread, and every thread that it starts from then on, gets a low weight (nice) and does not take the CPU from
//! others when it wakes up (`SCHED_BATCH`). An ordinary user cannot undo this, so it is for threads that end with the
//! checkpoint, never for the one that stops the program next time.
//!
//! Where the kernel groups processes by session (autogroup), a nice value counts among the agent's own threads only, and the
//! agent has as much of a busy CPU as the program; nothing short of a cgroup changes that.

use nix::errno::Errno;

/// What a writing thread weighs: where the program wants all of a CPU, this one gets a tenth of it. With less (nice 19 is a
/// 70th, `SCHED_IDLE` a 340th) the program is hardly spared more, but a checkpoint on a busy machine hardly ever ends, and
/// meanwhile the program copies what it writes to.
const NICE: i32 = 10;

/// Has the calling thread, and those that it starts, run after the program. That it cannot be done costs the program time only.
pub fn after_the_program() {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: reads `none`; 0 is the calling thread.
    let batch = Errno::result(unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &none) });
    // SAFETY: takes numbers only; 0 is the calling thread.
    let nice = Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) });
    if let Err(errno) = batch.and(nice) {
        log::debug!("writing with the weight of the program: {errno}");
    }
}
