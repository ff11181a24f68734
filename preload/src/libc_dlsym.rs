//! libc's own `dlsym`, for our own lookups. Its name leads to our hook, or to that of another preloaded library, and in
//! that one's hands RTLD_NEXT means what comes behind *it*: perhaps ourselves. So it is read from the symbols of libc.so.6,
//! where the dynamic linker has mapped them.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::objects;
use crate::symbols::{Found, Name};

/// The function, once it is known.
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// The function `name` that `handle` leads to, or null. RTLD_NEXT is what comes behind this library.
///
/// # Safety
/// `handle` must be one of dlopen's, RTLD_DEFAULT or RTLD_NEXT.
#[inline(never)]
pub unsafe fn dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    let mut address = DLSYM.load(Ordering::Relaxed);
    if address.is_null() {
        address = find(c"dlsym");
        DLSYM.store(address, Ordering::Relaxed);
    }
    if address.is_null() {
        // glibc before 2.34, with which this library cannot be loaded.
        return address;
    }
    // SAFETY: libc's dlsym has this type.
    let dlsym: Dlsym = unsafe { core::mem::transmute(address) };
    // SAFETY: the caller's word, and a zero-terminated name. It finds "the next" by the address that it returns to, so
    // this must not become a jump.
    let found = unsafe { dlsym(handle, name.as_ptr()) };
    core::hint::black_box(found)
}

/// The function of libc.so.6 with this name, or null.
fn find(name: &CStr) -> *mut c_void {
    // A function that nobody stands in front of. (dlopen would find libc too, but allocates, and the heap's own functions
    // may be what is being looked for.)
    let in_libc = libc::gnu_get_libc_version as *const c_void;
    // SAFETY: libc stays.
    match objects::symbols_of_object_with(in_libc).map(|libc| unsafe { libc.function(Name::new(name)) }) {
        Some(Found::Function(address)) => address,
        _ => core::ptr::null_mut(),
    }
}
