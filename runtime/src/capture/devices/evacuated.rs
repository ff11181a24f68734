//! Managed memory of a process whose devices are to be suspended.

use ckpt_wire::Control;
use ckpt_wire::allocations::{CUDA_MANAGED, CUDA_MANAGED_EVACUATED, CUDA_MANAGED_REGISTERED};

use crate::capture::waiting_calls::WaitingCalls;
use crate::capture::{Program, hold, threads};
use crate::error::{Error, Result};
use crate::image::{Allocation, AllocationKind};
use crate::keeper::Line;
use crate::ptrace::{Stopped, mask_of};
use crate::{evacuation, stop};

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
pub fn evacuate(program: &Program, control: &Control, line: &Line<'_>, bytes: u64) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let outcome = evacuation::while_still(
        line,
        || stand_still(program, control),
        |line| {
            // What cannot be evacuated comes back in the same stop.
            evacuation::evacuate(line, bytes)
                .inspect_err(|_| drop(evacuation::bring_back(line, true, bytes).inspect_err(log_lost)))
        },
    );
    outcome.map_err(|error| match error {
        gone @ (Error::ProgramGone { .. } | Error::ThreadGone { .. }) => gone,
        why => Error::environment(
            format!("evacuating managed memory of process {}", program.pid),
            why.to_string(),
            "try again, or start it with CKPT_MANAGED_BACKING=pinned",
        ),
    })
}

fn log_lost(error: &Error) {
    log::error!("{error}");
}

/// Brings it back, if there is any.
///
/// # Errors
/// When the driver cannot do it, not even by pinning what is there.
pub fn bring_back(program: &Program, control: &Control, line: &Line<'_>, bytes: u64) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    evacuation::bring_back_still(line, || stand_still(program, control), bytes, program.pid).map(drop)
}

/// Stops all threads but those of the keeper, who goes on; so do they when this is dropped, in the calls in which they were waiting, for
/// what was left of their time.
fn stand_still(program: &Program, control: &Control) -> Result<Vec<Stopped>> {
    let pid = program.pid;
    let shared = hold::look(pid, control)?.ok_or(Error::ProgramGone { pid })?;
    let mut calls = WaitingCalls::default();
    calls.look(pid);
    let stopped = stop::all_but(pid, &[shared.keeper, shared.line as i32])?;
    let process_signals = stopped.first().map_or(Ok(Vec::new()), Stopped::queued_process_signals)?;
    let process_signals = mask_of(&process_signals);
    for thread in &stopped {
        threads::way_home(pid, thread, control, process_signals, &mut calls)?.lead_home(thread)?;
    }
    Ok(stopped)
}
