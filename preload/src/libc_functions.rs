//! libc's own functions, for our own calls.
//!
//! A name leads to the first who has it: the program, with a `dl_iterate_phdr` that looks the next one up by our `dlsym`
//! (Seastar's programs) or that is not ready before `main` (a sanitizer's), or another preloaded library, in whose hands
//! RTLD_NEXT means what comes behind *it*: perhaps ourselves. So they are read from libc's symbols, where the dynamic
//! linker has mapped them, and that is found in the linker's own list. What copies and compares memory for us is ours
//! (`memory_functions`). By name we call only what depends on the thread or on who has made it (`__errno_location`,
//! `pthread_create`), and what only the dynamic linker has.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::symbols::{Found, Literal, Name, Symbols};

/// `dlsym`.
static DLSYM: Own<unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void> = Own::new(c"dlsym");
/// `dlopen`.
pub static DLOPEN: Own<unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void> = Own::new(c"dlopen");
/// `dlerror`.
pub static DLERROR: Own<unsafe extern "C" fn() -> *mut c_char> = Own::new(c"dlerror");
/// `dladdr`.
pub static DLADDR: Own<unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int> = Own::new(c"dladdr");
/// `dl_iterate_phdr`.
pub static DL_ITERATE_PHDR: Own<unsafe extern "C" fn(LookAtObject, *mut c_void) -> c_int> =
    Own::new(c"dl_iterate_phdr");
/// `__register_atfork`, which glibc's `pthread_atfork` calls. It allocates nothing for the first few handlers.
pub static REGISTER_ATFORK: Own<unsafe extern "C" fn(AtFork, AtFork, AtFork, *const c_void) -> c_int> =
    Own::new(c"__register_atfork");

/// What `dl_iterate_phdr` calls.
pub type LookAtObject = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;
/// What `fork` calls.
pub type AtFork = Option<unsafe extern "C" fn()>;

/// A function of libc, of type `F`.
pub struct Own<F> {
    name: Literal,
    address: AtomicPtr<c_void>,
    function: PhantomData<F>,
}

impl<F: Copy> Own<F> {
    const fn new(name: &'static CStr) -> Self {
        Self { name: Literal::new(name), address: AtomicPtr::new(core::ptr::null_mut()), function: PhantomData }
    }

    /// The function; `None` where this libc has none of the name.
    pub fn get(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            address = address_of(self.name.get());
            self.address.store(address, Ordering::Relaxed);
        }
        // SAFETY: `F` is the type of libc's function, by the declarations above, and not null.
        (!address.is_null()).then(|| unsafe { core::mem::transmute_copy(&address) })
    }
}

/// Whether libc is glibc.
pub fn is_glibc() -> bool {
    REGISTER_ATFORK.get().is_some()
}

/// The function `name` that `handle` leads to, or null. RTLD_NEXT is what comes behind this library.
///
/// # Safety
/// `handle` must be one of dlopen's, RTLD_DEFAULT or RTLD_NEXT.
#[inline(never)]
pub unsafe fn dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    let Some(dlsym) = DLSYM.get() else { return core::ptr::null_mut() };
    // SAFETY: the caller's word, and a zero-terminated name. It finds "the next" by the address that it returns to, so
    // this must not become a jump.
    let found = unsafe { dlsym(handle, name.as_ptr()) };
    core::hint::black_box(found)
}

/// The function of libc with this name, or null.
#[inline(never)]
pub fn address_of(name: &CStr) -> *mut c_void {
    // SAFETY: libc stays.
    match symbols().map(|libc| unsafe { libc.function(Name::new(name)) }) {
        Some(Found::Function(address)) => address,
        _ => core::ptr::null_mut(),
    }
}

/// An entry of the dynamic linker's list (`struct link_map`).
#[repr(C)]
struct Loaded {
    bias: usize,
    path: *const c_char,
    dynamic: *const [usize; 2],
    next: *const Loaded,
}

/// Where the dynamic linker shows its list to debuggers (`struct r_debug`).
#[repr(C)]
struct ListForDebuggers {
    version: c_int,
    first: *const Loaded,
}

// glibc has it, musl a pointer to it. Weak, as one of them is missing always; and as a need it would have the dynamic linker's own
// file named as one that this library needs.
core::arch::global_asm!(
    ".weak _r_debug",
    ".weak _dl_debug_addr",
    ".pushsection .text.ckpt_list_for_debuggers, \"ax\", @progbits",
    ".globl ckpt_list_for_debuggers",
    ".hidden ckpt_list_for_debuggers",
    "ckpt_list_for_debuggers:",
    "mov rax, qword ptr [rip + _r_debug@GOTPCREL]",
    "test rax, rax",
    "jnz 2f",
    "mov rax, qword ptr [rip + _dl_debug_addr@GOTPCREL]",
    "test rax, rax",
    "jz 2f",
    "mov rax, qword ptr [rax]",
    "2:",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    safe fn ckpt_list_for_debuggers() -> *const ListForDebuggers;
}

/// Whether a library of this name, or without one from this path, is libc: glibc, or musl, which is its own dynamic linker and may
/// have no name.
///
/// # Safety
/// The path must be null or zero-terminated.
unsafe fn is_libc(name: Option<&CStr>, path: *const c_char) -> bool {
    let name = match name {
        Some(name) => name.to_bytes(),
        None if path.is_null() => return false,
        // SAFETY: the caller's word.
        None => unsafe { CStr::from_ptr(path) }.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default(),
    };
    name == b"libc.so.6" || name == b"libc.so" || name.starts_with(b"ld-musl-") || name.starts_with(b"libc.musl-")
}

/// The symbols of libc. The list is read as it is: all this happens at the start of the program, or when the dynamic
/// linker has just loaded this library, and libc's entry stays where it is.
fn symbols() -> Option<Symbols> {
    let list = ckpt_list_for_debuggers();
    if list.is_null() {
        return None;
    }
    // SAFETY: the dynamic linker's own.
    let mut loaded = unsafe { (*list).first };
    while !loaded.is_null() {
        // SAFETY: an entry of the list, whose sections are mapped.
        unsafe {
            let object = &*loaded;
            if !object.dynamic.is_null() {
                let symbols = Symbols::of(object.bias, object.dynamic);
                if is_libc(symbols.library_name(), object.path) {
                    return Some(symbols);
                }
            }
            loaded = object.next;
        }
    }
    None
}
