//! POSIX message queues.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::sys::stat::fstat;
use nix::sys::statfs::{FsType, fstatfs};

use super::entry::{Entry, refused, unsettled};
use super::queued_messages::{Failure, queued};
use crate::error::{Error, Result};
use crate::image::{FileKind, MessageQueue};
use crate::mqueue;
use crate::proc::DELETED;
use crate::proc::fdinfo::FdInfo;

/// Of the file system of message queues.
const MQUEUE_MAGIC: FsType = FsType(0x1980_0202);
/// Why a queue may be refused.
const MESSAGES_QUEUED: &str = "messages are in it that cannot be taken out and put back";

/// What a descriptor that leads to a regular file is, if that is a message queue. `all` are those met so far.
pub fn kind(entry: Entry<'_>, all: &mut Vec<MessageQueue>) -> Result<Option<FileKind>> {
    let info = entry.info;
    if !may_be_one(info) {
        return Ok(None);
    }
    let handle = entry.fetch()?;
    let failed = |source| Error::io("examine", info.shown(), source);
    if fstatfs(&handle).map_err(failed)?.filesystem_type() != MQUEUE_MAGIC {
        return Ok(None);
    }
    let attributes = mqueue::attributes(handle.as_fd()).map_err(failed)?;
    if is_notifying(&handle, info)? {
        let why = "a process wants to be told when a message comes (mq_notify), which is not captured yet";
        return Err(refused(info, why, "let it withdraw that before the checkpoint"));
    }
    let inode = info.metadata.inode;
    let known = all.iter().position(|queue| queue.inode == inode);
    let queue = match known {
        Some(index) => index,
        None => {
            let about = fstat(&handle).map_err(failed)?;
            let queued = queued(&handle, &attributes).map_err(|failure| match failure {
                Failure::Kept(errno) => {
                    unsettled(info, &format!("{MESSAGES_QUEUED} ({errno})"), "receive them, or try again")
                }
                Failure::Lost(errno) => Error::io("put back the messages in", info.shown(), errno),
            })?;
            all.push(MessageQueue {
                name: name(info, inode)?,
                mode: about.st_mode & 0o7777,
                uid: about.st_uid,
                gid: about.st_gid,
                messages: attributes.max_messages,
                message_bytes: attributes.message_bytes,
                inode,
                queued,
            });
            all.len() - 1
        }
    };
    Ok(Some(FileKind::MessageQueue { queue: queue as u32 }))
}

/// Queues have paths that lead nowhere, or names that have been removed, but where their file system is mounted.
fn may_be_one(info: &FdInfo) -> bool {
    let is_top_level = info.target.starts_with(b"/") && !info.target[1..].contains(&b'/');
    is_top_level || info.target.starts_with(b"/dev/mqueue/")
}

/// The name by which it is found again; none if that has been removed.
fn name(info: &FdInfo, inode: u64) -> Result<Vec<u8>> {
    if info.metadata.links == 0 {
        return Ok(Vec::new());
    }
    let name = info.target.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let opened = CString::new(name).ok().and_then(|name| {
        let open = |access| mqueue::open(&name, access | libc::O_NONBLOCK, None);
        open(libc::O_RDONLY).or_else(|_| open(libc::O_WRONLY)).ok()
    });
    let leads_there = opened.and_then(|opened| fstat(&opened).ok()).is_some_and(|there| there.st_ino == inode);
    if leads_there && !name.ends_with(DELETED) {
        return Ok(name.to_vec());
    }
    Err(refused(info, "its name leads to no message queue, or to another one", "close it before the checkpoint"))
}

/// Whether a process waits to be told of the next message.
fn is_notifying(handle: &OwnedFd, info: &FdInfo) -> Result<bool> {
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let mut text = String::new();
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let read = opened.and_then(|mut queue| queue.read_to_string(&mut text));
    read.map_err(|source| Error::io("read the state of", info.shown(), source))?;
    let pid = text.split_whitespace().find_map(|word| word.strip_prefix("NOTIFY_PID:"));
    Ok(pid.is_none_or(|pid| pid != "0"))
}
