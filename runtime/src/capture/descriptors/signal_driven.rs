//! Descriptors that signal somebody when they become ready (O_ASYNC).

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;

use super::entry::Entry;
use crate::error::{Error, Result};
use crate::image::SignalDriven;

/// Of `fcntl(2)`; the libc crate does not have them for this platform.
const F_GETSIG: i32 = 11;
const F_GETOWN_EX: i32 = 16;

/// `struct f_owner_ex`.
#[derive(Default)]
#[repr(C)]
struct Owner {
    kind: i32,
    id: i32,
}

/// Whom the description behind `entry`, which is file `file` of the job, signals; none if it does not.
pub fn capture(entry: Entry<'_>, file: u32) -> Result<Option<SignalDriven>> {
    if entry.info.flags & libc::O_ASYNC == 0 {
        return Ok(None);
    }
    let handle = entry.fetch()?;
    let (owner, signal) =
        ask(&handle).map_err(|source| Error::io("ask for the owner of", entry.info.shown(), source))?;
    Ok(Some(SignalDriven { file, owner_kind: owner.kind, owner: owner.id, signal }))
}

fn ask(handle: &OwnedFd) -> std::result::Result<(Owner, i32), Errno> {
    let mut owner = Owner::default();
    // SAFETY: F_GETOWN_EX writes one f_owner_ex to `owner`.
    Errno::result(unsafe { libc::fcntl(handle.as_raw_fd(), F_GETOWN_EX, &raw mut owner) })?;
    // SAFETY: F_GETSIG takes no argument.
    let signal = Errno::result(unsafe { libc::fcntl(handle.as_raw_fd(), F_GETSIG) })?;
    Ok((owner, signal))
}
