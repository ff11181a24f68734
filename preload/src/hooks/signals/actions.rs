//! What becomes of a call that sets the action of a signal.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use libc::{SIG_DFL, SIG_ERR, SIG_IGN, sighandler_t};

use crate::control;
use crate::errno::set_errno;
use crate::log;
use crate::real::{self, Real, SetHandler};
use crate::section::Section;
use crate::trigger::{ACTION_FLAGS, handler_address};
use ckpt_wire::settings::signals::signal_name;

/// `SIG_HOLD` of `sigset`: block the signal and leave its action alone.
const SIG_HOLD: sighandler_t = 2;

/// The signal whose action we share with the program; 0 for none.
static WATCHED: AtomicI32 = AtomicI32::new(0);
/// Whether the log has the line about the program's own use of the signal.
static LOGGED: AtomicBool = AtomicBool::new(false);

/// Begins to watch calls for `signal`.
pub fn watch(signal: i32) {
    WATCHED.store(signal, Ordering::Release);
}

/// What the program wants for a signal.
pub enum Request {
    /// Not our business: see the reasons.
    PassThrough(#[expect(dead_code, reason = "names the reason where it is decided")] Reason),
    /// The default action, for which ours stands in.
    Default,
    /// To know the action, or to block the signal: nothing changes, and ours reads as the default.
    Keep,
    /// An action of its own, which displaces ours.
    Own,
}

/// Why a call goes to the real function as it is.
pub enum Reason {
    /// The trigger signal is another one.
    OtherSignal,
    /// There is no trigger signal: CKPT_SIGNAL=none, checkpoints are refused, or our constructor has not run (it
    /// looks at the action when it does).
    NothingWatched,
}

/// Classifies a call. `handler` is the one to be set; `None` when the call only asks.
pub fn classify(signal: c_int, handler: Option<sighandler_t>) -> Request {
    match WATCHED.load(Ordering::Acquire) {
        0 => Request::PassThrough(Reason::NothingWatched),
        watched if watched != signal => Request::PassThrough(Reason::OtherSignal),
        _ => match handler {
            None => Request::Keep,
            Some(SIG_DFL) => Request::Default,
            Some(_) => Request::Own,
        },
    }
}

/// `sigaction`.
///
/// # Safety
/// As for the real function: `new` and `old` must be null or an action to read and one to write.
pub unsafe fn set_action(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let Some(real) = real::SIGACTION.get() else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    // SAFETY: the caller's word on `new`. Read before the call: `old` may be the same memory.
    let handler = (!new.is_null()).then(|| unsafe { (*new).sa_sigaction });
    let request = classify(signal, handler);
    let ours = our_action();
    let new = if matches!(request, Request::Default) { &raw const ours } else { new };
    // SAFETY: the caller's pointers, or our own action, whose handler may run anywhere.
    let result = unsafe { real(signal, new, old) };
    if result == 0 {
        if !matches!(request, Request::PassThrough(_)) && !old.is_null() {
            // SAFETY: the caller's word on `old`, which the real function has just written.
            unsafe { show_default_for_ours(&mut *old) };
        }
        settle(signal, &request);
    }
    result
}

/// `signal`, `bsd_signal` and `sysv_signal`: what they return is the handler before.
pub fn set_handler(signal: c_int, handler: sighandler_t, real: &Real<SetHandler>) -> sighandler_t {
    let request = classify(signal, Some(handler));
    if matches!(request, Request::Default) {
        return replace_by_ours(signal);
    }
    let before = call_real(signal, handler, real);
    if matches!(request, Request::PassThrough(_)) || before == SIG_ERR {
        return before;
    }
    settle(signal, &request);
    default_for_ours(before)
}

/// `sigset`: like `signal`, but it unblocks the signal too, or with SIG_HOLD only blocks it, and it returns
/// SIG_HOLD for a signal that was blocked.
pub fn set_handler_and_mask(signal: c_int, handler: sighandler_t) -> sighandler_t {
    let request = classify(signal, (handler != SIG_HOLD).then_some(handler));
    // For the default, the real function puts our handler in place and takes care of the mask.
    let in_place = if matches!(request, Request::Default) { handler_address() } else { handler };
    let before = call_real(signal, in_place, &real::SIGSET);
    if matches!(request, Request::PassThrough(_)) || before == SIG_ERR {
        return before;
    }
    if matches!(request, Request::Default) {
        // And this gives it our flags.
        replace_by_ours(signal);
    } else {
        settle(signal, &request);
    }
    default_for_ours(before)
}

/// `sigignore`.
pub fn ignore(signal: c_int) -> c_int {
    let Some(real) = real::SIGIGNORE.get() else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    let request = classify(signal, Some(SIG_IGN));
    // SAFETY: the real function takes any number.
    let result = unsafe { real(signal) };
    if result == 0 {
        settle(signal, &request);
    }
    result
}

fn call_real(signal: c_int, handler: sighandler_t, real: &Real<SetHandler>) -> sighandler_t {
    let Some(real) = real.get() else {
        set_errno(libc::ENOSYS);
        return SIG_ERR;
    };
    // SAFETY: the program's own handler, or ours, which may run anywhere.
    unsafe { real(signal, handler) }
}

fn replace_by_ours(signal: c_int) -> sighandler_t {
    let Some(real) = real::SIGACTION.get() else {
        set_errno(libc::ENOSYS);
        return SIG_ERR;
    };
    let ours = our_action();
    let mut before = default_action();
    // SAFETY: two live actions; our handler may run anywhere.
    if unsafe { real(signal, &raw const ours, &raw mut before) } != 0 {
        return SIG_ERR;
    }
    settle(signal, &Request::Default);
    default_for_ours(before.sa_sigaction)
}

/// Records what a successful call has done.
fn settle(signal: c_int, request: &Request) {
    match request {
        Request::PassThrough(_) | Request::Keep => {}
        Request::Default => control::signal_taken().store(0, Ordering::Relaxed),
        Request::Own => {
            control::signal_taken().store(1, Ordering::Relaxed);
            log_once(signal);
        }
    }
}

fn log_once(signal: c_int) {
    if LOGGED.swap(true, Ordering::Relaxed) {
        return;
    }
    let Some(mut section) = Section::enter() else {
        // An agent is being started; the next call may say it.
        LOGGED.store(false, Ordering::Relaxed);
        return;
    };
    log::append(&mut section, |line| {
        let pid = u64::from(crate::sys::getpid().unsigned_abs());
        // SAFETY: the name does not change after the constructor.
        let name = unsafe { &(*control::control()).name };
        let (prefix, signal, offset) = signal_name(signal);
        line.push_decimal(pid, 1).push(b" (").push(ckpt_wire::text(name)).push(b") uses ");
        line.push(prefix.as_bytes()).push(signal.as_bytes());
        if let Some(offset) = offset {
            line.push_decimal(offset, 1);
        }
        line.push(b" itself; take checkpoints with `ckpt checkpoint ").push_decimal(pid, 1);
        line.push(b"` or choose another CKPT_SIGNAL");
    });
}

/// The handler as the program may know it.
fn default_for_ours(handler: sighandler_t) -> sighandler_t {
    if handler == handler_address() { SIG_DFL } else { handler }
}

fn show_default_for_ours(action: &mut libc::sigaction) {
    if action.sa_sigaction == handler_address() {
        *action = default_action();
    }
}

fn default_action() -> libc::sigaction {
    // SAFETY: numbers, and an optional function for which zero is none. SIG_DFL is 0, and the mask is empty.
    unsafe { core::mem::zeroed() }
}

fn our_action() -> libc::sigaction {
    let mut action = default_action();
    action.sa_sigaction = handler_address();
    action.sa_flags = ACTION_FLAGS;
    // SAFETY: a mask is bits, and all of them may be set: the kernel leaves out what cannot be blocked.
    action.sa_mask = unsafe { core::mem::transmute::<[u8; size_of::<libc::sigset_t>()], libc::sigset_t>([0xff; _]) };
    action
}
