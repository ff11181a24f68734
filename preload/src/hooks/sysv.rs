//! Remembers the System V semaphores and message queues that the program has had made: who made one, the kernel does not tell, and who has
//! used it last may have ended.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};

use ckpt_wire::{SYSV_IDS, SysvIds};
use libc::key_t;

use crate::real::{MSGGET, SEMGET};
use crate::shared::Shared;

/// Read by the agent. Written through atomics only.
// SAFETY: `SysvIds` is `FromBytes`: it is valid with every byte zero.
pub static IDS: Shared<SysvIds> = Shared::new(unsafe { core::mem::zeroed() });

/// `semget(2)`.
///
/// # Safety
/// As for the real function.
// SAFETY (of the name): standing in front of libc's symbol is the purpose; the signature is the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn semget(key: key_t, count: c_int, flags: c_int) -> c_int {
    let Some(real) = SEMGET.get() else { return -1 };
    // SAFETY: the caller's word, passed on.
    let id = unsafe { real(key, count, flags) };
    // SAFETY: only its address is taken.
    remember(unsafe { &raw mut (*IDS.get()).semaphores }, id, key, flags)
}

/// `msgget(2)`.
///
/// # Safety
/// As for the real function.
// SAFETY (of the name): as for `semget`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msgget(key: key_t, flags: c_int) -> c_int {
    let Some(real) = MSGGET.get() else { return -1 };
    // SAFETY: the caller's word, passed on.
    let id = unsafe { real(key, flags) };
    // SAFETY: only its address is taken.
    remember(unsafe { &raw mut (*IDS.get()).queues }, id, key, flags)
}

/// Keeps `id` if the call may have made the object.
#[inline(never)]
fn remember(places: *mut [i32; SYSV_IDS], id: c_int, key: key_t, flags: c_int) -> c_int {
    if id < 0 || (key != libc::IPC_PRIVATE && flags & libc::IPC_CREAT == 0) {
        return id;
    }
    let kept = id.wrapping_add(1);
    // SAFETY: one of two arrays in a static, whose elements are accessed through atomics only.
    let place = |index: usize| unsafe { AtomicI32::from_ptr(places.cast::<i32>().add(index)) };
    for index in 0..SYSV_IDS {
        match place(index).compare_exchange(0, kept, Ordering::Relaxed, Ordering::Relaxed) {
            Err(other) if other != kept => {}
            _ => return id,
        }
    }
    place(id as usize % SYSV_IDS).store(kept, Ordering::Relaxed);
    id
}
