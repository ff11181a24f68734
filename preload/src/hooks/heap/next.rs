//! The functions behind the hooks: the next definition of each symbol, the allocator's.
//!
//! Each is looked up when it is first called, as the dynamic linker does with functions that are bound late; the most
//! usual ones by the constructor, because that lookup may take the dynamic linker's lock and the first call may be a
//! signal handler's.

use core::arch::naked_asm;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::errno::SavedErrno;
use crate::hooks::heap::c::{CALLOC, FREE, MALLOC, REALLOC};
use crate::hooks::scopes::{in_library, in_library_of};
use crate::libc_functions::{self, DLERROR};
use crate::objects::Behind;
use crate::symbols::Literal;

/// A function and how to find it. The hooks jump through the first field.
#[repr(C)]
pub struct Next {
    address: AtomicPtr<c_void>,
    name: Literal,
}

/// Where C++ programs have `operator new` from.
const RUNTIMES: [&CStr; 2] = [c"libstdc++.so.6", c"libc++.so.1"];

impl Next {
    /// The next function `name`. Until it has been looked up, `find` is called in its place: see [`found_by`].
    pub const fn new(name: &'static CStr, find: unsafe extern "C" fn()) -> Self {
        Self { address: AtomicPtr::new(find as *mut c_void), name: Literal::new(name) }
    }

    /// What to call: the function, or what finds and calls it.
    pub fn get(&self) -> *const c_void {
        self.address.load(Ordering::Relaxed)
    }

    fn store(&self, address: *mut c_void) {
        if !address.is_null() {
            self.address.store(address, Ordering::Relaxed);
        }
    }

    /// Looks it up; `call_sites` are where it may have been called from.
    fn resolve(&self, call_sites: [*const c_void; 2]) -> *const c_void {
        let _errno = SavedErrno::new();
        // Whatever allocates or frees on the way, as `dlsym` does when it has failed before, comes to a function at once.
        if !USUAL_ARE_KNOWN.load(Ordering::Relaxed) {
            let before = self.get();
            resolve_usual(&Behind::this_library());
            if self.get() != before {
                return self.get();
            }
        }
        // SAFETY: the name is zero-terminated; RTLD_NEXT is resolved against this library.
        let mut address = unsafe { libc_functions::dlsym(libc::RTLD_NEXT, self.name.get()) };
        if address.is_null() {
            // Not in the global scope: what called has the C++ runtime in its own (a module that Python has loaded).
            // SAFETY: literals.
            let of_runtimes = RUNTIMES.iter().map(|runtime| unsafe { in_library(runtime.as_ptr(), self.name.get()) });
            let of_callers = call_sites.iter().map(|&call_site| in_library_of(call_site, self.name.get()));
            address = of_runtimes.chain(of_callers).find(|it| !it.is_null()).unwrap_or(core::ptr::null_mut());
            // What could not be found is no error of the program's.
            // SAFETY: it only forgets the text.
            DLERROR.get().map(|dlerror| unsafe { dlerror() });
        }
        if address.is_null() {
            address = no_such_function as *mut c_void;
        }
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// Set once the functions that a signal handler might be the first to call are known.
static USUAL_ARE_KNOWN: AtomicBool = AtomicBool::new(false);

/// Looks up the functions that a signal handler might be the first to call.
pub fn resolve_usual(behind: &Behind) {
    if USUAL_ARE_KNOWN.swap(true, Ordering::Relaxed) {
        return;
    }
    let usual = [&MALLOC, &CALLOC, &REALLOC, &FREE];
    let mut unread = false;
    for next in usual {
        let found = behind.function(next.name.get());
        unread |= found.is_none();
        // Where it cannot be read: libc's, so that `dlsym`, which is asked then, can free.
        next.store(found.unwrap_or_else(|| libc_functions::address_of(next.name.get())));
    }
    if unread {
        let _ = usual.map(|next| next.resolve([core::ptr::null(); 2]));
    }
}

/// A call of a function that no library has cannot have been linked.
unsafe extern "C" fn no_such_function() -> ! {
    // SAFETY: `ud2` has no operands and does not return.
    unsafe { core::arch::asm!("ud2", options(noreturn, nomem, nostack)) }
}

/// # Safety
/// `stack` must be the stack pointer with which the function `next` was called, by the program or by a hook that has
/// one word on the stack.
unsafe extern "C" fn resolve(next: &'static Next, stack: *const [*const c_void; 3]) -> *const c_void {
    // SAFETY: the caller's word; a stack goes on above a return address.
    let [call_site, _, call_site_of_hook] = unsafe { *stack };
    next.resolve([call_site, call_site_of_hook])
}

/// What [`Next::new`] begins with comes here, with the `Next` in rax and all else as the program called: looks the
/// function up and goes on to it.
#[unsafe(naked)]
pub unsafe extern "C" fn find_and_call() {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "push r8",
        ".cfi_adjust_cfa_offset 8",
        "mov rdi, rax",
        "lea rsi, [rsp + 40]",
        "call {resolve}",
        "pop r8",
        ".cfi_adjust_cfa_offset -8",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        resolve = sym resolve,
    )
}

/// `$next`: the function `$name` behind a hook.
macro_rules! next {
    ($next:ident, $name:expr) => {
        pub static $next: $crate::hooks::heap::next::Next = $crate::hooks::heap::next::Next::new($name, {
            #[unsafe(naked)]
            unsafe extern "C" fn find() {
                core::arch::naked_asm!(
                    "lea rax, [rip + {next}]",
                    "jmp {find_and_call}",
                    next = sym $next,
                    find_and_call = sym $crate::hooks::heap::next::find_and_call,
                )
            }
            find
        });
    };
}
pub(in crate::hooks) use next;
