//! Open files: those that a path leads to, and those that none leads to any more.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use ckpt_store::PageListRef;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::stat::{SFlag, fstat, major, minor};
use nix::sys::statfs::{HUGETLBFS_MAGIC, fstatfs};

use super::entry::{Entry, place_of, refused};
use crate::error::{Error, Result};
use crate::image::{FileContent, FileKind, UnlinkedFile};
use crate::proc::DELETED;
use crate::proc::fdinfo::FdInfo;

/// In a second.
const NANOSECONDS: i64 = 1_000_000_000;
/// So many entries of directories are looked through for another name of a file: some milliseconds.
const ENTRIES_MAX: usize = 10_000;
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

/// Whether a descriptor leads to something as a path alone (O_PATH) that is neither a file nor a directory.
pub fn is_named(info: &FdInfo, format: SFlag) -> bool {
    let has_a_path = info.flags & libc::O_PATH != 0 && info.target.starts_with(b"/");
    has_a_path && [SFlag::S_IFLNK, SFlag::S_IFSOCK, SFlag::S_IFIFO, SFlag::S_IFBLK].contains(&format)
}

/// What such a one is.
pub fn named(info: &FdInfo, format: SFlag) -> Result<FileKind> {
    let path = living_path(info)?;
    let target = match format {
        SFlag::S_IFLNK => std::fs::read_link(Path::new(OsStr::from_bytes(&path)))
            .map_err(|source| Error::io("read the symbolic link", info.shown(), source))?
            .into_os_string()
            .into_vec(),
        _ => Vec::new(),
    };
    Ok(FileKind::Named { path, format: format.bits(), target })
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
            let huge_page_bytes = huge_page_bytes(info, &handle, memory_name.is_some())?;
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
            let file = UnlinkedFile { path, memory_seals, huge_page_bytes, mode, content, object: None, times_ns };
            let opened = (entry.owner.pid, info.number);
            all.push(Unlinked { file, target: info.target.clone(), place, opened });
            all.len() - 1
        }
    };
    Ok(FileKind::Unlinked { file: index as u32, offset: info.position })
}

/// Bytes of a page of a file, if it is of huge pages; else 0. Refuses one that is no memory file.
fn huge_page_bytes(info: &FdInfo, handle: &OwnedFd, is_memory: bool) -> Result<u64> {
    let found = fstatfs(handle).map_err(|source| Error::io("examine", info.shown(), source))?;
    match found.filesystem_type() {
        HUGETLBFS_MAGIC if is_memory => Ok(found.block_size().cast_unsigned()),
        HUGETLBFS_MAGIC => {
            let why = "a file of huge pages (hugetlbfs) that was deleted is not captured yet";
            Err(refused(info, why, "use a memory file (memfd_create)"))
        }
        _ => Ok(0),
    }
}

/// The path of a file that can be opened again by it: the one that it was opened by, or another of its names near that.
pub fn living_path(info: &FdInfo) -> Result<Vec<u8>> {
    let place = (info.metadata.device, info.metadata.inode);
    let path = Path::new(OsStr::from_bytes(&info.target));
    if leads_to(path, place) {
        return Ok(info.target.clone());
    }
    let name = info.target.strip_suffix(DELETED).unwrap_or(&info.target);
    if let Some(path) = another_name(Path::new(OsStr::from_bytes(name)), place) {
        return Ok(path.into_os_string().into_vec());
    }
    let why = match name.len() == info.target.len() {
        true => "its path leads nowhere or to another file (one that has been replaced meanwhile)",
        false => "it has been deleted, and would not be found again",
    };
    Err(refused(info, why, "close it before the checkpoint"))
}

fn leads_to(path: &Path, place: (u64, u64)) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == place)
}

/// Another link to the file whose name `was`: where that was, or in a directory beside that one, as a mailbox has them.
fn another_name(was: &Path, place: (u64, u64)) -> Option<PathBuf> {
    let own = was.parent()?;
    let entries = |directory: &Path| std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut beside: Vec<PathBuf> = Vec::new();
    if let Some(above) = own.parent() {
        let others = entries(above).take(ENTRIES_MAX).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        beside.extend(others.map(|entry| entry.path()).filter(|path| path != own));
    }
    let directories = std::iter::once(own.to_owned()).chain(beside);
    let looked_through = directories.flat_map(|directory| entries(&directory)).take(ENTRIES_MAX);
    // The number alone is there without a look at the file.
    let of_that_number = looked_through.filter(|entry| entry.ino() == place.1);
    of_that_number.map(|entry| entry.path()).find(|path| leads_to(path, place))
}
