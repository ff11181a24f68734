//! Open files: those that a path leads to, and those that none leads to any more.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ckpt_store::PageListRef;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::stat::fstat;
use nix::sys::stat::{major, minor};
use nix::sys::statfs::{HUGETLBFS_MAGIC, fstatfs};

use super::{Entry, place_of, refused};
use crate::error::{Error, Result};
use crate::image::{FileContent, FileKind, UnlinkedFile};
use crate::proc::DELETED;
use crate::proc::fdinfo::FdInfo;

/// In a second.
const NANOSECONDS: i64 = 1_000_000_000;
const MEMFD: &[u8] = b"/memfd:";

/// A file that no path leads to, and where it can be read.
#[derive(Debug)]
pub struct Unlinked {
    /// The record, without its content.
    pub file: UnlinkedFile,
    /// Its name as /proc shows it.
    pub target: Vec<u8>,
    /// Device and inode.
    pub place: (u64, u64),
    /// A process, and its descriptor that leads to it.
    pub opened: (i32, i32),
}

/// What a descriptor that leads to a regular file is, deleted or not. `unlinked` are those met so far that no path leads to.
pub fn regular(entry: Entry<'_>, unlinked: &mut Vec<Unlinked>) -> Result<FileKind> {
    let info = entry.info;
    if info.metadata.links == 0 || info.target.starts_with(MEMFD) {
        return without_path(entry, unlinked);
    }
    Ok(FileKind::Regular {
        path: living_path(info)?,
        device: (major(info.metadata.device) as u32, minor(info.metadata.device) as u32),
        inode: info.metadata.inode,
        size: info.metadata.size,
        offset: info.position,
        modified_ns: info.metadata.modified_ns,
    })
}

/// The record of a file that no path leads to, which others may have open as well.
fn without_path(entry: Entry<'_>, all: &mut Vec<Unlinked>) -> Result<FileKind> {
    let info = entry.info;
    let place = place_of(info);
    let known = all.iter().position(|other| other.place == place);
    let index = match known {
        Some(index) => index,
        None => {
            let name = info.target.strip_suffix(DELETED).unwrap_or(&info.target);
            let memory_name = name.strip_prefix(MEMFD);
            let handle = entry.fetch()?;
            refuse_file_system(info, &handle)?;
            let failed = |source| Error::io("examine", info.shown(), source);
            let memory_seals =
                memory_name.map(|_| fcntl(&handle, FcntlArg::F_GET_SEALS)).transpose().map_err(failed)?;
            let content = FileContent { bytes: info.metadata.size, pages: PageListRef::EMPTY };
            let path = memory_name.unwrap_or(name).to_vec();
            let mode = info.metadata.mode & 0o7777;
            let stat = fstat(&handle).map_err(failed)?;
            let times_ns = Some([
                stat.st_atime * NANOSECONDS + stat.st_atime_nsec,
                stat.st_mtime * NANOSECONDS + stat.st_mtime_nsec,
            ]);
            let file = UnlinkedFile { path, memory_seals, mode, content, object: None, times_ns };
            let opened = (entry.owner.pid, info.number);
            all.push(Unlinked { file, target: info.target.clone(), place, opened });
            all.len() - 1
        }
    };
    Ok(FileKind::Unlinked { file: index as u32, offset: info.position })
}

/// Refuses what looks like a file and is none that could be made anew.
fn refuse_file_system(info: &FdInfo, handle: &OwnedFd) -> Result<()> {
    let found = fstatfs(handle).map_err(|source| Error::io("examine", info.shown(), source))?.filesystem_type();
    match found {
        HUGETLBFS_MAGIC => {
            Err(refused(info, "huge pages of hugetlbfs are not captured yet", "use transparent huge pages"))
        }
        _ => Ok(()),
    }
}

/// The path of a file that can be opened again by it.
pub fn living_path(info: &FdInfo) -> Result<Vec<u8>> {
    if info.metadata.links == 0 || info.target.ends_with(DELETED) {
        let why = "it has been deleted, and would not be found again";
        return Err(refused(info, why, "keep it, or close it before the checkpoint"));
    }
    let path = Path::new(OsStr::from_bytes(&info.target));
    let leads_there = std::fs::metadata(path)
        .is_ok_and(|named| named.ino() == info.metadata.inode && named.dev() == info.metadata.device);
    if !leads_there {
        let why = "its path leads nowhere or to another file (one that has been replaced meanwhile)";
        return Err(refused(info, why, "close it before the checkpoint"));
    }
    Ok(info.target.clone())
}
