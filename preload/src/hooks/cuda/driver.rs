//! Functions of the driver, real and hooked.

use core::ffi::{CStr, c_int, c_void};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::errno::SavedErrno;
use crate::hooks::scopes::{in_library, in_library_of};
use crate::libc_functions;
use crate::symbols::Literal;

/// What the driver's functions return: a `CUresult`.
pub type CuResult = c_int;
/// `CUDA_SUCCESS`.
pub const SUCCESS: CuResult = 0;
/// `CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND`: what a call of ours returns when there is no driver behind it.
pub const NO_FUNCTION: CuResult = 302;

/// Context, stream, pool, module, graph, array: pointers that are not ours to follow.
pub type Handle = *mut c_void;

/// Where a real function is, once that is known.
#[repr(transparent)]
pub struct Place(AtomicPtr<c_void>);

impl Place {
    /// Not known yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// The program has looked the function up, and it is at `address`.
    pub fn found(&self, address: *mut c_void) {
        // The first counts: a driver's function stays where it is.
        let _ = self.0.compare_exchange(core::ptr::null_mut(), address, Ordering::Relaxed, Ordering::Relaxed);
        note_driver(address);
    }

    /// The function, which is looked up by its name if no lookup of the program's has found it; none without a driver.
    ///
    /// # Safety
    /// `F` must be the type of the driver's function of this name.
    #[inline(always)]
    pub unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut address = self.0.load(Ordering::Relaxed);
        if address.is_null() {
            address = self.look_up(name);
        }
        // SAFETY: the caller's word, and not null.
        (!address.is_null()).then(|| unsafe { core::mem::transmute_copy(&address) })
    }

    #[cold]
    fn look_up(&self, name: &CStr) -> *mut c_void {
        let _errno = SavedErrno::new();
        // SAFETY: a zero-terminated name. Behind us in the global scope: the driver that the program is linked with.
        let mut address = unsafe { libc_functions::dlsym(libc::RTLD_NEXT, name) };
        if address.is_null() {
            address = in_known_driver(name);
        }
        if !address.is_null() {
            self.found(address);
        }
        address
    }
}

/// A real function of type `F` that has no hook.
pub struct Real<F> {
    name: Literal,
    place: Place,
    function: PhantomData<F>,
}

// SAFETY: an address that is only read and written as a whole.
unsafe impl<F> Sync for Real<F> {}

impl<F: Copy> Real<F> {
    /// The function of this name, which is looked up when it is needed.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name: Literal::new(name), place: Place::new(), function: PhantomData }
    }

    /// The function, if there is a driver.
    pub fn get(&self) -> Option<F> {
        // SAFETY: `F` is the type of the driver's function of this name, by the declarations.
        unsafe { self.place.function(self.name.get()) }
    }
}

/// A hook, as it is in the table.
///
/// The table is made of distances, which are known when the library is linked: the dynamic linker has nothing to write into
/// it in any process, used or not. All `i32`s but `since` are such, from the field itself.
#[repr(C)]
pub struct Hook {
    function: i32,
    place: i32,
    symbol: i32,
    base: i32,
    since: i32,
    kinds: u32,
}

/// For programs whose default stream is per thread.
pub const PER_THREAD: u32 = 1;
/// Calls pass while the gate is closed.
pub const UNGATED: u32 = 2;

impl Hook {
    /// What takes the real function's place.
    pub fn function(&self) -> *mut c_void {
        behind(&self.function).cast_mut().cast()
    }

    /// Where the real function is.
    pub fn place(&self) -> &'static Place {
        // SAFETY: the distance to a static of this type.
        unsafe { &*behind(&self.place).cast() }
    }

    /// Its symbol, and that of the real function.
    pub fn symbol(&self) -> &'static [u8] {
        // SAFETY: the distance to a zero-terminated text.
        unsafe { CStr::from_ptr(behind(&self.symbol).cast()) }.to_bytes()
    }

    /// The name that `cuGetProcAddress` knows it by.
    pub fn base(&self) -> &'static [u8] {
        // SAFETY: as for the symbol.
        unsafe { CStr::from_ptr(behind(&self.base).cast()) }.to_bytes()
    }

    /// The version of CUDA, as in `cudaTypedefs.h`, from which on that name means this function.
    pub fn since(&self) -> c_int {
        self.since
    }

    /// Whether it is the one for programs whose default stream is per thread.
    pub fn is_per_thread(&self) -> bool {
        self.kinds & PER_THREAD != 0
    }
}

/// What lies as far behind a field as it says.
fn behind(distance: &i32) -> *const u8 {
    (core::ptr::from_ref(distance) as usize).wrapping_add_signed(*distance as isize) as *const u8
}

// Ours alone: another library that had such a section would take them for its own.
core::arch::global_asm!(".hidden __start_ckpt_hooks", ".hidden __stop_ckpt_hooks");

unsafe extern "C" {
    // The linker's, around the section of this name.
    static __start_ckpt_hooks: Hook;
    static __stop_ckpt_hooks: Hook;
}

/// All hooks over the driver.
pub fn all_hooks() -> &'static [Hook] {
    let (first, end) = (&raw const __start_ckpt_hooks, &raw const __stop_ckpt_hooks);
    // SAFETY: the section has entries of this type alone, which `driver_hooks` puts there.
    unsafe { core::slice::from_raw_parts(first, (end as usize - first as usize) / size_of::<Hook>()) }
}

