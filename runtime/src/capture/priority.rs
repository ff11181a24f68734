//! How the threads that write a checkpoint are scheduled while the program runs: after it.
//!
//! The calling thread, and every thread that it starts from then on, gets a low weight (nice) and does not take the CPU from
//! others when it wakes up (`SCHED_BATCH`). An ordinary user cannot undo this, so it is for threads that end with the
//! checkpoint, never for the one that stops the program next time.

use nix::errno::Errno;

/// What a writing thread weighs: where the program wants all of a CPU, this one gets a tenth of it. Less (`SCHED_IDLE` gets
/// a 340th) would spare the program little more, but a checkpoint on a busy machine would hardly ever end.
const NICE: i32 = 10;

/// Has the calling thread, and those that it starts, run after the program. That it cannot be done costs the program time only.
pub fn after_the_program() {
    let (policy, nice) = match std::env::var("CKPT_X_POLICY").as_deref() {
        Ok("none") => return,
        Ok("idle") => (libc::SCHED_IDLE, 19),
        Ok(text) => match text.split_once(':') {
            Some(("batch", n)) => (libc::SCHED_BATCH, n.parse().unwrap_or(NICE)),
            Some((_, n)) => (libc::SCHED_OTHER, n.parse().unwrap_or(NICE)),
            None => (libc::SCHED_BATCH, NICE),
        },
        _ => (libc::SCHED_BATCH, NICE),
    };
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: reads `none`; 0 is the calling thread.
    let batch = Errno::result(unsafe { libc::sched_setscheduler(0, policy, &none) });
    // SAFETY: takes numbers only; 0 is the calling thread.
    let nice = Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) });
    if let Err(errno) = batch.and(nice) {
        log::debug!("writing with the weight of the program: {errno}");
    }
}
