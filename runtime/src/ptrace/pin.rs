//! Keeps tracer and tracee on one CPU.
//!
//! A remote call is two stops, each a switch between tracer and tracee: 5 us when they share a CPU, 116 us when one
//! wakes the other across CPUs (measured). A program that runs keeps its affinity, so its tracer goes to where its
//! threads ran last; a process that is being built inherits the CPU from its tracer.

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// While this lives, the calling thread stays where it is; then its affinity is put back.
#[derive(Debug)]
pub struct Pinned {
    before: Option<CpuSet>,
}

impl Pinned {
    /// Pins the calling thread to the CPU it runs on. Failing costs time only, so it is not an error.
    pub fn here() -> Pinned {
        Pinned::by(sched_getcpu())
    }

    /// Moves the calling thread to `cpu` and pins it there.
    pub fn to(cpu: usize) -> Pinned {
        Pinned::by(Ok(cpu))
    }

    fn by(cpu: nix::Result<usize>) -> Pinned {
        let this = Pid::from_raw(0);
        let before = sched_getaffinity(this).ok();
        let mut one = CpuSet::new();
        let pinned = cpu.and_then(|cpu| one.set(cpu)).and_then(|()| sched_setaffinity(this, &one));
        if let Err(error) = pinned {
            log::debug!("staying on one CPU: {error}");
        }
        Pinned { before }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.before
            && let Err(error) = sched_setaffinity(Pid::from_raw(0), before)
        {
            log::warn!("putting the CPU affinity back: {error}");
        }
    }
}
