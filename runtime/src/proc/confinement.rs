//! What confines a thread: seccomp filters, and no_new_privs.

use ckpt_wire::Confinement;

use super::task;
use crate::error::Result;

/// What confines thread `tid` of process `pid`. `None` where that cannot be told: in strict mode, or from an old kernel.
pub fn of_thread(pid: i32, tid: i32) -> Result<Option<Confinement>> {
    Ok(Confinement::of_status(&task::bytes(pid, &format!("task/{tid}/status"))?))
}

/// What confines this process, and what it starts.
pub fn own() -> Option<Confinement> {
    Confinement::of_status(&task::bytes(std::process::id() as i32, "status").ok()?)
}
