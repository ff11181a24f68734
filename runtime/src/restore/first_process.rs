//! A program that was pid 1 of its container: `ckpt restart` is pid 1 of the next one, and becomes it.
//!
//! A child of ours goes on as the restarter: it traces us, and rebuilds us in our place. When it lets the program run it
//! still is the program's child, which that has never made; so the program's main thread leaves by the stub, which reaps that child
//! before it loads the program's registers. Its exit signal is 0: no SIGCHLD tells of it.

use std::mem::offset_of;

use ckpt_wire::{Control, STUB_CLONE};
use zerocopy::IntoBytes;

use super::process::HalfBuilt;
use crate::error::{Error, Result};
use crate::image::{JobImage, ProcessImage};
use crate::proc::task::FIRST_PROCESS;
use crate::ptrace::{RED_ZONE_BYTES, SYSCALL_BYTES};

/// Whether the first process of `job` was pid 1.
pub fn is_in(job: &JobImage) -> bool {
    job.root().pid == FIRST_PROCESS
}

/// Refuses a job whose first process was pid 1 where we are not.
pub fn check(job: &JobImage) -> Result<()> {
    if !is_in(job) || std::process::id() as i32 == FIRST_PROCESS {
        return Ok(());
    }
    Err(Error::environment(
        "restart",
        "the program was pid 1 of its container, and only pid 1 can become it again",
        "make `ckpt restart` the first process of a container (or: unshare --pid --fork --mount-proc ckpt restart DIR)",
    ))
}

/// Why this process cannot make the one that is to rebuild it.
pub fn no_id_for_restarter() -> Error {
    Error::ids_not_to_be_had(
        "restart a program that was pid 1",
        "the process that rebuilds it needs an id, and the next one here is that of another process of the job",
        "restart it with CAP_CHECKPOINT_RESTORE (--cap-add CHECKPOINT_RESTORE), or begin it with `ckpt run -- CMD` as pid 1",
    )
}

/// Has the program's main thread, which is complete and stopped, reap this process before anything else.
pub fn leave_by_stub(process: &mut HalfBuilt, image: &ProcessImage) -> Result<()> {
    let number = |offset: usize| -> Result<u64> {
        let mut bytes = [0; 8];
        process.memory().read(image.control + offset as u64, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    };
    let (frame, stub) = (number(offset_of!(Control, frame))?, number(offset_of!(Control, stub_start))?);
    let (main, mask) = (process.thread(0)?, image.threads[0].signal_mask);
    let mut registers = main.registers()?;
    process.memory().write(frame, registers.frame(mask).as_bytes())?;
    registers.0.rsp = (registers.0.rsp - RED_ZONE_BYTES) & !0xf;
    // As if it had made us just now.
    (registers.0.rip, registers.0.rax) = (stub + SYSCALL_BYTES, u64::from(std::process::id()));
    (registers.0.r12, registers.0.r14, registers.0.orig_rax) = (STUB_CLONE, frame, u64::MAX);
    main.set_registers(&registers)?;
    main.set_signal_mask(!0)
}
