//! Memory that pools keep for later, in which nothing is. The driver would copy it to the host and back (8 GiB in 5.8 s on an H100,
//! where without it takes 0.6 s: T12 of scripts/gpu-experiments), so devices have it back before they are suspended.
//!
//! The keeper alone does this, when the devices are quiet: what was freed in the order of a stream is free by then.

use core::ffi::c_int;

use super::super::driver::{Handle, SUCCESS};
use super::super::{contexts, pools};
use super::functions;

/// Gives back as much as there is.
pub fn give_back() {
    let devices = contexts::all().into_iter().flatten().map(|(device, _)| device);
    devices.filter_map(default_of).chain(pools::created()).for_each(|pool| {
        // What cannot be given back goes with the driver.
        // SAFETY: pools of the program's, which cannot end while the gate is closed.
        let _ = unsafe { functions::trim_pool(pool, 0) };
    });
}

/// The pool that a device begins with.
fn default_of(device: c_int) -> Option<Handle> {
    let mut pool = core::ptr::null_mut();
    // SAFETY: a place to write to.
    (unsafe { functions::default_pool(&raw mut pool, device) } == SUCCESS).then_some(pool)
}
