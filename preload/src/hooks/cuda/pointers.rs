//! What the driver says of pointers. Of memory that libckpt.so has backed or pinned it must be put right.

use core::ffi::{c_int, c_uint, c_void};

use super::backing::{self, answers};
use super::driver::{SUCCESS, driver_hooks};
use super::managed;

/// Puts answers about a pointer right.
///
/// # Safety
/// There must be `count` attributes, and as many places that the driver has written its answers to.
unsafe fn correct(count: c_uint, attributes: *const c_int, answers: *const *mut c_void, address: u64) {
    // SAFETY: the caller's word.
    unsafe {
        answers::correct(count, attributes, answers, address);
        managed::correct(count, attributes, answers, address);
    }
}

driver_hooks! {
    "cuMemGetAddressRange" 3020 ungated =>
    cuMemGetAddressRange_v2(start: *mut u64, bytes: *mut usize, address: u64) |real| {
        let _passage = managed::passes_gate(address);
        // Of pinned memory the driver may know no such range.
        let pinned = managed::around(address).map(|found| (found.address, found.bytes as usize));
        let result = if pinned.is_some() { SUCCESS } else { real(start, bytes, answers::asked(address)) };
        if result == SUCCESS && let Some(range) = pinned.or_else(|| backing::range_of(address)) {
            if let Some(start) = start.as_mut() {
                *start = range.0;
            }
            if let Some(bytes) = bytes.as_mut() {
                *bytes = range.1;
            }
        }
        result
    }

    "cuPointerGetAttribute" 4000 ungated =>
    cuPointerGetAttribute(answer: *mut c_void, attribute: c_int, address: u64) |real| {
        let _passage = managed::passes_gate(address);
        let result = real(answer, attribute, answers::asked(address));
        if result == SUCCESS {
            correct(1, &raw const attribute, &raw const answer, address);
        }
        result
    }

    "cuPointerGetAttributes" 7000 ungated =>
    cuPointerGetAttributes(count: c_uint, attributes: *mut c_int, answers: *mut *mut c_void, address: u64) |real| {
        let _passage = managed::passes_gate(address);
        let result = real(count, attributes, answers, answers::asked(address));
        if result == SUCCESS {
            correct(count, attributes, answers, address);
        }
        result
    }

    "cuPointerSetAttribute" 6000 =>
    cuPointerSetAttribute(value: *const c_void, attribute: c_int, address: u64) |real| {
        let result = real(value, attribute, answers::asked(address));
        if result == SUCCESS || answers::is_kept_by_us(result, attribute, address) {
            answers::note(value, attribute, address);
            return SUCCESS;
        }
        result
    }
}
