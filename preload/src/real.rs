//! The functions behind our hooks: the next definition of each symbol, libc's or another preloaded library's.
//!
//! Looked up by the constructor, because dlsym may take the dynamic linker's lock and a program may call
//! `sigaction` in a signal handler; and on first use for whoever calls before our constructor. It allocates only when
//! it fails.

use core::ffi::{CStr, c_int, c_void};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicPtr, Ordering};

use libc::sighandler_t;

use crate::errno::SavedErrno;
use crate::libc_functions;
use crate::objects::Behind;
use crate::symbols::Literal;

/// `sigaction`.
pub static SIGACTION: Real<unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int> =
    Real::new(c"sigaction");
/// `signal`.
pub static SIGNAL: Real<SetHandler> = Real::new(c"signal");
/// `bsd_signal`.
pub static BSD_SIGNAL: Real<SetHandler> = Real::new(c"bsd_signal");
/// `sysv_signal`.
pub static SYSV_SIGNAL: Real<SetHandler> = Real::new(c"sysv_signal");
/// `__sysv_signal`.
pub static SYSV_SIGNAL_RESERVED: Real<SetHandler> = Real::new(c"__sysv_signal");
/// `sigset`.
pub static SIGSET: Real<SetHandler> = Real::new(c"sigset");
/// `sigignore`.
pub static SIGIGNORE: Real<unsafe extern "C" fn(c_int) -> c_int> = Real::new(c"sigignore");

/// `semget`.
pub static SEMGET: Real<unsafe extern "C" fn(libc::key_t, c_int, c_int) -> c_int> = Real::new(c"semget");
/// `msgget`.
pub static MSGGET: Real<unsafe extern "C" fn(libc::key_t, c_int) -> c_int> = Real::new(c"msgget");

/// `signal` and its relatives.
pub type SetHandler = unsafe extern "C" fn(c_int, sighandler_t) -> sighandler_t;

/// A function of type `F`.
pub struct Real<F> {
    name: Literal,
    address: AtomicPtr<c_void>,
    function: PhantomData<F>,
}

impl<F: Copy> Real<F> {
    const fn new(name: &'static CStr) -> Self {
        Self { name: Literal::new(name), address: AtomicPtr::new(core::ptr::null_mut()), function: PhantomData }
    }

    /// The function, if any library has it.
    pub fn get(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            address = resolve(&self.name, &self.address);
        }
        // SAFETY: `F` is the type of the symbol's function, by the declarations above, and not null.
        (!address.is_null()).then(|| unsafe { core::mem::transmute_copy(&address) })
    }

    fn find(&self, behind: &Behind) {
        match behind.function(self.name.get()) {
            Some(address) => self.address.store(address, Ordering::Relaxed),
            None => {
                resolve(&self.name, &self.address);
            }
        }
    }
}

/// Looks `name` up, of a function of whatever type, and keeps its address.
#[inline(never)]
fn resolve(name: &Literal, kept: &AtomicPtr<c_void>) -> *mut c_void {
    let _errno = SavedErrno::new();
    // SAFETY: the name is zero-terminated; RTLD_NEXT is resolved against this library.
    let address = unsafe { libc_functions::dlsym(libc::RTLD_NEXT, name.get()) };
    kept.store(address, Ordering::Relaxed);
    address
}

/// Looks all of them up.
pub fn resolve_all(behind: &Behind) {
    SIGACTION.find(behind);
    for real in [&SIGNAL, &BSD_SIGNAL, &SYSV_SIGNAL, &SYSV_SIGNAL_RESERVED, &SIGSET] {
        real.find(behind);
    }
    SIGIGNORE.find(behind);
}
