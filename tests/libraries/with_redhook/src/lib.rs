//! A library that stands in front of functions which libckpt.so stands in front of, too, and counts the calls.
#![allow(static_mut_refs, missing_docs, reason = "the macro's own code")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

static CALLS: AtomicU64 = AtomicU64::new(0);

redhook::hook! {
    unsafe fn malloc(bytes: usize) -> *mut c_void => counted_malloc {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's arguments, as they came.
        unsafe { redhook::real!(malloc)(bytes) }
    }
}

redhook::hook! {
    unsafe fn free(memory: *mut c_void) -> () => counted_free {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's arguments, as they came.
        unsafe { redhook::real!(free)(memory) }
    }
}

redhook::hook! {
    unsafe fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int => counted_sigaction {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's arguments, as they came.
        unsafe { redhook::real!(sigaction)(signal, new, old) }
    }
}
