//! A library whose constructor does all that a hooked function may be called for before `main`.

use std::ffi::{CStr, c_int, c_void};

/// Names that are in no library: `dlsym` allocates the text of an error, and frees the one before.
const NOWHERE: [&CStr; 2] = [c"no_such_function_1", c"no_such_function_2"];

extern "C" fn ignore(_: c_int) {}

#[ctor::ctor(unsafe)]
fn begin() {
    // SAFETY: memory from malloc and its like is freed once; the names are zero-terminated; the handler does nothing.
    unsafe {
        for name in NOWHERE {
            assert!(libc::dlsym(libc::RTLD_NEXT, name.as_ptr()).is_null());
        }
        libc::free(std::ptr::null_mut());
        let zeros: *mut u8 = libc::calloc(1000, 4).cast();
        assert!(!zeros.is_null() && (0..4000).all(|at| *zeros.add(at) == 0));
        let more: *mut c_void = libc::realloc(zeros.cast(), 4 << 20);
        assert!(!more.is_null());
        libc::free(more);
        let mut aligned = std::ptr::null_mut();
        assert!(libc::posix_memalign(&raw mut aligned, 4096, 8192) == 0);
        libc::free(aligned);
        libc::signal(libc::SIGUSR2, ignore as extern "C" fn(c_int) as libc::sighandler_t);
    }
    drop(String::from("of Rust's own allocator"));
}
