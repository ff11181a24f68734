//! The owner of a store, whom root becomes to work on it: what another user's store holds is read with no more rights than that user has.

use std::ffi::CString;
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Gid, Uid, User, fork, geteuid, getgrouplist, setgroups, setresgid, setresuid};

use crate::error::{Error, Result, exit_code};

/// Longest message of the process that reads, bytes.
const MESSAGE_BYTES_MAX: u64 = 64 * 1024;

/// A user who owns a store.
pub struct StoreOwner {
    pub user: Uid,
    pub group: Gid,
    pub groups: Vec<Gid>,
    /// Name and home directory, of a user that has an entry.
    pub account: Option<(CString, CString)>,
}

impl StoreOwner {
    /// That of the directory that this was found out about.
    pub fn of(store: &Metadata) -> io::Result<StoreOwner> {
        let user = Uid::from_raw(store.uid());
        let Some(entry) = User::from_uid(user)? else {
            let group = Gid::from_raw(store.gid());
            return Ok(StoreOwner { user, group, groups: vec![group], account: None });
        };
        let name = CString::new(entry.name)?;
        let groups = getgrouplist(&name, entry.gid)?;
        let home = CString::new(entry.dir.into_os_string().into_vec())?;
        Ok(StoreOwner { user, group: entry.gid, groups, account: Some((name, home)) })
    }

    /// Takes on the user and the groups. Without the flag to keep them (PR_SET_KEEPCAPS) all capabilities are gone then.
    pub fn become_user(&self) -> io::Result<()> {
        setgroups(&self.groups)?;
        setresgid(self.group, self.group, self.group)?;
        setresuid(self.user, self.user, self.user)?;
        Ok(())
    }
}

/// Does `read`, which only reads the store at `dir` and gives an exit code: as the owner of that, in a process for it, if we are root and it
/// is the directory of another user.
///
/// # Errors
/// Those of `read`, and the kernel's.
pub fn read_as_owner(dir: &Path, read: impl FnOnce() -> Result<u8>) -> Result<u8> {
    let found = match std::fs::metadata(dir) {
        Ok(found) if geteuid().is_root() && found.is_dir() && found.uid() != 0 => found,
        _ => return read(),
    };
    let failed = |source: io::Error| Error::io("read as its owner", dir, source);
    let owner = StoreOwner::of(&found).map_err(failed)?;
    let (said, say) = io::pipe().map_err(failed)?;
    // SAFETY: this process has one thread: the child may do what it could.
    match unsafe { fork() }.map_err(|errno| failed(errno.into()))? {
        ForkResult::Child => {
            drop(said);
            let ready = set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from).and_then(|()| owner.become_user());
            let outcome = ready.map_err(failed).and_then(|()| read());
            let code = outcome.unwrap_or_else(|error| {
                let _ = (&say).write_all(error.to_string().as_bytes());
                error.exit_code()
            });
            log::logger().flush();
            // SAFETY: ends this process; the other one has its own copy of what would be cleaned up.
            unsafe { libc::_exit(i32::from(code)) }
        }
        ForkResult::Parent { child } => {
            drop(say);
            let mut message = String::new();
            File::from(std::os::fd::OwnedFd::from(said))
                .take(MESSAGE_BYTES_MAX)
                .read_to_string(&mut message)
                .map_err(failed)?;
            let status = loop {
                match waitpid(child, None) {
                    Err(Errno::EINTR) => {}
                    status => break status.map_err(|errno| failed(errno.into()))?,
                }
            };
            let exit_code = match status {
                WaitStatus::Exited(_, code) => code as u8,
                _ => exit_code::FAILED,
            };
            match message.is_empty() {
                true => Ok(exit_code),
                false => Err(Error::Inside { message, exit_code }),
            }
        }
    }
}
