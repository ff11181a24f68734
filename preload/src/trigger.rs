//! What asks for a checkpoint inside the program: the trigger signal, the C API, and the interval at the start.
//!
//! A trigger starts an agent and is done; the agent finds out from outside what to do, and talks to another agent
//! that serves the program already, if there is one. The handler needs little stack, takes no lock, and a
//! thousand signals at once lead to as many agents as can be started one after the other, the rest being dropped.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use ckpt_wire::STATE_READY;

use crate::control;
use crate::errno::Errno;
use crate::log;
use crate::section::Section;
use crate::sender;
use crate::spawn::{self, Failure};
use crate::sys::{self, KernelAction, MASK_ALL};

/// What asked.
#[derive(Clone, Copy)]
pub enum Cause {
    /// The trigger signal.
    Signal,
    /// CKPT_INTERVAL, at the program's start.
    Interval,
    /// `ckpt_checkpoint`.
    Api,
}

/// `SA_RESTORER`: the kernel's x86-64 ABI demands a restorer and glibc does not name the flag.
const SA_RESTORER: u64 = 0x0400_0000;
/// Flags of our action: interrupted calls go on where the kernel can do that, and an alternate stack is used.
pub const ACTION_FLAGS: c_int = libc::SA_RESTART | libc::SA_ONSTACK | libc::SA_SIGINFO;

core::arch::global_asm!(
    ".pushsection .text.ckpt_restorer, \"ax\", @progbits",
    ".balign 16",
    // Debuggers and unwinders know a signal frame by exactly these nine bytes; the byte in front is looked up too.
    "nop",
    ".globl ckpt_restorer",
    ".hidden ckpt_restorer",
    ".type ckpt_restorer, @function",
    "ckpt_restorer:",
    ".byte 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00", // mov rax, 15 (rt_sigreturn)
    ".byte 0x0f, 0x05",                               // syscall
    ".size ckpt_restorer, . - ckpt_restorer",
    ".popsection",
);

unsafe extern "C" {
    static ckpt_restorer: u8;
}

/// The handler's address, as actions have it.
pub fn handler_address() -> usize {
    handle as *const () as usize
}

/// Installs the handler, unless the program was started with the signal ignored, or an earlier constructor has a
/// handler for it.
pub fn install(signal: i32) {
    let action = KernelAction {
        handler: handler_address(),
        flags: ACTION_FLAGS as u64 | SA_RESTORER,
        restorer: &raw const ckpt_restorer as usize,
        mask: MASK_ALL,
    };
    let free = sys::action(signal).is_ok_and(|present| present.handler == libc::SIG_DFL);
    // SAFETY: `handle` may run in any thread at any instruction, see there.
    let installed = free && unsafe { sys::set_action(signal, &action) }.is_ok();
    control::signal_taken().store(u32::from(!installed), Ordering::Relaxed);
}

/// Starts an agent. An error when one is being started already, when it cannot be started, or when the program
/// can not be checkpointed.
pub fn request(cause: Cause) -> Result<(), Errno> {
    if control::state().load(Ordering::Acquire) != STATE_READY {
        return Err(Errno(libc::ENOTSUP));
    }
    let mut section = Section::enter().ok_or(Errno(libc::EAGAIN))?;
    spawn::start_agent(&mut section, cause).map_err(|failure| {
        log_failure(&mut section, &failure);
        failure.errno
    })
}

/// The handler of the trigger signal. Everything it calls is ours, made of system calls and atomics, and leaves
/// `errno` alone.
unsafe extern "C" fn handle(signal: c_int, details: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel gives the details of the signal.
    let details = unsafe { &*details };
    if sender::is_of_job(details) {
        // The program has no handler for it: it takes the default action when this one returns.
        let default = KernelAction { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 };
        // SAFETY: no handler.
        let _ = unsafe { sys::set_action(signal, &default) };
        return sys::receive_again(details);
    }
    let _ = request(Cause::Signal);
}

fn log_failure(section: &mut Section, failure: &Failure) {
    log::append(section, |line| {
        // SAFETY: the agent's path does not change after the constructor.
        let agent = unsafe { &(*control::control()).agent };
        line.push(b"no checkpoint: cannot start ").push(ckpt_wire::text(agent));
        line.push(b": ").push(failure.step).push(b" failed with errno ");
        line.push_decimal(u64::from(failure.errno.0.unsigned_abs()), 1);
        if failure.errno == Errno(libc::ENOENT) {
            line.push(b" (no such file); set CKPT_AGENT to the ckpt executable");
        }
    });
}
