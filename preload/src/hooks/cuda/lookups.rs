//! `dlsym` and `dlvsym`.
//!
//! Lookups for other names go on to libc's function as they came, return address included: what RTLD_NEXT and
//! RTLD_DEFAULT mean depends on who calls. For a name of the driver's the real function is called first. If it finds
//! one that has a hook, the hook is given; if it finds our own export, there may be no driver behind that, and then
//! there is nothing to give. With RTLD_NEXT somebody who stands in the chain like us looks for who is behind; that is
//! never us.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use super::driver::{Hook, all_hooks};
use super::known;
use crate::errno::SavedErrno;
use crate::hooks::recorded;
use crate::hooks::scopes::in_library_of;
use crate::libc_functions;
use crate::objects::Behind;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// The `dlsym` behind ours. Until it is known, what finds it and goes on to it.
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(find_dlsym as *mut c_void);
/// The same for `dlvsym`.
static DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(find_dlvsym as *mut c_void);

/// Finds both. Before that, they are found when they are first called.
pub fn resolve(behind: &Behind) {
    for (next, name) in [(&DLSYM, c"dlsym"), (&DLVSYM, c"dlvsym")] {
        match behind.function(name) {
            Some(address) => next.store(address, Ordering::Relaxed),
            None => {
                resolve_one(next, name);
            }
        }
    }
}

/// Another preloaded library may hook the function, too: then that one's is next.
fn resolve_one(next: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    // SAFETY: RTLD_NEXT is no handle to keep.
    let address = unsafe { libc_functions::dlsym(libc::RTLD_NEXT, name) };
    next.store(address, Ordering::Relaxed);
    address
}

extern "C" fn resolve_dlsym() -> *mut c_void {
    let _errno = SavedErrno::new();
    resolve_one(&DLSYM, c"dlsym")
}

extern "C" fn resolve_dlvsym() -> *mut c_void {
    let _errno = SavedErrno::new();
    resolve_one(&DLVSYM, c"dlvsym")
}

/// `dlsym(3)`.
// SAFETY (of the name): standing in front of libc's symbol is the purpose; the arguments are passed on as they are.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym() {
    naked_asm!(
        ".cfi_startproc",
        // A name that begins with "cu" and a capital letter, looked up in anything but RTLD_NEXT.
        "test rsi, rsi",
        "jz 2f",
        "cmp word ptr [rsi], 0x7563",
        "jne 2f",
        "movzx eax, byte ptr [rsi + 2]",
        "sub eax, 65",
        "cmp eax, 25",
        "ja 2f",
        "cmp rdi, -1",
        "je 2f",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "xor edx, edx",
        "mov rcx, qword ptr [rsp + 24]",
        "call {found}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test edx, edx",
        "jnz 2f",
        "ret",
        "2:",
        "jmp qword ptr [rip + {next}]",
        ".cfi_endproc",
        found = sym found,
        next = sym DLSYM,
    )
}

/// `dlvsym(3)`.
// SAFETY (of the name): as for `dlsym`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlvsym() {
    naked_asm!(
        ".cfi_startproc",
        "test rsi, rsi",
        "jz 2f",
        "cmp word ptr [rsi], 0x7563",
        "jne 2f",
        "cmp rdi, -1",
        "je 2f",
        "test rdx, rdx",
        "jz 2f",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "mov rcx, qword ptr [rsp + 24]",
        "call {found}",
        "mov ecx, edx",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test ecx, ecx",
        "jnz 2f",
        "ret",
        "2:",
        "jmp qword ptr [rip + {next}]",
        ".cfi_endproc",
        found = sym found,
        next = sym DLVSYM,
    )
}

/// The first call of `dlsym` is older than our constructor.
#[unsafe(naked)]
unsafe extern "C" fn find_dlsym() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {resolve}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        resolve = sym resolve_dlsym,
    )
}

/// The first call of `dlvsym` is older than our constructor.
#[unsafe(naked)]
unsafe extern "C" fn find_dlvsym() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {resolve}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        resolve = sym resolve_dlvsym,
    )
}

/// What comes of a lookup: in rax and rdx.
#[repr(C)]
struct Answer {
    address: *mut c_void,
    /// Not 0: the real lookup is to answer, as if we had not been there.
    is_open: usize,
}

impl Answer {
    const OPEN: Self = Self { address: core::ptr::null_mut(), is_open: 1 };

    fn is(address: *mut c_void) -> Self {
        Self { address, is_open: 0 }
    }
}

/// Looks up a name that may be the driver's. The version is null in `dlsym`; the lookup returns to `call_site`.
///
/// # Safety
/// As for `dlsym` and `dlvsym`.
unsafe extern "C" fn found(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    call_site: *const c_void,
) -> Answer {
    // SAFETY: the caller's word.
    let text = unsafe { CStr::from_ptr(name) };
    if !known::looks_like_drivers(text.to_bytes()) {
        return Answer::OPEN;
    }
    // SAFETY: the caller's word.
    let mut address = unsafe { look_up(handle, name, version) };
    let Some(hook) = hook_of_symbol(text.to_bytes()) else {
        if !address.is_null() && !known::is_known(text.to_bytes()) {
            recorded::count_unknown();
        }
        return Answer::OPEN;
    };
    if address == hook.function() {
        // A scope in which we stand in front. Without a driver behind us, or in the caller's own scope, there is none.
        address = in_library_of(call_site, text);
        if address.is_null() || address == hook.function() {
            // The last lookup: if it fails, the caller's dlerror says so.
            // SAFETY: RTLD_NEXT is no handle to keep.
            address = unsafe { libc_functions::dlsym(libc::RTLD_NEXT, text) };
        }
        if address.is_null() {
            return Answer::is(address);
        }
    }
    if address.is_null() {
        return Answer::OPEN;
    }
    hook.place().found(address);
    Answer::is(hook.function())
}

/// # Safety
/// As for `dlsym` and `dlvsym`.
unsafe fn look_up(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void {
    let next = |next: &AtomicPtr<c_void>| next.load(Ordering::Relaxed);
    if version.is_null() {
        // SAFETY: libc's dlsym, or that of another library in front of it, or what goes on to it.
        let dlsym: Dlsym = unsafe { core::mem::transmute(next(&DLSYM)) };
        // SAFETY: the caller's word.
        unsafe { dlsym(handle, name) }
    } else {
        // SAFETY: as above.
        let dlvsym: Dlvsym = unsafe { core::mem::transmute(next(&DLVSYM)) };
        // SAFETY: the caller's word.
        unsafe { dlvsym(handle, name, version) }
    }
}

fn hook_of_symbol(symbol: &[u8]) -> Option<&'static Hook> {
    all_hooks().iter().find(|hook| hook.symbol() == symbol)
}
