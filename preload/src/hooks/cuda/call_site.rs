//! Where a call of the driver comes from.
//!
//! Each hook over the driver notes where it returns to. If that is in the CUDA runtime, the program's own call is further
//! up: while a call of a hook over the runtime goes on, it is that one which counts.

use core::arch::{global_asm, naked_asm};

// Of each thread: where the last call of a hook over the driver returns to; the same of one over the runtime, as long as
// it goes on, and then 0. The hooks write it, in assembly.
global_asm!(
    ".pushsection .tbss, \"awT\", @nobits",
    ".balign 8",
    ".globl ckpt_call_sites",
    ".hidden ckpt_call_sites",
    ".type ckpt_call_sites, @object",
    ".size ckpt_call_sites, 16",
    "ckpt_call_sites:",
    ".zero 16",
    ".popsection",
);

/// The calling thread's own.
#[unsafe(naked)]
extern "C" fn call_sites() -> *const [u64; 2] {
    naked_asm!("mov rax, qword ptr fs:[0]", "add rax, qword ptr [rip + ckpt_call_sites@gottpoff]", "ret")
}

/// Where the program's call returns to that has led to the hook that runs now.
pub fn current() -> u64 {
    // SAFETY: the thread's own memory, which only the hooks at the top of its calls write.
    let [of_driver, of_runtime] = unsafe { call_sites().read() };
    if of_runtime != 0 { of_runtime } else { of_driver }
}
