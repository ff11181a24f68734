//! fanotify groups: what they mark, by paths that lead there.
//!
//! A group that is asked for its leave (`FAN_OPEN_PERM` and the like) is refused: whoever opens a file waits for it, and so would the
//! agent and a restart, for a program that does not run.

use std::os::fd::AsFd;

use super::watched::{Inode, Places, Words, mount_point};
use super::{Entry, refused, unsettled};
use crate::error::{Error, Result};
use crate::image::{Fanotify, FileKind, Mark, Reach};
use crate::proc::fdinfo::FdInfo;
use crate::unread_bytes::unread_bytes;

/// What a descriptor of a group leads to.
pub const NAME: &[u8] = b"anon_inode:[fanotify]";
/// `FAN_OPEN_PERM`, `FAN_ACCESS_PERM`, `FAN_OPEN_EXEC_PERM`, `FAN_PRE_ACCESS`.
const OF_LEAVE: u64 = 0x1f_0000;

/// A fanotify group; `places` is where to look for what it marks.
pub fn kind(entry: Entry<'_>, places: &mut Places) -> Result<FileKind> {
    let info = entry.info;
    let queued = unread_bytes(entry.fetch()?.as_fd());
    if queued.map_err(|source| Error::io("look for events in", info.shown(), source))? != 0 {
        return Err(unsettled(info, "events are queued in it that nobody has read yet", "read them, or try again"));
    }
    let mut group = Fanotify { flags: 0, event_flags: 0, marks: Vec::new() };
    for (name, line) in info.fields.iter().filter(|(name, _)| name.starts_with("fanotify ")) {
        let words = Words::of(name.trim_start_matches("fanotify "), line);
        match name.as_str() {
            "fanotify flags" => {
                let flags = words.hex("flags").zip(words.hex("event-flags"));
                (group.flags, group.event_flags) =
                    flags.map(|(own, of_events)| (own as u32, of_events as u32)).ok_or_else(|| unreadable(info))?;
            }
            _ => group.marks.push(mark(info, &words, places)?),
        }
    }
    Ok(FileKind::Fanotify(group))
}

fn unreadable(info: &FdInfo) -> Error {
    refused(info, "what it marks cannot be read", "close it before the checkpoint")
}

fn mark(info: &FdInfo, words: &Words<'_>, places: &mut Places) -> Result<Mark> {
    let number = |name| words.hex(name).ok_or_else(|| unreadable(info));
    let (told, ignored) = (number("mask")?, number("ignored_mask")?);
    if told & OF_LEAVE != 0 {
        return Err(refused(info, "it is asked for its leave to open files", "close it before the checkpoint"));
    }
    let (reach, path, what) = if let Some(id) = words.hex("mnt_id") {
        (Reach::Mount, mount_point(|mount, _| mount == id), format!("mount {id}"))
    } else if let Some(inode) = Inode::of(words) {
        (Reach::Inode, places.path_of(&inode), format!("inode {}", inode.number))
    } else {
        let device = number("sdev")?;
        let is_there = |_, of: (u64, u64)| of == (device >> 20, device & 0xf_ffff);
        (Reach::FileSystem, mount_point(is_there), format!("the file system of device {device:#x}"))
    };
    let path = path.ok_or_else(|| {
        let why = format!("the path of {what} that it marks cannot be found");
        refused(info, &why, "remove the mark, or run ckpt with CAP_DAC_READ_SEARCH, which may open it by its handle")
    })?;
    Ok(Mark { reach, flags: number("mflags")? as u32, told, ignored, path })
}
