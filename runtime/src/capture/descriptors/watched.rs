//! Finding a path that leads to an inode.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::stat::{major, minor};

use super::entry::{Entry, refused, unsettled};
use crate::descriptor::made;
use crate::error::{Error, Result};
use crate::proc::fdinfo::FdInfo;
use crate::proc::{mounts, task};
use crate::unread_bytes::unread_bytes;

/// Bytes of the longest handle (MAX_HANDLE_SZ).
const HANDLE_BYTES: usize = 128;
/// Wants what tells inodes apart, and not what opens them (`AT_HANDLE_FID`).
const AT_HANDLE_FID: i32 = 0x200;
/// So many directory entries are looked at in search of one inode: some 20 ms.
const ENTRIES_MAX: usize = 20_000;
/// So far below a directory of the job.
const DEPTH_MAX: u32 = 4;

/// `struct file_handle`.
#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    handle: [u8; HANDLE_BYTES],
}

/// An inode as fdinfo shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inode {
    /// Its number.
    pub number: u64,
    /// The device of its file system: major, minor.
    pub device: (u64, u64),
    /// What its file system knows it by: type and bytes.
    pub handle: Option<(i32, Vec<u8>)>,
}

impl Inode {
    /// The one that a line of fdinfo names, if it names one.
    pub fn of(words: &Words<'_>) -> Option<Inode> {
        let bytes = words.text("f_handle").and_then(|digits| {
            let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
            pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect::<Option<Vec<u8>>>()
        });
        let handle = words.hex("fhandle-type").zip(bytes).map(|(kind, bytes)| (kind as i32, bytes));
        Some(Inode { number: words.hex("ino")?, device: words.device()?, handle })
    }
}

/// The words of a line of fdinfo, each a name and a value, hexadecimal where it is a number.
pub struct Words<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Words<'a> {
    /// Those of a line.
    pub fn of(line: &'a str) -> Words<'a> {
        Words(line.split_whitespace().filter_map(|word| word.split_once(':')).collect())
    }

    /// The value of this name.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(found, _)| *found == name).map(|(_, value)| *value)
    }

    /// The same as a number.
    pub fn hex(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.text(name)?, 16).ok()
    }

    /// The device of a file system: major, minor.
    pub fn device(&self) -> Option<(u64, u64)> {
        self.hex("sdev").map(|device| (device >> 20, device & 0xf_ffff))
    }
}

/// Refuses an instance with unread events: they can be read once only, and nobody can put them back.
pub fn refuse_unread_events(entry: Entry<'_>) -> Result<()> {
    let info = entry.info;
    let queued = unread_bytes(entry.fetch()?.as_fd());
    if queued.map_err(|source| Error::io("look for events in", info.shown(), source))? != 0 {
        return Err(unsettled(info, "events are queued in it that nobody has read yet", "read them, or try again"));
    }
    Ok(())
}

/// Refuses an instance that watches what no path is known of.
pub fn without_path(info: &FdInfo, what: &str) -> Error {
    let why = format!("the path of {what} cannot be found");
    refused(info, &why, "remove the watch, or run ckpt with CAP_DAC_READ_SEARCH, which may open it by its handle")
}

/// Where a job works: directories in which its files are looked for.
#[derive(Debug, Default)]
pub struct Places(Vec<PathBuf>);

