//! inotify instances: what they watch, by the paths that lead there.
//!
//! The kernel tells the inode of each watch, not its path. Who may open files by their handles is led there by the kernel;
//! everybody else has to look for it: in and near the directories that the job works in.

use super::entry::{Entry, refused};
use super::watched::{Inode, Places, Words, refuse_unread_events, without_path};
use crate::error::Result;
use crate::image::{FileKind, Watch};
use crate::proc::fdinfo::FdInfo;

/// Beyond this so many watches would have to be made and removed first that a restart took seconds.
const NUMBER_MAX: i32 = 1 << 20;

/// An inotify instance; `places` is where to look for what it watches.
pub fn kind(entry: Entry<'_>, places: &mut Places) -> Result<FileKind> {
    let info = entry.info;
    refuse_unread_events(entry)?;
    let mut watches = Vec::new();
    for (_, line) in info.fields.iter().filter(|(name, _)| name == "inotify wd") {
        watches.push(watch(info, line, places)?);
    }
    watches.sort_by_key(|watch| watch.number);
    Ok(FileKind::Inotify { watches })
}

/// The watch of the line `inotify wd:LINE` of fdinfo.
fn watch(info: &FdInfo, line: &str, places: &mut Places) -> Result<Watch> {
    let unreadable = || refused(info, "what it watches cannot be read", "close it before the checkpoint");
    let (number, mask, inode) = parse(line).ok_or_else(unreadable)?;
    if number > NUMBER_MAX {
        let why = format!("it has given out {number} numbers for watches");
        return Err(refused(info, &why, "open a new one now and then"));
    }
    let what = || format!("inode {} that it watches (number {number})", inode.number);
    let path = places.path_of(&inode).ok_or_else(|| without_path(info, &what()))?;
    Ok(Watch { number, mask, path })
}

/// Parses `3 ino:9e sdev:fe00000 mask:fff ignored_mask:0 fhandle-bytes:8 fhandle-type:1 f_handle:12409900649184e1`; all numbers are
/// hexadecimal.
fn parse(line: &str) -> Option<(i32, u32, Inode)> {
    let (number, rest) = line.split_once(' ')?;
    let words = Words::of(rest);
    Some((i32::from_str_radix(number, 16).ok()?, words.hex("mask")? as u32, Inode::of(&words)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_is_read_with_its_handle_or_without() {
        let line = "1c ino:9e sdev:fe00001 mask:84000300 ignored_mask:0 fhandle-bytes:2 fhandle-type:1 f_handle:12ff";
        let inode = Inode { number: 0x9e, device: (254, 1), handle: Some((1, vec![0x12, 0xff])) };
        assert_eq!(parse(line), Some((28, 0x8400_0300, inode.clone())));
        let without = line.split(" fhandle").next().unwrap();
        assert_eq!(parse(without), Some((28, 0x8400_0300, Inode { handle: None, ..inode })));
        assert_eq!(parse("x ino:1"), None);
    }
}
