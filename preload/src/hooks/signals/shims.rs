//! The C functions that stand in front of libc's. Each bears its symbol's name and only passes on.

use core::ffi::c_int;

use libc::sighandler_t;

use super::actions;
use crate::real;

/// `sigaction(2)`.
///
/// # Safety
/// As for the real function.
// SAFETY (of the name): standing in front of libc's symbol is the purpose; the signature is the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: the caller's word, passed on.
    unsafe { actions::set_action(signal, new, old) }
}

/// `signal(2)`.
// SAFETY (of the name): as for `sigaction`.
#[unsafe(no_mangle)]
pub extern "C" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    actions::set_handler(signal, handler, &real::SIGNAL)
}

/// `bsd_signal(3)`.
// SAFETY (of the name): as for `sigaction`.
#[unsafe(no_mangle)]
pub extern "C" fn bsd_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    actions::set_handler(signal, handler, &real::BSD_SIGNAL)
}

/// `sysv_signal(3)`. The handler is reset once it has run; that brings back the kernel's default, not ours.
// SAFETY (of the name): as for `sigaction`.
#[unsafe(no_mangle)]
pub extern "C" fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    actions::set_handler(signal, handler, &real::SYSV_SIGNAL)
}

/// What `signal` is called in programs compiled for System V's semantics.
// SAFETY (of the name): as for `sigaction`.
#[unsafe(no_mangle)]
pub extern "C" fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    actions::set_handler(signal, handler, &real::SYSV_SIGNAL_RESERVED)
}

/// `sigset(3)`.
// SAFETY (of the name): as for `sigaction`.
#[unsafe(no_mangle)]
pub extern "C" fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t {
    actions::set_handler_and_mask(signal, handler)
}

/// `sigignore(3)`.
// SAFETY (of the name): as for `sigaction`.
#[unsafe(no_mangle)]
pub extern "C" fn sigignore(signal: c_int) -> c_int {
    actions::ignore(signal)
}
