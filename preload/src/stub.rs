//! Where calls are executed for the agent, and the way back if the agent dies.
//!
//! The agent points a stopped thread at `ckpt_stub_start` with the call in the usual registers, r12 = 0 (any
//! call), 1 (a clone) or 2 (any call of a clone, which never goes on as the program), and rsp 128 bytes below the program's, all signals blocked. Normally it stops the thread
//! again as the call returns, and puts the registers back from outside: nothing below the first instruction ever
//! runs. If the agent is gone, the thread runs on here: the child side of a clone leaves, the parent side reaps
//! it, and the thread goes back to where it was.
//!
//! The frame is where the kernel would let the thread go on: for a thread stopped in a system call that is to be
//! issued again, rip is at its `syscall` instruction already and rax is its number (`restart_syscall` for one with a
//! remaining time; the call in the stub leaves that remaining time alone).
//!
//! The way back must survive a signal, for the program's mask has to be set by a call before the last registers
//! are loaded, and a signal that was waiting is delivered at that moment. Its handler may run for any time, long
//! enough for the next agent to write the frame for another thread. So the frame is copied to the thread's own
//! stack while signals are still blocked, below the 128 bytes that leaf functions use without moving rsp, and
//! from then on only that copy is used. `ret 128` loads rip and leaves rsp where the program had it in one
//! instruction. Vector and x87 registers are untouched by system calls and by this code.

use core::arch::global_asm;

use ckpt_wire::{STUB_EXPENDABLE, StubFrame};
use core::mem::offset_of;

use crate::control::STUB_FRAME;

global_asm!(
    ".pushsection .text.ckpt_stub, \"ax\", @progbits",
    ".balign 64",
    ".globl ckpt_stub_start",
    ".hidden ckpt_stub_start",
    ".type ckpt_stub_start, @function",
    "ckpt_stub_start:",
    "syscall",
    // The agent is gone: signals are blocked and no register matters any more but rax and r12.
    "cmp r12, {expendable}",
    "je 2f",
    "test r12, r12",
    "jz 4f",
    "test rax, rax",
    "js 4f",
    "jnz 3f",
    // Child side of a clone: a second copy of the program must not run.
    "2:",
    "mov eax, {exit_group}",
    "xor edi, edi",
    "syscall",
    "jmp 2b",
    // Parent side: reap the child, whatever its exit signal.
    "3:",
    "mov r13, rax",
    "5:",
    "mov eax, {wait4}",
    "mov rdi, r13",
    "xor esi, esi",
    "mov edx, {wall}",
    "xor r10d, r10d",
    "syscall",
    "cmp rax, {minus_eintr}",
    "je 5b",
    // Back to the program: copy the frame to the stack in the order in which it is loaded below.
    "4:",
    "mov rsp, qword ptr [rip + {frame} + {rsp}]",
    "lea rsp, [rsp - 128]",
    "push qword ptr [rip + {frame} + {rip}]",
    "push qword ptr [rip + {frame} + {rflags}]",
    "push qword ptr [rip + {frame} + {rdi}]",
    "push qword ptr [rip + {frame} + {rsi}]",
    "push qword ptr [rip + {frame} + {rdx}]",
    "push qword ptr [rip + {frame} + {rcx}]",
    "push qword ptr [rip + {frame} + {rax}]",
    "push qword ptr [rip + {frame} + {r8}]",
    "push qword ptr [rip + {frame} + {r9}]",
    "push qword ptr [rip + {frame} + {r10}]",
    "push qword ptr [rip + {frame} + {r11}]",
    "push qword ptr [rip + {frame} + {rbx}]",
    "push qword ptr [rip + {frame} + {rbp}]",
    "push qword ptr [rip + {frame} + {r12}]",
    "push qword ptr [rip + {frame} + {r13}]",
    "push qword ptr [rip + {frame} + {r14}]",
    "push qword ptr [rip + {frame} + {r15}]",
    "mov eax, {rt_sigprocmask}",
    "mov edi, {sig_setmask}",
    "lea rsi, [rip + {frame} + {sigmask}]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    // From here on a handler of the program may run on top of the copy.
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "pop r11",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rax",
    "pop rcx",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "popfq",
    "ret 128",
    ".globl ckpt_stub_end",
    ".hidden ckpt_stub_end",
    "ckpt_stub_end:",
    ".size ckpt_stub_start, . - ckpt_stub_start",
    ".popsection",
    expendable = const STUB_EXPENDABLE,
    exit_group = const libc::SYS_exit_group,
    wait4 = const libc::SYS_wait4,
    wall = const libc::__WALL,
    minus_eintr = const -libc::EINTR,
    rt_sigprocmask = const libc::SYS_rt_sigprocmask,
    sig_setmask = const libc::SIG_SETMASK,
    frame = sym STUB_FRAME,
    r15 = const offset_of!(StubFrame, r15),
    r14 = const offset_of!(StubFrame, r14),
    r13 = const offset_of!(StubFrame, r13),
    r12 = const offset_of!(StubFrame, r12),
    rbp = const offset_of!(StubFrame, rbp),
    rbx = const offset_of!(StubFrame, rbx),
    r11 = const offset_of!(StubFrame, r11),
    r10 = const offset_of!(StubFrame, r10),
    r9 = const offset_of!(StubFrame, r9),
    r8 = const offset_of!(StubFrame, r8),
    rax = const offset_of!(StubFrame, rax),
    rcx = const offset_of!(StubFrame, rcx),
    rdx = const offset_of!(StubFrame, rdx),
    rsi = const offset_of!(StubFrame, rsi),
    rdi = const offset_of!(StubFrame, rdi),
    rip = const offset_of!(StubFrame, rip),
    rflags = const offset_of!(StubFrame, rflags),
    rsp = const offset_of!(StubFrame, rsp),
    sigmask = const offset_of!(StubFrame, sigmask),
);

unsafe extern "C" {
    static ckpt_stub_start: u8;
    static ckpt_stub_end: u8;
}

/// First byte of the stub, and first byte behind it.
pub fn bounds() -> (u64, u64) {
    (&raw const ckpt_stub_start as u64, &raw const ckpt_stub_end as u64)
}
