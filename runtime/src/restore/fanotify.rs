//! fanotify groups: made with their marks, by the restarter.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use nix::fcntl::{AT_FDCWD, FcntlArg, OFlag, fcntl};
use nix::sys::fanotify::{EventFFlags, InitFlags, MarkFlags, MaskFlags};

use crate::error::{Error, Result};
use crate::image::{Fanotify, Mark, Reach, path_of};
use crate::unread_bytes::unread_bytes;

/// Flags that a mark keeps.
const KEPT: u32 = libc::FAN_MARK_IGNORE | libc::FAN_MARK_IGNORED_SURV_MODIFY | libc::FAN_MARK_EVICTABLE;

/// A group without marks.
///
/// # Errors
/// Where this user may not have it.
pub fn empty(group: &Fanotify) -> Result<nix::sys::fanotify::Fanotify> {
    let flags = InitFlags::from_bits_retain(group.flags) | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
    let made = nix::sys::fanotify::Fanotify::init(flags, EventFFlags::from_bits_retain(group.event_flags));
    made.map_err(|errno| match errno {
        nix::errno::Errno::EPERM => Error::environment(
            "make a fanotify group as the program has it",
            "it needs CAP_SYS_ADMIN",
            "restart as root, or let the program close it before the checkpoint",
        ),
        errno => Error::io("make", "a fanotify group", errno),
    })
}

/// A group with its marks; `find` opens what one leads to, as a path alone.
///
/// # Errors
/// By name, when it cannot be made.
pub fn make(group: &Fanotify, flags: i32, find: impl Fn(&Path) -> io::Result<File>) -> Result<OwnedFd> {
    let made = empty(group)?;
    for mark in &group.marks {
        let path = path_of(&mark.path);
        let failed = |source: io::Error| Error::io("mark", path, source);
        let found = find(path).map_err(failed)?;
        add(&made, mark, &format!("/proc/self/fd/{}", found.as_raw_fd())).map_err(|errno| failed(errno.into()))?;
    }
    let made = OwnedFd::from(made);
    let status = OFlag::from_bits_truncate(flags & libc::O_NONBLOCK);
    fcntl(&made, FcntlArg::F_SETFL(status)).map_err(|source| Error::io("make", "a fanotify group", source))?;
    Ok(made)
}

/// Reads all events that a group has, and closes the files that come with them.
///
/// # Errors
/// The kernel's.
pub fn forget_events(group: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor, of which it has a copy, leads to a group.
    let reader = unsafe { nix::sys::fanotify::Fanotify::from_owned_fd(group.try_clone()?) };
    while unread_bytes(group.as_fd())? != 0 {
        drop(reader.read_events()?);
    }
    Ok(())
}

fn add(group: &nix::sys::fanotify::Fanotify, mark: &Mark, path: &str) -> nix::Result<()> {
    let reach = match mark.reach {
        Reach::Inode => MarkFlags::empty(),
        Reach::Mount => MarkFlags::FAN_MARK_MOUNT,
        Reach::FileSystem => MarkFlags::FAN_MARK_FILESYSTEM,
    };
    let kept = MarkFlags::from_bits_retain(mark.flags & KEPT);
    let ignoring =
        if mark.flags & libc::FAN_MARK_IGNORE != 0 { MarkFlags::empty() } else { MarkFlags::FAN_MARK_IGNORED_MASK };
    // Of what is told, only whether the kernel may forget it.
    let telling = kept & MarkFlags::from_bits_retain(libc::FAN_MARK_EVICTABLE);
    for (mask, how) in [(mark.told, telling), (mark.ignored, kept | ignoring)] {
        if mask != 0 {
            let flags = MarkFlags::FAN_MARK_ADD | reach | how;
            group.mark(flags, MaskFlags::from_bits_retain(mask), AT_FDCWD, Some(path))?;
        }
    }
    Ok(())
}
