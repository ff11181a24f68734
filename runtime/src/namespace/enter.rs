//! Going to a program in a pid namespace below ours, to work on it from inside.
//!
//! `ckpt` is executed again in there. Nothing else could do it: the pids of all that it looks at, starts and names have to
//! be those of the inside.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{geteuid, setgroups};

use crate::descriptor::pidfd_open;
use crate::error::{Error, Result};
use crate::proc::task;

/// A program in a pid namespace below ours.
#[derive(Debug)]
pub struct Inside {
    outer: i32,
    /// Its pid in there.
    pub pid: i32,
    /// User and group, where the user namespace is another one.
    owner: Option<(u32, u32)>,
    namespaces: CloneFlags,
}

/// Whether process `pid` is in a pid namespace below ours.
pub fn is_below_ours(pid: i32) -> bool {
    task::ids_in_namespaces(pid).is_ok_and(|ids| ids.len() > 1)
}

impl Inside {
    /// Process `pid`, if it is in a namespace as `ckpt restart` makes them: with our own files in it. A container is not:
    /// its names mean something else.
    pub fn of(pid: i32) -> Option<Inside> {
        let ids = task::ids_in_namespaces(pid).ok()?;
        let inner = *ids.last().filter(|_| ids.len() > 1)?;
        let is_ours = |name: &str| {
            let file = format!("ns/{name}");
            Some(task::link(pid, &file).ok()? == task::link(std::process::id() as i32, &file).ok()?)
        };
        let same_file = |path: &Path| {
            let seen_inside = Path::new("/proc").join(pid.to_string()).join("root").join(path.strip_prefix("/").ok()?);
            let (own, inside) = (path.metadata().ok()?, seen_inside.metadata().ok()?);
            Some((own.dev(), own.ino()) == (inside.dev(), inside.ino()))
        };
        if !is_ours("ipc")? || !same_file(&std::env::current_exe().ok()?)? {
            return None;
        }
        let mut namespaces = CloneFlags::CLONE_NEWPID;
        namespaces.set(CloneFlags::CLONE_NEWNS, !is_ours("mnt")?);
        namespaces.set(CloneFlags::CLONE_NEWUSER, !is_ours("user")?);
        let owner = match namespaces.contains(CloneFlags::CLONE_NEWUSER) && geteuid().is_root() {
            true => Some(owner_of(pid)?),
            false => None,
        };
        Some(Inside { outer: pid, pid: inner, owner, namespaces })
    }
}

fn owner_of(pid: i32) -> Option<(u32, u32)> {
    let status = task::text(pid, "status").ok()?;
    let effective = |name| task::status_value(&status, name)?.split_whitespace().nth(1)?.parse().ok();
    Some((effective("Uid")?, effective("Gid")?))
}

/// Executes `ckpt ARGUMENTS` where `program` is, as its user if we are root, and gives the exit code. `None` if we may not
/// enter. This process has entered by half afterwards: all it can do is end.
///
/// This process must have one thread.
pub fn run_inside(program: &Inside, arguments: impl IntoIterator<Item = OsString>) -> Result<Option<u8>> {
    let place = || PathBuf::from(format!("the namespaces of process {}", program.outer));
    let failed = |source: Errno| Error::io("enter", place(), source);
    let executable =
        std::env::current_exe().map_err(|source| Error::io("find the executable", "/proc/self/exe", source))?;
    let handle = pidfd_open(program.outer)?;
    if program.owner.is_some() {
        // In there it is forbidden.
        setgroups(&[]).map_err(failed)?;
    }
    match setns(handle.as_fd(), program.namespaces) {
        Err(Errno::EPERM) => return Ok(None),
        Err(Errno::ESRCH) => return Err(Error::ProgramGone { pid: program.outer }),
        entered => entered.map_err(failed)?,
    }
    let mut command = Command::new(&executable);
    command.args(arguments);
    if let Some((uid, gid)) = program.owner {
        command.uid(uid).gid(gid);
    }
    // SAFETY: between fork and exec a single system call is made.
    unsafe { command.pre_exec(|| set_pdeathsig(Signal::SIGTERM).map_err(std::io::Error::from)) };
    let status = command.status().map_err(|source| Error::io("start ckpt in", place(), source))?;
    Ok(Some(status.code().or(status.signal().map(|signal| 128 + signal)).map_or(1, |code| code as u8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_our_own_namespace_is_nowhere_else() {
        let own = std::process::id() as i32;
        assert!(!is_below_ours(own) && Inside::of(own).is_none());
        assert!(!is_below_ours(i32::MAX), "nor is one that does not exist");
    }
}
