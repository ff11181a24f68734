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

/// Behind a call of this base name: waits for the default stream, if the call has none of its own and it is wanted.
pub fn behind(base: &str, per_thread: bool, result: CuResult) -> CuResult {
    if IS_WANTED.load(Ordering::Relaxed) && result == SUCCESS && is_synchronous(base) {
        return calls::synchronise_in_order(core::ptr::null_mut(), per_thread).err().unwrap_or(SUCCESS);
    }
    result
}

fn is_synchronous(base: &str) -> bool {
    (base.starts_with("cuMemcpy") || base.starts_with("cuMemset")) && !base.ends_with("Async")
}
