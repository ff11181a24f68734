//! Unix sockets: which belong together, and the files they are bound to.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use std::os::fd::AsFd;

use super::diag::UnixSocket;
use super::{Link, Seen, Sockets};
use crate::capture::descriptors::entry::unsettled;
use crate::error::{Error, Result};
use crate::image::{BoundFile, SocketLink};
use crate::net::{self, Address};
use crate::proc::fdinfo::FdInfo;
use crate::proc::task;

/// Where the name of a socket leads.
#[derive(Default)]
pub struct Place {
    /// The file that stands for it, if that is there.
    pub file: Option<BoundFile>,
    /// Where a relative path begins.
    pub directory: Vec<u8>,
}

/// Where the name of a socket leads. A relative path begins where one of the processes `pids` is, if it leads anywhere.
pub fn place(seen: &Seen, known: Option<&UnixSocket>, pids: &[i32]) -> Place {
    let Some(path) = Address(&seen.name).path() else { return Place::default() };
    let path = Path::new(OsStr::from_bytes(path));
    let bound_to = known.and_then(|known| known.file_inode);
    let file_in = |directory: &[u8]| {
        let found = std::fs::symlink_metadata(PathBuf::from(OsStr::from_bytes(directory)).join(path)).ok()?;
        let record = BoundFile { mode: found.mode() & 0o7777, user: found.uid(), group: found.gid() };
        (Some(found.ino() as u32) == bound_to).then_some(record)
    };
    if path.is_absolute() {
        return Place { file: file_in(b"/"), directory: Vec::new() };
    }
    let mut directories = pids.iter().filter_map(|&pid| task::link(pid, "cwd").ok());
    let first = directories.next().unwrap_or_default();
    match std::iter::once(first.clone()).chain(directories).find_map(|it| Some((file_in(&it)?, it))) {
        Some((file, directory)) => Place { file: Some(file), directory },
        None => Place { file: None, directory: first },
    }
}

/// What Unix socket `inode` is connected with.
pub fn link(sockets: &Sockets, inode: u64, info: &FdInfo) -> Result<Link> {
    let (Some(seen), Some(known)) = (sockets.all.get(&inode), sockets.unix.get(&(inode as u32))) else {
        return Err(super::refused(info, "the kernel does not tell what it is connected with", "try again"));
    };
    if let Some(backlog) = known.backlog {
        refuse_unaccepted(known, info)?;
        return Ok(Link::Done(SocketLink::Listening { backlog }));
    }
    let name = seen.peer_name();
    match known.peer {
        // One end of a pair whose other end was closed: nobody else can have sent what lies in it.
        None | Some(0) if seen.kind == libc::SOCK_DGRAM && !seen.unread.is_empty() && !is_named(seen) => {
            Ok(Link::Done(SocketLink::Closed { name, reset: false }))
        }
        None => Ok(Link::Done(SocketLink::None)),
        Some(0) if seen.kind == libc::SOCK_DGRAM => Ok(Link::Done(SocketLink::None)),
        Some(0) => match listener(sockets, inode) {
            Some(Some(listener)) => waiting(seen, listener, info),
            Some(None) => Ok(Link::Done(SocketLink::Outside { name })),
            None => {
                let reset = seen.has(libc::POLLERR);
                Ok(Link::Done(SocketLink::Closed { name, reset }))
            }
        },
        Some(peer) => match sockets.by_half.get(&peer) {
            Some(&peer) => Ok(Link::Peer(peer)),
            None if seen.kind == libc::SOCK_DGRAM && Address(&name).is_named() => {
                Ok(Link::Done(SocketLink::Address(name)))
            }
            None => Ok(Link::Done(SocketLink::Outside { name })),
        },
    }
}

fn is_named(seen: &Seen) -> bool {
    Address(&seen.name).is_named()
}

/// The socket that `inode` waits to be accepted by: one of the job, or another (`Some(None)`).
fn listener(sockets: &Sockets, inode: u64) -> Option<Option<u64>> {
    let listener = sockets.waits_at.get(&(inode as u32))?;
    Some(sockets.by_half.get(listener).copied())
}

/// What has been sent to a socket that nobody has yet accepted nobody can read.
fn waiting(seen: &Seen, listener: u64, info: &FdInfo) -> Result<Link> {
    match net::unsent_bytes(seen.handle.as_fd()) {
        Ok(0) => Ok(Link::Waiting(listener)),
        _ => Err(unaccepted(info)),
    }
}

fn refuse_unaccepted(known: &UnixSocket, info: &FdInfo) -> Result<()> {
    if known.waiting.contains(&0) { Err(unaccepted(info)) } else { Ok(()) }
}

fn unaccepted(info: &FdInfo) -> Error {
    let why = "something was sent to a connection that has not been accepted yet, where nobody can read it";
    unsettled(info, why, "take the checkpoint when it has been accepted")
}
