//! libckpt.so: the part of ckpt inside the program.
//!
//! It is thin on purpose. It installs a handler for the trigger signal, starts the agent (an ordinary program)
//! when a checkpoint is asked for, and leaves a block of memory behind, [`control::ckpt_control`], that tells the
//! agent what the user wants and where the stub for injected calls is. It never writes a checkpoint.
//!
//! What the code here may not do, because it runs inside somebody else's program, often in a signal handler:
//! allocate, take a lock, use a descriptor number of the program, write to its stderr, unwind, or change `errno`.
//! So there is no std, system calls are made directly ([`sys`]), everything that does not fit on a small
//! alternate signal stack is a static, and one flag ([`section`]) says who may use the statics. Whatever needs a
//! descriptor is done by a child that shares the memory and has a descriptor table of its own ([`child`]).
#![no_std]
#![allow(clippy::result_large_err, reason = "a reason of 128 bytes is returned once, and nothing is allocated")]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
compile_error!("libckpt.so is for x86-64 Linux with glibc only");

mod agent_environment;
mod api;
mod child;
mod classification;
mod config;
mod control;
mod environment;
mod errno;
mod fork;
mod hooks;
mod libc_functions;
mod log;
mod mark;
mod memory_functions;
mod objects;
mod real;
mod section;
mod sender;
mod shared;
mod spawn;
mod start;
mod stub;
mod symbols;
mod sys;
mod trigger;

// Nothing else asks for libc in a no_std library. It is loaded into every program anyway; being named as needed
// gives our few references symbol versions, and runs libc's constructors before ours.
#[link(name = "c")]
unsafe extern "C" {}

// The precompiled core library names this function in its unwind tables. Nothing unwinds here; in an optimised
// build the linker drops it with the code that refers to it, in others the library could not be loaded without.
core::arch::global_asm!(
    ".pushsection .text.rust_eh_personality, \"ax\", @progbits",
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    "ud2",
    ".popsection",
);

/// A panic here is a bug; the process ends by SIGILL rather than unwinding into the program.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: `ud2` has no operands and does not return.
    unsafe { core::arch::asm!("ud2", options(noreturn, nomem, nostack)) }
}
