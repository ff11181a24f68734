//! The code of the stub: where calls are executed for the agent, and the way back if the agent dies. libckpt.so has it, and
//! the agent gives it to a program that libckpt.so is not loaded into.
//!
//! The agent points a stopped thread at its first instruction with the call in the usual registers, r12 saying which kind
//! it is (see [`STUB_ANY_CALL`](crate::STUB_ANY_CALL)), r14 leading to the thread's frame (0, from an older agent: to the only one), and rsp 128 bytes below the program's, all signals blocked. Normally it stops the thread
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
//!
//! Behind it is the place where a thread goes on with a call of its own that a stop has interrupted, for the time that is left:
//! `syscall`, and then back with what that has returned and with the arguments that the program knows, from a
//! [`ResumedCall`](crate::ResumedCall) that rsp leads to. A debugger or an unwinder that looks is told where the caller is.

/// Assembles the stub into `section`, between the symbols `start` and `end`, which stay hidden, and behind it, up to the symbol
/// `resume_end`, the code that resumes a call. `frame` is an operand that leads to the [`StubFrame`](crate::StubFrame) of a thread
/// whose agent names none; `before` are lines of assembly in front of the stub.
///
/// The crate that uses it has `libc` among its dependencies.
#[macro_export]
macro_rules! stub_code {
    (section: $section:literal, start: $start:literal, end: $end:literal, resume_end: $resume_end:literal,
     before: [$($before:literal),*], frame: $($frame:tt)+) => {
        ::core::arch::global_asm!(
            concat!(".pushsection ", $section, ", \"ax\", @progbits"),
            ".balign 64",
            $($before,)*
            concat!(".globl ", $start),
            concat!(".hidden ", $start),
            concat!(".type ", $start, ", @function"),
            concat!($start, ":"),
            "syscall",
            // The agent is gone: signals are blocked and no register matters any more but rax, r12 and r14.
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
            "test r14, r14",
            "jnz 6f",
            "lea r14, [rip + {frame}]",
            "6:",
            "mov rsp, qword ptr [r14 + {rsp}]",
            "lea rsp, [rsp - 128]",
            "push qword ptr [r14 + {rip}]",
            "push qword ptr [r14 + {rflags}]",
            "push qword ptr [r14 + {rdi}]",
            "push qword ptr [r14 + {rsi}]",
            "push qword ptr [r14 + {rdx}]",
            "push qword ptr [r14 + {rcx}]",
            "push qword ptr [r14 + {rax}]",
            "push qword ptr [r14 + {r8}]",
            "push qword ptr [r14 + {r9}]",
            "push qword ptr [r14 + {r10}]",
            "push qword ptr [r14 + {r11}]",
            "push qword ptr [r14 + {rbx}]",
            "push qword ptr [r14 + {rbp}]",
            "push qword ptr [r14 + {r12}]",
            "push qword ptr [r14 + {r13}]",
            "push qword ptr [r14 + {r14}]",
            "push qword ptr [r14 + {r15}]",
            "mov eax, {rt_sigprocmask}",
            "mov edi, {sig_setmask}",
            "lea rsi, [r14 + {sigmask}]",
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
            concat!(".globl ", $end),
            concat!(".hidden ", $end),
            concat!($end, ":"),
            concat!(".size ", $start, ", . - ", $start),
            // What rsp was in the caller, and where it goes on, for unwinders.
            ".cfi_startproc simple",
            ".cfi_def_cfa rsp, {resumed_bytes} + 128",
            ".cfi_offset rip, -136",
            "syscall",
            "lea rsp, [rsp + {resumed_rdi}]",
            ".cfi_adjust_cfa_offset -{resumed_rdi}",
            "pop rdi",
            ".cfi_adjust_cfa_offset -8",
            "pop rsi",
            ".cfi_adjust_cfa_offset -8",
            "pop rdx",
            ".cfi_adjust_cfa_offset -8",
            "pop r10",
            ".cfi_adjust_cfa_offset -8",
            "pop r8",
            ".cfi_adjust_cfa_offset -8",
            // The system call has left its own place here.
            "mov rcx, qword ptr [rsp]",
            "ret 128",
            ".cfi_endproc",
            concat!(".globl ", $resume_end),
            concat!(".hidden ", $resume_end),
            concat!($resume_end, ":"),
            ".popsection",
            resumed_rdi = const ::core::mem::offset_of!($crate::ResumedCall, rdi),
            resumed_bytes = const ::core::mem::size_of::<$crate::ResumedCall>(),
            expendable = const $crate::STUB_EXPENDABLE,
            exit_group = const libc::SYS_exit_group,
            wait4 = const libc::SYS_wait4,
            wall = const libc::__WALL,
            minus_eintr = const -libc::EINTR,
            rt_sigprocmask = const libc::SYS_rt_sigprocmask,
            sig_setmask = const libc::SIG_SETMASK,
            frame = $($frame)+,
            r15 = const ::core::mem::offset_of!($crate::StubFrame, r15),
            r14 = const ::core::mem::offset_of!($crate::StubFrame, r14),
            r13 = const ::core::mem::offset_of!($crate::StubFrame, r13),
            r12 = const ::core::mem::offset_of!($crate::StubFrame, r12),
            rbp = const ::core::mem::offset_of!($crate::StubFrame, rbp),
            rbx = const ::core::mem::offset_of!($crate::StubFrame, rbx),
            r11 = const ::core::mem::offset_of!($crate::StubFrame, r11),
            r10 = const ::core::mem::offset_of!($crate::StubFrame, r10),
            r9 = const ::core::mem::offset_of!($crate::StubFrame, r9),
            r8 = const ::core::mem::offset_of!($crate::StubFrame, r8),
            rax = const ::core::mem::offset_of!($crate::StubFrame, rax),
            rcx = const ::core::mem::offset_of!($crate::StubFrame, rcx),
            rdx = const ::core::mem::offset_of!($crate::StubFrame, rdx),
            rsi = const ::core::mem::offset_of!($crate::StubFrame, rsi),
            rdi = const ::core::mem::offset_of!($crate::StubFrame, rdi),
            rip = const ::core::mem::offset_of!($crate::StubFrame, rip),
            rflags = const ::core::mem::offset_of!($crate::StubFrame, rflags),
            rsp = const ::core::mem::offset_of!($crate::StubFrame, rsp),
            sigmask = const ::core::mem::offset_of!($crate::StubFrame, sigmask),
        );
    };
}
