//! Managed memory of a process whose devices are to be suspended.

use ckpt_wire::allocations::{CUDA_MANAGED, CUDA_MANAGED_EVACUATED, CUDA_MANAGED_REGISTERED};

use crate::capture::program::Program;
use crate::error::{Error, Result};
use crate::evacuation;
use crate::image::{Allocation, AllocationKind};
use crate::keeper::Line;

/// Bytes of managed memory that is evacuated.
pub fn bytes(known: &[Allocation]) -> u64 {
    let is_managed = |one: &&Allocation| {
        matches!(one.kind, AllocationKind::Cuda(CUDA_MANAGED | CUDA_MANAGED_EVACUATED | CUDA_MANAGED_REGISTERED, _))
    };
    known.iter().filter(is_managed).map(|one| one.bytes).sum()
}

/// Evacuates it, if there is any.
///
/// # Errors
/// When threads cannot be stopped, or the driver cannot do it. Then all is as it was, or pinned memory.
pub fn evacuate(program: &Program, line: &Line<'_>, bytes: u64) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let outcome = evacuation::while_still(line, program.pid, |line| {
        // What cannot be evacuated comes back in the same stop.
        evacuation::evacuate(line, bytes).inspect_err(|_| {
            if let Err(lost) = evacuation::bring_back(line, true, bytes) {
                log::error!("{lost}");
            }
        })
    });
    outcome.map_err(|error| match error {
        gone @ (Error::ProgramGone { .. } | Error::ThreadGone { .. }) => gone,
        why => Error::environment(
            format!("evacuating managed memory of process {}", program.pid),
            why.to_string(),
            "try again, or start it with CKPT_MANAGED_BACKING=pinned",
        ),
    })
}
