//! Looking at files with the rights of the process that names them: the agent of root has more than it may lend.

use std::io;

use nix::errno::Errno;
use nix::unistd::{geteuid, setfsgid, setfsuid};

use crate::error::Result;
use crate::proc::task;

/// Leaves a file-system id as it is: the call only tells it.
const SAME: u32 = u32::MAX;

/// The ids that the file system looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

impl Rights {
    /// Those of process `pid`.
    ///
    /// # Errors
    /// When it is gone.
    pub fn of(pid: i32) -> Result<Rights> {
        let status = task::text(pid, "status")?;
        let ids = |name| {
            let ids = task::status_value(&status, name).unwrap_or("").split_whitespace();
            ids.flat_map(str::parse).collect::<Vec<u32>>()
        };
        // A process that ends while we read has none: nobody's.
        let last = |ids: Vec<u32>| ids.get(3).copied().unwrap_or(u32::MAX - 1);
        Ok(Rights { user: last(ids("Uid")), group: last(ids("Gid")), groups: ids("Groups") })
    }

    /// Does `work` in this thread with these rights. Only root has others than its own to lend; capabilities to look into
    /// everything go with root's file-system user, and come back with it.
    ///
    /// # Errors
    /// What `work` fails with, or if they cannot be taken on.
    pub fn act<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if !geteuid().is_root() || self.user == 0 {
            return work();
        }
        let own = Rights::of(thread_id()).map_err(io::Error::other)?;
        set_groups(&self.groups)?;
        let _back = Back(own);
        setfsgid(self.group.into());
        setfsuid(self.user.into());
        if setfsuid(SAME.into()) != self.user.into() || setfsgid(SAME.into()) != self.group.into() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        work()
    }
}

/// Gives a thread its own rights back.
struct Back(Rights);

impl Drop for Back {
    fn drop(&mut self) {
        let Rights { user, group, groups } = &self.0;
        setfsuid((*user).into());
        setfsgid((*group).into());
        if set_groups(groups).is_err() || setfsuid(SAME.into()) != (*user).into() {
            // What comes next would be done as another user.
            std::process::abort();
        }
    }
}

fn thread_id() -> i32 {
    nix::unistd::gettid().as_raw()
}

/// Sets the supplementary groups of this thread alone: the C library's function sets those of all threads.
fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the call reads so many ids from `groups`.
    let set = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    Errno::result(set).map(drop).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_root_alone_may_read_is_not_read_with_another_user_s_rights() {
        if !geteuid().is_root() {
            println!("SKIPPED: taking on another user's rights needs root");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let secret = directory.path().join("secret");
        fs::write(&secret, "s").unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        let stranger = Rights { user: 65534, group: 65534, groups: vec![65534] };
        let own = Rights::of(thread_id()).unwrap();
        let refused = stranger.act(|| fs::read(&secret)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(stranger.act(|| Rights::of(thread_id()).map_err(io::Error::other)).unwrap(), stranger);
        assert_eq!(Rights::of(thread_id()).unwrap(), own);
        assert_eq!(fs::read(&secret).unwrap(), b"s");
    }
}
