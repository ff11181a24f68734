//! fanotify groups: what they mark, by paths that lead there.
//!
//! A group that is asked for its leave (`FAN_OPEN_PERM` and the like) is refused: whoever opens a file waits for it, and so would the
//! agent and a restart, for a program that does not run.

use std::os::unix::ffi::OsStringExt;

use super::entry::{Entry, refused};
use super::watched::{Inode, Places, Words, refuse_unread_events, without_path};
use crate::error::{Error, Result};
use crate::image::{Fanotify, FileKind, Mark, Reach};
use crate::proc::fdinfo::FdInfo;
use crate::proc::mounts::{self, Mount};

/// What a descriptor of a group leads to.
pub const NAME: &[u8] = b"anon_inode:[fanotify]";
/// `FAN_OPEN_PERM`, `FAN_ACCESS_PERM`, `FAN_OPEN_EXEC_PERM`, `FAN_PRE_ACCESS`, and what is still free between them.
const OF_LEAVE: u64 = 0x1f_0000;

/// A fanotify group; `places` is where to look for what it marks.
pub fn kind(entry: Entry<'_>, places: &mut Places) -> Result<FileKind> {
    let info = entry.info;
    refuse_unread_events(entry)?;
    let mut group = Fanotify { flags: 0, event_flags: 0, marks: Vec::new() };
    for (name, rest) in &info.fields {
        let Some(first) = name.strip_prefix("fanotify ") else { continue };
        let line = format!("{first}:{rest}");
        let words = Words::of(&line);
        match words.hex("flags").zip(words.hex("event-flags")) {
            Some((own, of_events)) => (group.flags, group.event_flags) = (own as u32, of_events as u32),
            None => group.marks.push(mark(info, &words, places)?),
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
    let at = |mount: Option<Mount>| mount.map(|mount| mount.point.into_os_string().into_vec());
    let (reach, path, what) = if let Some(id) = words.hex("mnt_id") {
        let mount = mounts::all().into_iter().find(|mount| mount.id == id);
        (Reach::Mount, at(mount), format!("mount {id} that it marks"))
    } else if let Some(inode) = Inode::of(words) {
        (Reach::Inode, places.path_of(&inode), format!("inode {} that it marks", inode.number))
    } else {
        let device = words.device().ok_or_else(|| unreadable(info))?;
        let mount = mounts::all().into_iter().find(|mount| mount.device == device);
        (Reach::FileSystem, at(mount), format!("the file system of device {}:{} that it marks", device.0, device.1))
    };
    let path = path.ok_or_else(|| without_path(info, &what))?;
    Ok(Mark { reach, flags: number("mflags")? as u32, told, ignored, path })
}
