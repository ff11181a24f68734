//! What a process may not have around it to be captured: each refusal names the thing and what to do.

use crate::error::{Error, Result};
use crate::proc::task;

/// Refuses namespaces that are not ours.
pub fn refuse_unknown_surroundings(pid: i32) -> Result<()> {
    ["mnt", "pid", "ipc"].into_iter().try_for_each(|namespace| refuse_other_namespace(pid, namespace))?;
    refuse_other_clocks_of_children(pid)
}

/// Refuses a program whose children are to have another time namespace than itself. (Its own may be any: its clocks
/// go on.)
fn refuse_other_clocks_of_children(pid: i32) -> Result<()> {
    // A kernel without time namespaces has no such links.
    let own = task::link(pid, "ns/time").ok();
    if own.is_none() || own == task::link(pid, "ns/time_for_children").ok() {
        return Ok(());
    }
    Err(Error::unsupported(
        format!("process {pid}: a time namespace that it has made for its children"),
        "they would be without after a restart",
        "take the checkpoint before it makes one (unshare)",
    ))
}

/// Refuses a program that knows itself by another pid than we do: before an agent takes the place of one that could be of
/// use to it.
pub fn refuse_other_pid_namespace(pid: i32) -> Result<()> {
    refuse_other_namespace(pid, "pid")
}

fn refuse_other_namespace(pid: i32, namespace: &str) -> Result<()> {
    let file = format!("ns/{namespace}");
    if task::link(pid, &file)? == task::link(std::process::id() as i32, &file)? {
        return Ok(());
    }
    Err(Error::unsupported(
        format!("process {pid} in another {namespace} namespace"),
        "its names mean something else here",
        "run ckpt inside that container, or send the program its signal",
    ))
}
