//! Process groups that a process has joined: when all are there, each leader leads its own. A leader that has gone is made
//! again, for as long as it takes the first process to join.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid, getpgrp};

use super::clone_call::{CloneArguments, clone_refused};
use super::process::{Call, HalfBuilt};
use crate::error::{Error, Result};
use crate::image::{JobImage, ProcessImage, Role};
use crate::ptrace::{wait_until_gone, write_memory};

const SETPGID: Call = Call("setpgid", libc::SYS_setpgid);
const WAIT4: Call = Call("wait4", libc::SYS_wait4);

/// Bytes below the stack pointer of a half-built process that nothing of it is in.
const BELOW_STACK_BYTES: u64 = 4096;

/// Has each process that leads nothing join its group, where it is not there by its birth. A group that was not the job's is
/// the restarter's now.
pub fn join(processes: &mut [HalfBuilt], job: &JobImage) -> Result<()> {
    let has_gone = |group: i32| job.lost_leaders.iter().any(|leader| leader.pid == group);
    let leads_session = |group: i32| job.lost_leaders.iter().any(|it| (it.pid, it.session) == (group, group));
    // Only those that are born there keep the group of a session whose leader has gone: before one of them leaves it, the others
    // join.
    for is_first in [true, false] {
        for (process, image) in processes.iter_mut().zip(&job.processes) {
            let group = image.family.group;
            if image.family.role(image.pid) != Role::Member || leads_session(group) != is_first {
                continue;
            }
            let is_the_jobs = has_gone(group) || is_led(job, group);
            let group = if is_the_jobs { group } else { getpgrp().as_raw() };
            if group_of(image)? != group && !join_one(process, group)? {
                if !has_gone(group) {
                    let purpose = format_args!("join process group {group}");
                    return Err(process.refused(SETPGID, purpose, Errno::EPERM));
                }
                join_behind_leader(process, group)?;
            }
        }
    }
    Ok(())
}

/// Whether a process of the job leads the group, or one that has ended and has not been waited for.
fn is_led(job: &JobImage, group: i32) -> bool {
    let mut ended = job.processes.iter().flat_map(|process| &process.family.ended_children);
    job.processes.iter().any(|process| process.pid == group) || ended.any(|ended| ended.pid == group)
}

fn group_of(image: &ProcessImage) -> Result<i32> {
    getpgid(Some(Pid::from_raw(image.pid)))
        .map(Pid::as_raw)
        .map_err(|source| Error::io("ask for the process group of", format!("process {}", image.pid), source))
}

/// Whether there is such a group to join.
fn join_one(process: &mut HalfBuilt, group: i32) -> Result<bool> {
    match process.try_call(0, SETPGID, &[0, group as u64])? {
        Ok(_) => Ok(true),
        Err(Errno::EPERM | Errno::ESRCH) => Ok(false),
        Err(errno) => Err(process.refused(SETPGID, format_args!("join process group {group}"), errno)),
    }
}

/// Joins a group that a child leads which is made for that and ends.
fn join_behind_leader(process: &mut HalfBuilt, group: i32) -> Result<()> {
    let leads = format_args!("lead process group {group}");
    // It does not exist for longer than this takes, and sends no signal at its end.
    let site = process.site()?;
    let at = (site.registers.0.rsp - BELOW_STACK_BYTES) & !63;
    let wanted = at + size_of::<CloneArguments>() as u64;
    let mut bytes = CloneArguments { set_tid: wanted, set_tid_size: 1, ..CloneArguments::default() }.to_bytes();
    bytes.extend(group.to_ne_bytes());
    write_memory(process.pid(), at, &bytes)?;
    let cloned = process.try_clone(&[at, size_of::<CloneArguments>() as u64])?;
    let leader = cloned.map_err(|errno| clone_refused(group, errno))?;
    let joined = process
        .call(0, SETPGID, &[group as u64, group as u64], leads)
        .and_then(|_| process.call(0, SETPGID, &[0, group as u64], format_args!("join process group {group}")));
    if let Err(error) = kill(Pid::from_raw(leader.tid()), Signal::SIGKILL) {
        log::debug!("ending the leader of process group {group}: {error}");
    }
    wait_until_gone(leader.tid())?;
    process.call(0, WAIT4, &[group as u64, 0, libc::__WALL as u64, 0], leads)?;
    joined.map(drop)
}
