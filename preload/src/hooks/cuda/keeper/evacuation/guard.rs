//! Threads that touch memory which is on its way, although they should stand still: who has stopped them is dead. They
//! wait until the memory is there, in a handler of SIGSEGV that is ours for as long as that takes.
//!
//! What they have the kernel do with such memory meanwhile fails (EFAULT); so the keeper looks whether they stand still before
//! it touches anything, and what follows takes milliseconds.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use super::{spans, stillness};
use crate::real;
use crate::shared::Shared;
use crate::sys::{self, KernelAction};

/// 1 while memory is on its way.
static ON_ITS_WAY: AtomicU32 = AtomicU32::new(0);
/// How long a thread may take from its fault to the handler.
const TO_THE_HANDLER_MS: u32 = 20;

/// The program's own action. Written before the handler is installed.
static BEFORE: Shared<KernelAction> = Shared::new(KernelAction { handler: 0, flags: 0, restorer: 0, mask: 0 });

/// Moves memory, and has who touches it wait.
pub fn moving<T>(act: impl FnOnce() -> T) -> T {
    let is_installed = install();
    ON_ITS_WAY.store(1, Ordering::SeqCst);
    let outcome = act();
    ON_ITS_WAY.store(0, Ordering::SeqCst);
    sys::futex_wake(&ON_ITS_WAY);
    if is_installed {
        if !stillness::is_there() {
            sys::futex_wait(&ON_ITS_WAY, 0, Some(TO_THE_HANDLER_MS));
        }
        // SAFETY: the program's own, as it was.
        let _ = unsafe { sys::set_action(libc::SIGSEGV, &*BEFORE.get()) };
    }
    outcome
}

fn install() -> bool {
    let (Ok(before), Some(set)) = (sys::action(libc::SIGSEGV), real::SIGACTION.get()) else { return false };
    // SAFETY: the keeper alone writes it, and no handler of ours is installed.
    unsafe { BEFORE.get().write(before) };
    // SAFETY: numbers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = wait as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: a live action; `wait` may run in any thread at any instruction.
    unsafe { set(libc::SIGSEGV, &raw const action, core::ptr::null_mut()) == 0 }
}

/// The handler. Behind it the thread tries again what it has tried.
unsafe extern "C" fn wait(_signal: c_int, details: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel hands one over.
    let address = unsafe { (*details).si_addr() } as usize;
    if spans::have(address) {
        while ON_ITS_WAY.load(Ordering::SeqCst) != 0 {
            sys::futex_wait(&ON_ITS_WAY, 1, None);
        }
        return;
    }
    // It is the program's own business: it happens again, and its own action is there.
    // SAFETY: written before this handler was installed.
    let _ = unsafe { sys::set_action(libc::SIGSEGV, &*BEFORE.get()) };
}