/// An address in the driver, from which the rest of it can be found; null before one is known.
static DRIVER: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// The address, or null.
pub fn known_address() -> *mut c_void {
    DRIVER.load(Ordering::Relaxed)
}

/// Whether the program has looked into a driver.
pub fn is_in_use() -> bool {
    !known_address().is_null()
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
/// `per_thread` for the kind with a default stream per thread, `ungated` for what passes while devices are held still, its
/// symbol and type, and what it does. `|real|` names the real function in there.
///
/// The symbol is a few instructions that note where the call returns to, and go on to the Rust function.
macro_rules! driver_hooks {
    ($(
        $(#[$docs:meta])*
        $base:literal $since:literal $($kind:ident)* =>
        $name:ident($($argument:ident: $type:ty),* $(,)?) |$real:ident| $body:block
    )*) => {
        $(
            #[allow(non_snake_case, reason = "the driver's name")]
            pub mod $name {
                #[allow(unused_imports, reason = "not all bodies need all")]
                use super::*;
                use $crate::hooks::cuda::driver::{NO_FUNCTION, Place, UNGATED};
                use $crate::hooks::cuda::gate;

                type Function = unsafe extern "C" fn($($type),*) -> core::ffi::c_int;

                const KINDS: u32 = 0 $(| $crate::hooks::cuda::driver::kind!($kind))*;
                static AT: Place = Place::new();

                $(#[$docs])*
                // SAFETY (of the name): standing in front of the driver's symbol is the purpose.
                #[unsafe(naked)]
                #[unsafe(no_mangle)]
                pub unsafe extern "C" fn $name() {
                    core::arch::naked_asm!(
                        "2:",
                        "mov rax, qword ptr [rsp]",
                        "mov r11, qword ptr [rip + ckpt_call_sites@gottpoff]",
                        "mov qword ptr fs:[r11], rax",
                        "jmp {hooked}",
                        // Its entry in the table.
                        ".pushsection ckpt_hooks, \"aR\", @progbits",
                        ".long 2b - .",
                        ".long {place} - .",
                        ".long 3f - .",
                        ".long 4f - .",
                        ".long {since}",
                        ".long {kinds}",
                        ".popsection",
                        ".pushsection .rodata.ckpt_hook_names, \"a\", @progbits",
                        "3:",
                        concat!(".asciz \"", stringify!($name), "\""),
                        "4:",
                        concat!(".asciz \"", $base, "\""),
                        ".popsection",
                        hooked = sym hooked,
                        place = sym AT,
                        since = const $since,
                        kinds = const KINDS,
                    )
                }

                /// # Safety
                /// As for the real function.
                unsafe extern "C" fn hooked($($argument: $type),*) -> core::ffi::c_int {
                    let name = const {
                        match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => unreachable!(),
                        }
                    };
                    // SAFETY: the type and the name are those of the hook.
                    let Some($real) = (unsafe { AT.function::<Function>(name) }) else { return NO_FUNCTION };
                    let _passage = (KINDS & UNGATED == 0).then(gate::enter);
                    // SAFETY: the caller's word, passed on.
                    unsafe { $body }
                }
            }
        )*
    };
}
pub(super) use driver_hooks;

/// The bit of a kind of hook.
macro_rules! kind {
    (per_thread) => {
        $crate::hooks::cuda::driver::PER_THREAD
    };
    (ungated) => {
        $crate::hooks::cuda::driver::UNGATED
    };
}
pub(super) use kind;

/// Hooks that do nothing but wait at the gate: the name that `cuGetProcAddress` knows each by, the version since when, the
/// symbol, the same of the kind with a default stream per thread, and the arguments.
macro_rules! passes_gate {
    ($(
        $base:literal $since:literal $name:ident $(, $since_per_thread:literal $name_per_thread:ident)? => $arguments:tt;
    )*) => {
        $(
            $crate::hooks::cuda::driver::passes! { $base $since $name $arguments }
            $($crate::hooks::cuda::driver::passes! { $base $since_per_thread per_thread $name_per_thread $arguments })?
        )*
    };
}
pub(super) use passes_gate;

/// One of them.
macro_rules! passes {
    ($base:literal $since:literal per_thread $name:ident ($($argument:ident: $type:ty),* $(,)?)) => {
        $crate::hooks::cuda::driver::driver_hooks! {
            $base $since per_thread => $name($($argument: $type),*) |real| {
                $crate::hooks::cuda::driver::ended!($base, true, real($($argument),*))
            }
        }
    };
    ($base:literal $since:literal $name:ident ($($argument:ident: $type:ty),* $(,)?)) => {
        $crate::hooks::cuda::driver::driver_hooks! {
            $base $since => $name($($argument: $type),*) |real| {
                $crate::hooks::cuda::driver::ended!($base, false, real($($argument),*))
            }
        }
    };
}
pub(super) use passes;

/// What has come of a call, which has ended if it has to have ended then.
macro_rules! ended {
    ($base:literal, $per_thread:literal, $result:expr) => {
        if const { $crate::hooks::cuda::backing::synchrony::is_meant($base) } {
            $crate::hooks::cuda::backing::synchrony::behind($per_thread, $result)
        } else {
            $result
        }
    };
}
pub(super) use ended;
