//! The locks over the records of the CUDA driver's allocations, and over what libckpt.so has backed of them.
//!
//! Calls that allocate device memory take microseconds and are no business of signal handlers, so threads may wait for
//! one another here. A process that was forked while another thread held the lock would wait for ever: the lock holds
//! its owner's pid, and one that is not of this process, or of one that shares its memory, is taken over.

use core::sync::atomic::{AtomicI32, Ordering};

use crate::sys;

/// Of the lock over the records: pid of the process whose thread holds it; 0 for none.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Proof that the calling thread holds a lock, which it lets go when this is dropped.
pub struct Lock(&'static AtomicI32);

impl Lock {
    /// Waits until the lock over the records is free, and takes it.
    pub fn take() -> Self {
        Self::of(&OWNER)
    }

    /// Waits until the lock with this owner is free, and takes it.
    pub fn of(holder: &'static AtomicI32) -> Self {
        let pid = sys::getpid();
        loop {
            match holder.compare_exchange_weak(0, pid, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Self(holder),
                Err(0) => {}
                Err(owner) if owner == pid || sys::same_memory(owner, pid) == Ok(true) => sys::yield_now(),
                Err(stale) => {
                    if holder.compare_exchange(stale, pid, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                        return Self(holder);
                    }
                }
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}
