//! A directory on a local file system.
//!
//! Files are 0600 and directories 0700: a checkpoint holds the whole memory of a program. Nothing is opened through a
//! symbolic link, nothing but regular files is read, and what others could have put there is refused: the directory, its
//! subdirectories and every file must belong to the effective user, or to an owner of the directory whom the caller
//! trusts. Locks are flock(2): they belong to an open file and end with its last descriptor, so a crash releases them.
//! A child that is forked without exec keeps them: do not fork while an attempt is open.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, IoSliceMut, Write},
    num::NonZeroU64,
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::{Backend, ReadFile, Room, WriteFile, file_system};
use crate::{Result, StoreError};

/// A directory whose time of change is younger than this may change again without the time changing.
const STAMP_SETTLES: Duration = Duration::from_millis(100);

/// The back end for a local directory.
#[derive(Debug)]
pub struct Local {
    root: PathBuf,
    /// Who may own what is in it: the effective user, and whoever owns the directory.
    owners: [u32; 2],
}

impl Local {
    /// The directory `root`, which must exist and belong to the effective user (or be trusted).
    pub fn open(root: &Path, trust_owner: bool) -> Result<Self> {
        let io = |operation, source| StoreError::Io { path: root.to_path_buf(), operation, source };
        let found = match fs::metadata(root) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::NotAStore { path: root.to_path_buf(), found: "nothing of that name".into() });
            }
            Err(error) => return Err(io("look at", error)),
        };
        if !found.is_dir() {
            return Err(StoreError::NotAStore { path: root.to_path_buf(), found: "a file, not a directory".into() });
        }
        let root = root.canonicalize().map_err(|error| io("resolve", error))?;
        let user = rustix::process::geteuid().as_raw();
        let opened = Self { root, owners: [user, if trust_owner { found.uid() } else { user }] };
        opened.check_owner(&opened.root, &found)?;
        for dir in crate::files::DIRECTORIES.into_iter().chain([crate::files::KEYS]) {
            opened.check_directory(&opened.root.join(dir))?;
        }
        Ok(opened)
    }

    /// Creates `root`, for its owner alone, where nothing is there yet, and then opens it.
    pub fn create(root: &Path, trust_owner: bool) -> Result<Self> {
        let io = |operation, source| StoreError::Io { path: root.to_path_buf(), operation, source };
        match DirBuilder::new().recursive(true).mode(0o700).create(root) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => {
                let user = rustix::process::geteuid().as_raw();
                return Err(StoreError::CannotCreate { path: root.to_path_buf(), user, source });
            }
        }
        crate::fault::point(crate::fault::DIRECTORY_CREATE);
        let opened = Self::open(root, trust_owner)?;
        file_system::check(&opened.root).map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => StoreError::unsuitable(root, &error),
            _ => io("look at the file system of", error),
        })?;
        if fs::read_dir(&opened.root).map_err(|error| io("list", error))?.next().is_none() {
            // An empty directory that was made with a wider mode: it is about to hold the memory of programs.
            let private = fs::set_permissions(&opened.root, fs::Permissions::from_mode(0o700));
            private.map_err(|error| io("make private", error))?;
        }
        if let Some(parent) = opened.root.parent()
            && let Ok(parent) = File::open(parent)
        {
            // Makes the store's own name durable. Where we may not even look at the parent, somebody else made it.
            parent.sync_all().map_err(|error| io("fsync the parent of", error))?;
        }
        Ok(opened)
    }

    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.root.clone() } else { self.root.join(name) }
    }

    fn check_owner(&self, path: &Path, found: &fs::Metadata) -> Result<()> {
        if self.owners.contains(&found.uid()) {
            return Ok(());
        }
        Err(StoreError::ForeignOwner { path: path.to_path_buf(), owner: found.uid(), user: self.owners[0] })
    }

    /// A part of the store that exists is a directory itself, not a link to one, and ours.
    fn check_directory(&self, path: &Path) -> Result<()> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_dir() => self.check_owner(path, &found),
            Ok(_) => Err(StoreError::NotAStore { path: path.to_path_buf(), found: "not a directory".into() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(StoreError::Io { path: path.to_path_buf(), operation: "look at", source }),
        }
    }

    /// Opens a file that may be there already: a regular one, and ours. The error of another owner goes inside that of
    /// the system, where [`crate::files`] finds it.
    fn open_ours(&self, options: &OpenOptions, name: &str) -> io::Result<File> {
        let path = self.path(name);
        let file = options.open(&path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        self.check_owner(&path, &found).map_err(io::Error::other)?;
        Ok(file)
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    // NONBLOCK: a FIFO in place of a file must not hang us; regular files ignore it.
    options.mode(0o600).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
    options
}

impl Backend for Local {
    fn root(&self) -> &Path {
        &self.root
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn WriteFile>> {
        let file = options().read(true).append(true).create_new(true).open(self.path(name))?;
        Ok(Box::new(Appending { file, bytes: 0, direct: Direct::Off }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn ReadFile>> {
        Ok(Box::new(Reading(self.open_ours(options().read(true), name)?)))
    }

    fn create_dir(&self, name: &str) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // A directory made by a umask that lets others in would show them the program's memory.
                fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o700))
            }
            made => made,
        }
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.path(dir))? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        // As a directory: to open a FIFO in its place would wait for a writer.
        OpenOptions::new().read(true).custom_flags(OFlags::DIRECTORY.bits() as i32).open(self.path(dir))?.sync_all()
    }

    fn stamp(&self, dir: &str) -> io::Result<Option<u64>> {
        let changed = fs::metadata(self.path(dir))?.modified()?;
        let settled = SystemTime::now().duration_since(changed).is_ok_and(|age| age > STAMP_SETTLES);
        let since_1970 = changed.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(settled.then_some(since_1970.as_nanos() as u64))
    }

    fn try_lock(&self, name: &str) -> io::Result<Option<Box<dyn Send + Sync>>> {
        file_system::check(&self.root)?;
        let file = self.open_ours(options().read(true).write(true).create(true).truncate(false), name)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(file_system::lock_error(&self.root, error)),
        }
    }

    fn room(&self) -> io::Result<Option<Room>> {
        let found = rustix::fs::statvfs(&self.root)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Some(Room { free_bytes: bytes(found.f_bavail), total_bytes: bytes(found.f_blocks) }))
    }

    fn is_held(&self, name: &str) -> io::Result<bool> {
        match self.open_ours(options().read(true), name)?.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Bytes from which on a write goes directly to the disk.
const DIRECT_BYTES: usize = 128 << 10;
/// What the memory, the length and the place of a direct write must be multiples of, on every disk.
const DIRECT_ALIGNMENT: u64 = 4096;

/// A file that is appended to. Long writes of whole blocks bypass the page cache (O_DIRECT), which spares a copy, does not
/// push the program's own files out of memory, and leaves the fsync little to do. Others go the usual way, and all do on
/// a file system that has no direct writes.
struct Appending {
    file: File,
    /// How long it is.
    bytes: u64,
    direct: Direct,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direct {
    Off,
    On,
    Impossible,
}

impl Appending {
    fn choose_way(&mut self, bytes: &[u8]) -> io::Result<()> {
        let aligned = (bytes.as_ptr().addr() | bytes.len()) as u64 | self.bytes;
        let fits = bytes.len() >= DIRECT_BYTES && aligned.is_multiple_of(DIRECT_ALIGNMENT);
        match (self.direct, fits) {
            (Direct::Off, true) => {
                self.direct = if self.set_direct(true).is_ok() { Direct::On } else { Direct::Impossible }
            }
            (Direct::On, false) => self.give_up_direct(Direct::Off)?,
            _ => {}
        }
        Ok(())
    }

    fn give_up_direct(&mut self, direct: Direct) -> io::Result<()> {
        self.direct = direct;
        self.set_direct(false)
    }

    fn set_direct(&self, on: bool) -> io::Result<()> {
        let mut flags = fcntl_getfl(&self.file)?;
        flags.set(OFlags::DIRECT, on);
        Ok(fcntl_setfl(&self.file, flags)?)
    }
}

impl WriteFile for Appending {
    fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.choose_way(bytes)?;
            match self.file.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.bytes += written as u64;
                    bytes = &bytes[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidInput && self.direct == Direct::On => {
                    self.give_up_direct(Direct::Impossible)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.file.lock()
    }
}

struct Reading(File);

impl ReadFile for Reading {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn is_at_hand(&self, offset: u64) -> bool {
        let read = preadv2(&self.0, &mut [IoSliceMut::new(&mut [0])], offset, ReadWriteFlags::NOWAIT);
        read != Err(Errno::AGAIN)
    }

    fn will_be_read(&self, offset: u64, length: u64) {
        // The kernel takes no more of a call than the disk takes at once, and the smallest disks take this.
        const ADVISED_BYTES: u64 = 128 << 10;
        for start in (offset..offset + length).step_by(ADVISED_BYTES as usize) {
            let length = NonZeroU64::new(ADVISED_BYTES.min(offset + length - start));
            if fadvise(&self.0, start, length, Advice::WillNeed).is_err() {
                return; // a file system without: what is read is read then
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_directly_and_otherwise_is_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let local = Local::open(dir.path(), false).unwrap();
        let room: Vec<u8> = (0..4 * DIRECT_BYTES).map(|n| (n / 7) as u8).collect();
        let aligned = &room[room.as_ptr().align_offset(DIRECT_ALIGNMENT as usize)..];
        let lengths = [DIRECT_BYTES, 2 * DIRECT_BYTES, 17, DIRECT_BYTES, 4096 - 17, DIRECT_BYTES, 5];
        let (mut expected, mut file) = (Vec::new(), local.create("file").unwrap());
        for length in lengths {
            file.append(&aligned[..length]).unwrap();
            expected.extend_from_slice(&aligned[..length]);
        }
        file.sync().unwrap();
        assert!(fs::read(dir.path().join("file")).unwrap() == expected);
    }
}
