//! What becomes of a process when something fails: what its core dump has, and when it is told that memory is broken.

use std::fs;

use super::process::{Call, HalfBuilt};
use crate::error::Result;
use crate::image::ProcessImage;
use crate::proc::task;

const PRCTL: Call = Call("prctl", libc::SYS_prctl);
const PR_MCE_KILL: u64 = 33;
const PR_MCE_KILL_SET: u64 = 1;
const PR_MCE_KILL_GET: u64 = 34;

/// Sets both, before there are other threads, which inherit the second. Nothing depends on them as long as nothing fails: where the kernel
/// refuses, the restart goes on.
///
/// # Errors
/// When the process is gone.
pub fn set(process: &mut HalfBuilt, image: &ProcessImage) -> Result<()> {
    let pid = process.pid();
    if let Some(filter) = image.core_dump_filter.filter(|&filter| task::core_dump_filter(pid) != Some(filter))
        && let Err(error) = fs::write(format!("/proc/{pid}/coredump_filter"), format!("{filter:#x}"))
    {
        log::warn!("what a core dump has of process {pid} cannot be chosen as it was ({filter:#x}): {error}");
    }
    let Some(policy) = image.broken_memory else { return Ok(()) };
    let found = process.try_call(0, PRCTL, &[PR_MCE_KILL_GET, 0, 0, 0, 0])?;
    if found != Ok(policy)
        && let Err(errno) = process.try_call(0, PRCTL, &[PR_MCE_KILL, PR_MCE_KILL_SET, policy, 0, 0])?
    {
        log::warn!("process {pid} cannot be told of broken memory as it was (PR_MCE_KILL {policy}): {errno}");
    }
    Ok(())
}
