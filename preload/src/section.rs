//! The right to use our statics and to start a child: one thread at a time, with all its signals blocked.
//!
//! It is a flag and not a lock: whoever finds it taken goes away. A second trigger while one is under way asks for
//! nothing new, and a log line is not worth waiting for in a signal handler.
//!
//! The flag holds the pid of its owner. A program may fork in one thread while another holds the flag; the child
//! then inherits a flag that nobody will ever clear, sees that it is not its own, and takes it over. The one case
//! in which a foreign pid still means "in use" is a child from `vfork`, which shares our memory: kcmp tells.

use core::sync::atomic::{AtomicI32, Ordering};

use crate::sys;

/// Pid of the process that is in the section; 0 for none.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Proof that the calling thread is in the section. Leaves it, and puts the signal mask back, when dropped.
pub struct Section {
    mask: sys::Mask,
}

impl Section {
    /// Enters, or says at once that somebody else is there.
    pub fn enter() -> Option<Self> {
        // Blocked first: a trigger that interrupted the owner's own thread would find the flag taken.
        let mask = sys::set_mask(sys::MASK_ALL);
        if take(sys::getpid()) {
            return Some(Self { mask });
        }
        sys::set_mask(mask);
        None
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        OWNER.store(0, Ordering::Release);
        sys::set_mask(self.mask);
    }
}

fn take(pid: i32) -> bool {
    match OWNER.compare_exchange(0, pid, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => true,
        Err(owner) if owner == pid || sys::same_memory(owner, pid) == Ok(true) => false,
        Err(stale) => OWNER.compare_exchange(stale, pid, Ordering::Acquire, Ordering::Relaxed).is_ok(),
    }
}
