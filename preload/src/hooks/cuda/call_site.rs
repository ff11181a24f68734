//! Where a call of the driver comes from.
//!
//! Each hook over the driver notes where it returns to. If that is in the CUDA runtime, the program's own call is further
//! up, and the hooks over the runtime's functions have noted that one with the place of its return address on the stack.
//! It counts only while that call goes on: then the stack is deeper than that place, and the address still stands there.

use core::arch::{global_asm, naked_asm};

// Of each thread: where the last call of a hook over the driver returns to; the same of one over the runtime, and where
// on the stack that address stands. The hooks write it, in assembly.
global_asm!(
    ".pushsection .tbss, \"awT\", @nobits",
    ".balign 8",
    ".globl ckpt_call_sites",
    ".hidden ckpt_call_sites",
    ".type ckpt_call_sites, @object",
    ".size ckpt_call_sites, 24",
    "ckpt_call_sites:",
    ".zero 24",
    ".popsection",
);

/// The calling thread's own.
#[unsafe(naked)]
extern "C" fn call_sites() -> *const [u64; 3] {
    naked_asm!("mov rax, qword ptr fs:[0]", "add rax, qword ptr [rip + ckpt_call_sites@gottpoff]", "ret")
}

/// Where the program's call returns to that has led to the hook that runs now.
pub fn current() -> u64 {
    // SAFETY: the thread's own memory, which only the hooks at the top of its calls write.
    let [of_driver, of_runtime, place] = unsafe { call_sites().read() };
    let deepest = core::ptr::from_ref(&place) as u64;
    // SAFETY: a place on this thread's stack, between here and its base: it is mapped.
    if place > deepest && unsafe { (place as *const u64).read_volatile() } == of_runtime {
        of_runtime
    } else {
        of_driver
    }
}
