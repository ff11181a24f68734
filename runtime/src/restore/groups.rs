//! Process groups that a process has joined: when all are there, each leader leads its own.

use nix::unistd::{Pid, getpgid, getpgrp};

use super::process::{Call, HalfBuilt};
use crate::error::{Error, Result};
use crate::image::{JobImage, Role};

const SETPGID: Call = Call("setpgid", libc::SYS_setpgid);

/// Has each process that leads nothing join its group, where it is not there by its birth. A group that was not the job's is
/// the restarter's now.
pub fn join(processes: &mut [HalfBuilt], job: &JobImage) -> Result<()> {
    let root = job.root();
    let is_the_jobs = |group: i32| group != root.family.group || root.family.role(root.pid) != Role::Member;
    for (process, image) in processes.iter_mut().zip(&job.processes).skip(1) {
        if image.family.role(image.pid) != Role::Member {
            continue;
        }
        let group = if is_the_jobs(image.family.group) { image.family.group } else { getpgrp().as_raw() };
        let now = getpgid(Some(Pid::from_raw(image.pid)))
            .map_err(|source| Error::io("ask for the process group of", format!("process {}", image.pid), source))?;
        if now.as_raw() != group {
            process.call(0, SETPGID, &[0, group as u64], format_args!("join process group {group}"))?;
        }
    }
    Ok(())
}
