//! `cuGetProcAddress`, by which the runtimes look up nearly all of the driver.
//!
//! A name means different functions in different versions of CUDA; the caller says which one it was written for. Of our
//! hooks of that name the newest counts that is not newer. For a version after the one that we know, the real function
//! must be the same one that it was then: another one may have other arguments, and is passed on untouched.

use core::ffi::{CStr, c_char, c_int, c_void};

use super::driver::{CuResult, Hook, SUCCESS, all_hooks, driver_hooks};
use super::known;
use crate::hooks::recorded;

/// The newest version of CUDA whose functions we know.
const KNOWN_VERSION: c_int = 13000;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD_DEFAULT_STREAM: u64 = 2;

driver_hooks! {
    "cuGetProcAddress" 11030 ungated =>
    cuGetProcAddress(name: *const c_char, address: *mut *mut c_void, version: c_int, flags: u64) |real| {
        let result = real(name, address, version, flags);
        if result == SUCCESS {
            let ask = |address, version| real(name, address, version, flags);
            replace(name, address, version, flags, ask);
        }
        result
    }

    "cuGetProcAddress" 12000 ungated =>
    cuGetProcAddress_v2(
        name: *const c_char, address: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int
    ) |real| {
        let result = real(name, address, version, flags, status);
        if result == SUCCESS {
            let mut status = 0;
            let ask = |address, version| real(name, address, version, flags, &raw mut status);
            replace(name, address, version, flags, ask);
        }
        result
    }
}

/// Puts a hook in place of what has been found, if there is one.
///
/// # Safety
/// As for the real function, which has succeeded. `ask` must call it.
unsafe fn replace(
    name: *const c_char,
    address: *mut *mut c_void,
    version: c_int,
    flags: u64,
    ask: impl FnOnce(*mut *mut c_void, c_int) -> CuResult,
) {
    // SAFETY: the caller's word: it is what the real function has read.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    // SAFETY: the caller's word: the real function has written it.
    let Some(found) = (unsafe { address.as_mut() }).filter(|found| !found.is_null()) else { return };
    let hook = hook(name, version.min(KNOWN_VERSION), flags & PER_THREAD_DEFAULT_STREAM != 0);
    let Some(hook) = hook else {
        if !known::is_known(name) {
            recorded::count_unknown();
        }
        return;
    };
    if version > KNOWN_VERSION {
        let mut as_known = core::ptr::null_mut();
        if ask(&raw mut as_known, KNOWN_VERSION) != SUCCESS || as_known != *found {
            recorded::count_unknown();
            return;
        }
    }
    hook.place().found(*found);
    *found = hook.function();
}

/// The hook that a name means in a version of CUDA. Most functions are the same whatever the default stream is; the kind
/// with one a thread may be younger than the other.
fn hook(name: &[u8], version: c_int, per_thread: bool) -> Option<&'static Hook> {
    let newest = |per_thread| {
        let of_name = all_hooks().iter().filter(|hook| hook.base() == name && hook.since() <= version);
        of_name.filter(|hook| hook.is_per_thread() == per_thread).max_by_key(|hook| hook.since())
    };
    let own = if per_thread { newest(true) } else { None };
    own.or_else(|| newest(false))
}
