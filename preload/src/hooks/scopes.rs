//! Looking up functions in libraries that are loaded, wherever the dynamic linker has put them.
//!
//! RTLD_NEXT sees what everybody sees. A library that was opened for somebody alone (RTLD_LOCAL: all that Python imports)
//! has a scope of its own, in which other functions may be than there.

use core::ffi::{CStr, c_char, c_void};

use crate::libc_functions::{self, DLADDR, DLOPEN};

/// The function `name` in the library at `path`, if that is loaded, or in one that it needs. The library stays: what
/// dlopen gives is kept.
///
/// # Safety
/// `path` must be zero-terminated.
pub unsafe fn in_library(path: *const c_char, name: &CStr) -> *mut c_void {
    let Some(dlopen) = DLOPEN.get() else { return core::ptr::null_mut() };
    // SAFETY: the caller's word; nothing is loaded that is not.
    let handle = unsafe { dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: a live handle and a zero-terminated name.
    unsafe { libc_functions::dlsym(handle, name) }
}

/// The function `name` in the library that has the code at `address`, or in one that it needs. None of ours.
pub fn in_library_of(address: *const c_void, name: &CStr) -> *mut c_void {
    match (library_of(address), library_of(in_library_of as *const c_void)) {
        // SAFETY: the dynamic linker's own path of a library that is loaded.
        (Some(of), Some(ours)) if of.dli_fbase != ours.dli_fbase => unsafe { in_library(of.dli_fname, name) },
        _ => core::ptr::null_mut(),
    }
}

fn library_of(address: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: `Dl_info` is four pointers, for which zero is a value.
    let mut library: libc::Dl_info = unsafe { core::mem::zeroed() };
    let dladdr = DLADDR.get()?;
    // SAFETY: any address may be asked for; `library` is ours to write.
    (unsafe { dladdr(address, &raw mut library) } != 0 && !library.dli_fname.is_null()).then_some(library)
}
