//! Functions of the driver, real and hooked.

use core::ffi::{CStr, c_int, c_void};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::errno::SavedErrno;
use crate::hooks::scopes::{in_library, in_library_of};
use crate::libc_dlsym;

/// What the driver's functions return: a `CUresult`.
pub type CuResult = c_int;
/// `CUDA_SUCCESS`.
pub const SUCCESS: CuResult = 0;
/// `CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND`: what a call of ours returns when there is no driver behind it.
pub const NO_FUNCTION: CuResult = 302;

/// Context, stream, pool, module, graph, array: pointers that are not ours to follow.
pub type Handle = *mut c_void;

/// A real function of type `F`.
pub struct Real<F> {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
    function: PhantomData<F>,
}

impl<F: Copy> Real<F> {
    /// The function of this name, which is looked up when it is needed unless a lookup of the program's finds it first.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(core::ptr::null_mut()), function: PhantomData }
    }

    /// The function, if there is a driver.
    pub fn get(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            let _errno = SavedErrno::new();
            // SAFETY: a zero-terminated name. Behind us in the global scope: the driver that the program is linked with.
            address = unsafe { libc_dlsym::dlsym(libc::RTLD_NEXT, self.name) };
            if address.is_null() {
                address = in_known_driver(self.name);
            }
            if !address.is_null() {
                self.found(address);
            }
        }
        // SAFETY: `F` is the type of the driver's function of this name, and not null.
        (!address.is_null()).then(|| unsafe { core::mem::transmute_copy(&address) })
    }
}

/// A real function whatever its type.
pub trait Found: Sync {
    /// The program has looked the function up, and it is at `address`.
    fn found(&self, address: *mut c_void);
}

// SAFETY: an address that is only read and written as a whole.
unsafe impl<F> Sync for Real<F> {}

impl<F> Found for Real<F> {
    fn found(&self, address: *mut c_void) {
        // The first counts: a driver's function stays where it is.
        let _ = self.address.compare_exchange(core::ptr::null_mut(), address, Ordering::Relaxed, Ordering::Relaxed);
        note_driver(address);
    }
}

/// A hook.
pub struct Hook {
    /// Its symbol, and that of the real function.
    pub symbol: &'static str,
    /// The name that `cuGetProcAddress` knows it by.
    pub base: &'static str,
    /// The version of CUDA, as in `cudaTypedefs.h`, from which on that name means this function.
    pub since: c_int,
    /// Whether it is the one for programs whose default stream is per thread.
    pub per_thread: bool,
    /// What takes the real function's place.
    pub function: unsafe extern "C" fn(),
    /// The real function.
    pub real: &'static dyn Found,
}

/// An address in the driver, from which the rest of it can be found; null before one is known.
static DRIVER: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Whether the program has looked into a driver.
pub fn is_in_use() -> bool {
    !DRIVER.load(Ordering::Relaxed).is_null()
}

fn note_driver(address: *mut c_void) {
    if DRIVER.load(Ordering::Relaxed).is_null() {
        DRIVER.store(address, Ordering::Relaxed);
    }
}

/// A function of the driver where the global scope has none: of the one that the program has looked into already, or of one
/// that is loaded under its usual name.
fn in_known_driver(name: &CStr) -> *mut c_void {
    let known = DRIVER.load(Ordering::Relaxed);
    if known.is_null() {
        // SAFETY: a literal.
        unsafe { in_library(c"libcuda.so.1".as_ptr(), name) }
    } else {
        in_library_of(known, name)
    }
}

/// Hooks over functions of the driver: for each, the name that `cuGetProcAddress` knows it by, the version since when,
/// `per_thread` for the kind with a default stream per thread, its symbol and type, and what it does. `|real|` names the
/// real function in there.
///
/// The symbol is a few instructions that note where the call returns to, and go on to the Rust function.
macro_rules! driver_hooks {
    ($(
        $(#[$docs:meta])*
        $base:literal $since:literal $($per_thread:ident)? =>
        $name:ident($($argument:ident: $type:ty),* $(,)?) |$real:ident| $body:block
    )*) => {
        $(
            #[allow(non_snake_case, reason = "the driver's name")]
            pub mod $name {
                #[allow(unused_imports, reason = "not all bodies need all")]
                use super::*;
                use $crate::hooks::cuda::driver::{Hook, NO_FUNCTION, Real};

                type Function = unsafe extern "C" fn($($type),*) -> core::ffi::c_int;

                pub static REAL: Real<Function> = Real::new(
                    match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => unreachable!(),
                    },
                );

                $(#[$docs])*
                // SAFETY (of the name): standing in front of the driver's symbol is the purpose.
                #[unsafe(naked)]
                #[unsafe(no_mangle)]
                pub unsafe extern "C" fn $name() {
                    core::arch::naked_asm!(
                        "mov rax, qword ptr [rsp]",
                        "mov r11, qword ptr [rip + ckpt_call_sites@gottpoff]",
                        "mov qword ptr fs:[r11], rax",
                        "jmp {hooked}",
                        hooked = sym hooked,
                    )
                }

                /// # Safety
                /// As for the real function.
                unsafe extern "C" fn hooked($($argument: $type),*) -> core::ffi::c_int {
                    let Some($real) = REAL.get() else { return NO_FUNCTION };
                    // SAFETY: the caller's word, passed on.
                    unsafe { $body }
                }

                pub const HOOK: Hook = Hook {
                    symbol: stringify!($name),
                    base: $base,
                    since: $since,
                    per_thread: $crate::hooks::cuda::driver::is_given!($($per_thread)?),
                    function: $name,
                    real: &REAL,
                };
            }
        )*

        /// The hooks of this file.
        pub const HOOKS: &[$crate::hooks::cuda::driver::Hook] = &[$($name::HOOK),*];
    };
}
pub(super) use driver_hooks;

/// Whether there is an argument.
macro_rules! is_given {
    () => {
        false
    };
    ($argument:ident) => {
        true
    };
}
pub(super) use is_given;