impl Places {
    /// Those of the processes and descriptors `entries`.
    pub fn of(pids: &[i32], entries: &[Entry<'_>]) -> Places {
        let mut places = Places::default();
        let link = |pid: i32, name: &str| task::link(pid, name).ok();
        for &pid in pids {
            link(pid, "cwd").into_iter().for_each(|path| places.add(&path, true));
        }
        for info in entries.iter().map(|entry| entry.info).filter(|info| info.target.starts_with(b"/")) {
            places.add(&info.target, info.metadata.mode & libc::S_IFMT == libc::S_IFDIR);
        }
        for &pid in pids {
            link(pid, "exe").into_iter().for_each(|path| places.add(&path, false));
        }
        for path in ["/", "/tmp", "/etc", "/proc", "/sys", "/dev"] {
            places.add(path.as_bytes(), true);
        }
        places
    }

    fn add(&mut self, path: &[u8], is_directory: bool) {
        let path = Path::new(OsStr::from_bytes(path));
        let directory = if is_directory { Some(path) } else { path.parent() };
        if let Some(directory) = directory.filter(|directory| !self.0.iter().any(|known| known == directory)) {
            self.0.push(directory.to_owned());
        }
    }

    /// A path that leads to `inode`, if one is found.
    pub fn path_of(&mut self, inode: &Inode) -> Option<Vec<u8>> {
        let found = by_handle(inode).or_else(|| self.0.iter().find(|place| leads_to(place, inode)).cloned());
        let found = found.or_else(|| self.search(inode))?;
        // What is watched beside it is probably near.
        let near = if found.is_dir() { Some(found.as_path()) } else { found.parent() };
        if let Some(near) = near.filter(|near| !self.0.iter().any(|known| known == near)) {
            self.0.insert(0, near.to_owned());
        }
        Some(found.into_os_string().into_vec())
    }

    /// Looks in all places and what is below them.
    fn search(&self, inode: &Inode) -> Option<PathBuf> {
        let mut seen = 0;
        let mut waiting: VecDeque<(PathBuf, u32)> = self.0.iter().map(|place| (place.clone(), 0)).collect();
        while let Some((directory, depth)) = waiting.pop_front() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                seen += 1;
                if seen > ENTRIES_MAX {
                    return None;
                }
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                // In an overlay of several file systems, the entries of directories have other numbers than these.
                if (is_directory || entry.ino() == inode.number) && leads_to(&entry.path(), inode) {
                    return Some(entry.path());
                }
                if depth < DEPTH_MAX && is_directory {
                    waiting.push_back((entry.path(), depth + 1));
                }
            }
        }
        None
    }
}

/// Has the kernel open the inode by its handle, in each file system that it could be in.
fn by_handle(inode: &Inode) -> Option<PathBuf> {
    let (kind, bytes) = inode.handle.as_ref().filter(|(_, bytes)| bytes.len() <= HANDLE_BYTES)?;
    let mut handle = FileHandle { bytes: bytes.len() as u32, kind: *kind, handle: [0; HANDLE_BYTES] };
    handle.handle[..bytes.len()].copy_from_slice(bytes);
    let there = mounts::all().into_iter().filter(|mount| mount.device == inode.device);
    there.filter_map(|mount| fs::File::open(mount.point).ok()).find_map(|mount| {
        // SAFETY: the call reads one file_handle with `bytes` bytes.
        let opened = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                mount.as_raw_fd(),
                &raw const handle,
                libc::O_PATH | libc::O_CLOEXEC,
            )
        };
        let opened = made(opened).ok()?;
        let path = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).ok()?;
        leads_to(&path, inode).then_some(path)
    })
}

/// Whether `path` leads to `inode`: by its handle where its file system has such, else by number and device.
fn leads_to(path: &Path, inode: &Inode) -> bool {
    let Ok(there) = fs::symlink_metadata(path) else { return false };
    if there.ino() != inode.number {
        return false;
    }
    match (handle_of(path), &inode.handle) {
        (Some(found), Some(wanted)) => found == *wanted,
        _ => (major(there.dev()), minor(there.dev())) == inode.device,
    }
}

/// The handle, or where nothing can be opened by one, as in an overlay, what only tells inodes apart (Linux 6.6).
fn handle_of(path: &Path) -> Option<(i32, Vec<u8>)> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    [0, AT_HANDLE_FID].into_iter().find_map(|flags| named_handle(&path, flags))
}

fn named_handle(path: &CStr, flags: i32) -> Option<(i32, Vec<u8>)> {
    let mut handle = FileHandle { bytes: HANDLE_BYTES as u32, kind: 0, handle: [0; HANDLE_BYTES] };
    let mut mount = 0i32;
    // SAFETY: `path` ends with a zero; the call writes one file_handle of the length that it says, and one int.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            &raw mut handle,
            &raw mut mount,
            flags,
        )
    };
    Errno::result(result).ok()?;
    Some((handle.kind, handle.handle.get(..handle.bytes as usize)?.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_found_near_where_the_job_works_and_no_other_is_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), "x").unwrap();
        let metadata = fs::metadata(deep.join("file")).unwrap();
        let device = (major(metadata.dev()), minor(metadata.dev()));
        let inode = Inode { number: metadata.ino(), device, handle: handle_of(&deep.join("file")) };
        let mut places = Places(vec![dir.path().to_owned()]);
        assert_eq!(places.search(&inode), Some(deep.join("file")));
        assert_eq!(places.path_of(&inode), Some(deep.join("file").into_os_string().into_vec()));
        let other = Inode { handle: Some((1, vec![0; 8])), ..inode };
        assert_eq!(places.search(&other), None);
    }
}
