//! Making the namespaces, and being the first process in them.

use std::fs;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

use super::forbidden::refused;
use crate::capabilities::{self, CAP_SYS_ADMIN, OwnCapabilities};
use crate::error::{Error, Result};
use crate::proc::task;

/// Which namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// A user namespace too: whoever may not make the others by himself makes them in one of those.
    pub user: bool,
}

impl Kind {
    /// What this process needs.
    pub fn for_this_process() -> Result<Kind> {
        let capabilities = task::capabilities(std::process::id() as i32)?;
        Ok(Kind { user: capabilities.effective & (1 << CAP_SYS_ADMIN) == 0 })
    }
}

/// Makes the namespaces. This process enters the new mount and user namespace, and the pid namespace is that of its
/// future children: the first of them has to call [`become_first_process`].
///
/// User and group keep their numbers. Supplementary groups keep their effect, but have no numbers inside.
///
/// # Errors
/// What forbids it, by its name. This process must have one thread.
pub fn make(kind: Kind) -> Result<()> {
    let user = if kind.user { CloneFlags::CLONE_NEWUSER } else { CloneFlags::empty() };
    let (uid, gid) = (geteuid(), getegid());
    unshare(user | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS)
        .map_err(|errno| refused("unshare", errno, kind.user))?;
    if kind.user {
        // In this order: whoever has not given up setgroups(2) may not map a group.
        for (file, text) in [
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("{uid} {uid} 1")),
            ("gid_map", format!("{gid} {gid} 1")),
        ] {
            let path = format!("/proc/self/{file}");
            fs::write(&path, text).map_err(|source| match source.raw_os_error() {
                Some(errno @ (libc::EPERM | libc::EACCES)) => {
                    refused(&format!("write {path}"), Errno::from_raw(errno), true)
                }
                _ => Error::io("write", path, source),
            })?;
        }
    }
    Ok(())
}

/// Gives the new mount namespace a /proc of the new pid namespace. What is mounted outside later is still seen where it
/// is shared; nothing that is mounted here is seen outside.
pub fn become_first_process(kind: Kind) -> Result<()> {
    const NOTHING: Option<&str> = None;
    let keep_to_ourselves = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    mount(NOTHING, "/", NOTHING, keep_to_ourselves, NOTHING)
        .map_err(|errno| refused("mount --make-rslave /", errno, kind.user))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, NOTHING).map_err(|errno| refused("mount /proc", errno, kind.user))
}

/// Has the program that this process executes next keep the capabilities in the new user namespace, which an ordinary user
/// would lose.
pub fn keep_capabilities_over_exec() -> Result<()> {
    let keep = || {
        let mut own = OwnCapabilities::read()?;
        own.inherit_permitted();
        own.apply()?;
        let permitted = |bit: &u32| own.permitted() & 1 << bit != 0;
        (0..u64::BITS).filter(permitted).try_for_each(capabilities::raise_ambient)
    };
    keep().map_err(|source| Error::io("keep the capabilities of", "the first process of the pid namespace", source))
}
