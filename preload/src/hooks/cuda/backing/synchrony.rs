//! Copies and fills that have ended when they return (`CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`).
//!
//! Those without a stream may return before. A program that lets others than the driver read device memory sets the attribute, which
//! the driver takes of its own memory only. Once it is set of memory of ours, each such call waits, whatever memory it is for.

use core::sync::atomic::{AtomicBool, Ordering};

use super::calls;
use crate::hooks::cuda::driver::{CuResult, SUCCESS};

static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// A program wants it of some memory, or no more. What one has wanted stays.
pub fn is_wanted(is_on: bool) {
    if is_on {
        IS_WANTED.store(true, Ordering::Relaxed);
    }
}

/// Behind a call without a stream of its own: waits for the default stream, if that is wanted.
#[inline(never)]
pub fn behind(per_thread: bool, result: CuResult) -> CuResult {
    if IS_WANTED.load(Ordering::Relaxed) && result == SUCCESS {
        return calls::synchronise_in_order(core::ptr::null_mut(), per_thread).err().unwrap_or(SUCCESS);
    }
    result
}

/// Whether a function of this base name copies or fills, and has no stream of its own.
pub const fn is_meant(base: &str) -> bool {
    (begins_with(base, "cuMemcpy") || begins_with(base, "cuMemset")) && !ends_with(base, "Async")
}

const fn begins_with(text: &str, start: &str) -> bool {
    text.len() >= start.len() && is_at(text, 0, start)
}

const fn ends_with(text: &str, end: &str) -> bool {
    text.len() >= end.len() && is_at(text, text.len() - end.len(), end)
}

const fn is_at(text: &str, at: usize, part: &str) -> bool {
    let mut number = 0;
    while number < part.len() {
        if text.as_bytes()[at + number] != part.as_bytes()[number] {
            return false;
        }
        number += 1;
    }
    true
}

const _: () = assert!(
    is_meant("cuMemcpy2D") && is_meant("cuMemsetD8") && !is_meant("cuMemcpyAsync") && !is_meant("cuLaunchKernel")
);
