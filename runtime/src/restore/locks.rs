//! Sets the locks that the program held on its files.
//!
//! A lock of a process is lost when the process closes any descriptor of the file, so locks are set when all that is not
//! the program's has been closed, by calls of the rebuilt process itself, which they then belong to.
//!
//! Somebody else may have taken a lock since. That is looked for before anything is built, and the kernel has the last
//! word; either way the restart is refused with the file and the holder.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::{major, minor};

use super::paths::reopened_path;
use super::process::{Call, HalfBuilt};
use crate::error::{Error, Result};
use crate::image::{FileLock, LockKind, Objects, ProcessImage, path_of};
use crate::proc::locks::{Lock, Owner, holder};
use crate::without_links;

/// Of `fcntl(2)`.
const F_SETLEASE: u64 = 1024;
const FCNTL: Call = Call("fcntl", libc::SYS_fcntl);
const FLOCK: Call = Call("flock", libc::SYS_flock);

/// Refuses locks that somebody else holds by now. Where the file cannot be found, others say so.
///
/// # Errors
/// [`Error::Environment`] with the file and the holder.
pub fn check(image: &ProcessImage, objects: &Objects) -> Result<()> {
    locks(image).try_for_each(|lock| match path(image, objects, lock) {
        Some(path) => match current_holder(path, lock) {
            Some(holder) => Err(held(path, &holder)),
            None => Ok(()),
        },
        None => Ok(()),
    })
}

/// What excludes others: all but leases.
fn locks(image: &ProcessImage) -> impl Iterator<Item = &FileLock> {
    image.locks.iter().filter(|lock| lock.kind != LockKind::Lease)
}

/// Sets all locks by calls of the main thread. Needs the scratch area.
pub fn set(process: &mut HalfBuilt, image: &ProcessImage, objects: &Objects) -> Result<()> {
    for lock in locks(image) {
        let number = lock.descriptor as u64;
        let answer = match lock.kind {
            LockKind::Whole => process.try_call(0, FLOCK, &[number, whole(lock) as u64])?,
            LockKind::Process | LockKind::Description | LockKind::Lease => {
                let command = if lock.kind == LockKind::Process { libc::F_SETLK } else { libc::F_OFD_SETLK };
                let address = process.put(&range(lock))?;
                process.try_call(0, FCNTL, &[number, command as u64, address])?
            }
        };
        match answer {
            Ok(_) => {}
            Err(Errno::EAGAIN | Errno::EACCES) => {
                let path = path(image, objects, lock).unwrap_or(Path::new("a file"));
                let holder = current_holder(path, lock).unwrap_or_else(|| "another process".into());
                return Err(held(path, &holder));
            }
            Err(source) => {
                let call = if lock.kind == LockKind::Whole { FLOCK } else { FCNTL };
                return Err(process.refused(call, format_args!("lock through descriptor {number}"), source));
            }
        }
    }
    Ok(())
}

/// Takes the leases of the program again, when nobody of ours opens its files any more, which would break them. The threads are as they will
/// run, and are so again. Like one that is broken, a lease that cannot be had any more is no reason to refuse.
pub fn take_leases(process: &mut HalfBuilt, image: &ProcessImage, objects: &Objects) -> Result<()> {
    let leases: Vec<&FileLock> = image.locks.iter().filter(|lock| lock.kind == LockKind::Lease).collect();
    if leases.is_empty() {
        return Ok(());
    }
    let (registers, mask) = (process.thread(0)?.registers()?, process.thread(0)?.signal_mask()?);
    process.thread(0)?.set_signal_mask(u64::MAX)?;
    for lease in leases {
        let wanted = if lease.exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
        let arguments = [lease.descriptor as u64, F_SETLEASE, wanted as u64];
        if let Err(errno) = process.try_call(0, FCNTL, &arguments)? {
            let path = path(image, objects, lease).unwrap_or(Path::new("a file"));
            log::warn!("{}: the program cannot have its lease again: {errno}", path.display());
        }
    }
    process.thread(0)?.set_registers(&registers)?;
    process.thread(0)?.set_signal_mask(mask)
}

fn held(path: &Path, holder: &str) -> Error {
    let why = format!("{} is locked by {holder}, and the program held a lock on it", path.display());
    Error::environment("restart", why, "let the holder unlock it, or end the holder")
}

fn path<'a>(image: &ProcessImage, objects: &'a Objects, lock: &FileLock) -> Option<&'a Path> {
    let descriptor = image.descriptors.iter().find(|descriptor| descriptor.number == lock.descriptor)?;
    objects.files.get(descriptor.file as usize).and_then(reopened_path).map(path_of)
}

/// Who excludes `lock` on the file at `path` now.
fn current_holder(path: &Path, lock: &FileLock) -> Option<String> {
    let metadata = without_links::open(path, libc::O_PATH, 0).ok()?.metadata().ok()?;
    let owner = match lock.kind {
        LockKind::Process => Owner::Process,
        LockKind::Description => Owner::Description,
        LockKind::Whole => Owner::Whole,
        LockKind::Lease => Owner::Lease,
    };
    holder(&Lock {
        owner,
        exclusive: lock.exclusive,
        pid: 0,
        device: (major(metadata.dev()) as u32, minor(metadata.dev()) as u32),
        inode: metadata.ino(),
        is_breaking: false,
        start: lock.start,
        end: lock.end,
    })
}

/// What `flock` takes.
fn whole(lock: &FileLock) -> i32 {
    libc::LOCK_NB | if lock.exclusive { libc::LOCK_EX } else { libc::LOCK_SH }
}

/// `struct flock`.
fn range(lock: &FileLock) -> Vec<u8> {
    let kind = if lock.exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    // A length of 0 is up to the end of the file.
    let bytes = lock.end.map_or(0, |end| end.saturating_sub(lock.start) + 1);
    let mut words = vec![0; size_of::<libc::flock>()];
    words[..2].copy_from_slice(&(kind as i16).to_ne_bytes());
    words[2..4].copy_from_slice(&(libc::SEEK_SET as i16).to_ne_bytes());
    words[8..16].copy_from_slice(&lock.start.to_ne_bytes());
    words[16..24].copy_from_slice(&bytes.to_ne_bytes());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_given_with_its_length() {
        let lock = FileLock { descriptor: 3, kind: LockKind::Process, exclusive: true, start: 510, end: Some(519) };
        let bytes = range(&lock);
        let word = |at: usize| i64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!((bytes.len(), bytes[0], word(8), word(16)), (32, 1, 510, 10));
        let to_the_end = range(&FileLock { end: None, exclusive: false, ..lock });
        assert_eq!((to_the_end[0], &to_the_end[16..24]), (0, &[0; 8][..]));
    }
}
