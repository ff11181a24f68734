//! The C API, declared and explained in `include/ckpt.h`.

use core::ffi::{c_char, c_int, c_ulong};
use core::sync::atomic::Ordering;

use crate::control;
use crate::errno::{Errno, set_errno};
use crate::trigger::{self, Cause};

/// Asks for a checkpoint of the calling program: 0 once the request is under way, otherwise -1 and `errno`.
// SAFETY (of the name): no other library defines a symbol that begins with `ckpt_`.
#[unsafe(no_mangle)]
pub extern "C" fn ckpt_checkpoint() -> c_int {
    match trigger::request(Cause::Api) {
        Ok(()) => 0,
        Err(Errno(number)) => {
            set_errno(number);
            -1
        }
    }
}

/// How many times the program has been restarted from a checkpoint.
// SAFETY (of the name): as for `ckpt_checkpoint`.
#[unsafe(no_mangle)]
pub extern "C" fn ckpt_generation() -> c_ulong {
    control::generation().load(Ordering::Relaxed)
}

/// Which copy of a checkpoint the program is; null if it is none.
// SAFETY (of the name): as for `ckpt_checkpoint`.
#[unsafe(no_mangle)]
pub extern "C" fn ckpt_copy_id() -> *const c_char {
    let id = control::copy();
    // SAFETY: it leads into the control block, which lives for ever; the restorer writes while no thread runs.
    if unsafe { id.read_volatile() } == 0 { core::ptr::null() } else { id.cast() }
}
