//! Children that share our memory and stop the caller until they exec or exit, as `vfork` does.
//!
//! A fork would copy page tables (milliseconds for a large program, and it fails under strict overcommit). This
//! one takes microseconds whatever the program's size. Its exit signal is 0: no SIGCHLD, and `waitpid(-1)` does
//! not see it. It has its own descriptor table, working directory and signal actions, because the flags that
//! would share them are absent; and it runs on a static stack, because the one it was started from may be a
//! small alternate signal stack.
//!
//! [`start_thread`] is for a thread beside the program's, with a descriptor table of its own, which libc knows nothing of.

use core::arch::asm;
use core::sync::atomic::AtomicU32;

use crate::errno::Errno;
use crate::section::Section;
use crate::shared::Shared;

const STACK_BYTES: usize = 16 * 1024;

/// A stack for a child.
#[repr(C, align(64))]
pub struct Stack([u8; STACK_BYTES]);

impl Stack {
    /// All zero.
    pub const fn new() -> Self {
        Self([0; STACK_BYTES])
    }
}

/// The stack of the first child. Used by the holder of the section.
pub static OUTER_STACK: Shared<Stack> = Shared::new(Stack::new());
/// The stack of that child's child. Used by the holder of the section.
pub static INNER_STACK: Shared<Stack> = Shared::new(Stack::new());

/// What a child runs. It may use [`sys`](crate::sys) and must not touch thread-locals, `errno` included: they are
/// those of the thread that started it.
pub type Body<T> = unsafe extern "C" fn(*const T) -> !;

/// Runs `body` in a child and returns the child's pid once it has called execve or ended.
///
/// # Safety
/// `stack` must not be in use by another child, all signals must be blocked, and `argument` must be what `body`
/// asks for.
pub unsafe fn start<T>(stack: &'static Shared<Stack>, body: Body<T>, argument: *const T) -> Result<i32, Errno> {
    let flags = libc::CLONE_VM | libc::CLONE_VFORK;
    // The end of a 64-byte aligned array whose size is a multiple of 64: aligned as a call asks for.
    let top = stack.get().wrapping_add(1);
    let result: isize;
    // SAFETY: the parent side sees an ordinary system call that changes rax, rcx and r11. The child side leaves
    // this frame at once for a stack of its own, which the caller says is free, and never returns here. The
    // parent does not run meanwhile (CLONE_VFORK).
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone as isize => result,
            in("rdi") flags as usize, in("rsi") top, in("rdx") 0, in("r10") 0, in("r8") 0,
            in("r12") body, in("r13") argument,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    if result < 0 { Err(Errno(-(result as i32))) } else { Ok(result as i32) }
}

/// Runs `body` in a child of the calling thread, waits for its end and leaves no trace of it.
///
/// # Safety
/// `argument` must be what `body` asks for.
pub unsafe fn run<T>(_section: &mut Section, body: Body<T>, argument: *const T) -> Result<i32, Errno> {
    // SAFETY: the section is ours, so the stack is free and signals are blocked; the rest is the caller's word.
    let pid = unsafe { start(&OUTER_STACK, body, argument) }?;
    crate::sys::reap(pid);
    Ok(pid)
}

/// Runs `body` in a new thread of this process. It has its own descriptor table, a copy of the program's at first, and no
/// memory of its own but the stack: it must not touch thread-locals, which are those of the caller. `tid` is its id while it
/// lives; the kernel clears it when the stack is free again.
///
/// # Safety
/// `stack` must not be in use, and `body` must end by [`sys::in_thread::exit`](crate::sys::in_thread::exit).
pub unsafe fn start_thread(
    stack: &'static Shared<Stack>,
    body: unsafe extern "C" fn() -> !,
    tid: &'static AtomicU32,
) -> Result<(), Errno> {
    let shared = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_SIGHAND | libc::CLONE_THREAD | libc::CLONE_SYSVSEM;
    let flags = shared | libc::CLONE_PARENT_SETTID | libc::CLONE_CHILD_CLEARTID;
    let top = stack.get().wrapping_add(1);
    let result: isize;
    // SAFETY: the parent side sees an ordinary system call that changes rax, rcx and r11. The child side leaves this frame
    // at once for a stack of its own, which the caller says is free, and never returns here.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone as isize => result,
            in("rdi") flags as usize, in("rsi") top, in("rdx") tid.as_ptr(), in("r10") tid.as_ptr(), in("r8") 0,
            in("r12") body,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    if result < 0 { Err(Errno(-(result as i32))) } else { Ok(()) }
}
