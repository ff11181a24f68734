//! Capturing the locks that the program holds on its files.
//!
//! A lock of a process is shown by every descriptor of the file, and can be set again through those that are open for
//! what it excludes. A lock of an open file description is shown by the numbers of that description.

use std::collections::HashSet;

use super::descriptors::table::Table;
use crate::error::{Error, Result};
use crate::image::{Descriptor, FileKind, FileLock, LockKind, OpenFile};
use crate::proc::fdinfo::FdInfo;
use crate::proc::locks::{self, Lock, Owner};

/// The locks of the descriptors `infos` of a process, each once. `descriptors` are what is captured of them, in the same order,
/// and `files` what they lead to.
pub fn capture(infos: &[FdInfo], descriptors: &[Descriptor], files: &[OpenFile]) -> Result<Vec<FileLock>> {
    let mut seen: Vec<Seen> = Vec::new();
    for (info, descriptor) in infos.iter().zip(descriptors) {
        for (_, line) in info.fields.iter().filter(|(name, _)| name == "lock") {
            let lock = locks::parse(line).ok_or_else(|| refused(info, "it holds a lock of unknown kind"))?;
            let kind = kind(info, descriptor, &lock, files)?;
            let found =
                Seen { lock, kind, belongs_to: belongs_to(kind, info, descriptor), through: None, shown_by: info };
            let known = seen.iter().position(|other| other.is_the_same_as(&found));
            let index = known.unwrap_or(seen.len());
            if known.is_none() {
                seen.push(found);
            }
            if seen[index].through.is_none() && can_set(info, &seen[index]) {
                seen[index].through = Some(info.number);
            }
        }
    }
    seen.iter().map(Seen::captured).collect()
}

/// A lock of an open file description is shown by every process that has it, and is to be set by one.
pub fn keep_one_of_each_description(tables: &mut [Table]) {
    let mut set = HashSet::new();
    for Table { descriptors, locks } in tables {
        locks.retain(|lock| {
            let descriptor = descriptors.iter().find(|descriptor| descriptor.number == lock.descriptor);
            let file = descriptor.map(|descriptor| descriptor.file);
            let is_of_process = lock.kind == LockKind::Process;
            is_of_process || set.insert((file, lock.kind, lock.start, lock.end))
        });
    }
}

/// A lock that some descriptors show.
struct Seen<'a> {
    lock: Lock,
    kind: LockKind,
    belongs_to: (u64, u64),
    /// A descriptor through which it can be set.
    through: Option<i32>,
    shown_by: &'a FdInfo,
}

impl Seen<'_> {
    fn is_the_same_as(&self, other: &Seen<'_>) -> bool {
        (self.kind, self.belongs_to, &self.lock) == (other.kind, other.belongs_to, &other.lock)
    }

    fn captured(&self) -> Result<FileLock> {
        let why = "it holds a file lock that no descriptor which is left can set again";
        let descriptor = self.through.ok_or_else(|| refused(self.shown_by, why))?;
        let Lock { exclusive, start, end, .. } = self.lock;
        Ok(FileLock { descriptor, kind: self.kind, exclusive, start, end })
    }
}

fn refused(info: &FdInfo, why: &str) -> Error {
    let what = format!("descriptor {} ({})", info.number, info.shown());
    Error::unsupported(what, why, "release the lock before the checkpoint")
}

fn kind(info: &FdInfo, descriptor: &Descriptor, lock: &Lock, files: &[OpenFile]) -> Result<LockKind> {
    let file = files.get(descriptor.file as usize).map(|file| &file.kind);
    let comes_back = matches!(
        file,
        Some(
            FileKind::Regular { .. } | FileKind::Unlinked { .. } | FileKind::Directory { .. } | FileKind::Device { .. }
        )
    );
    match lock.owner {
        Owner::Lease if lock.is_breaking => {
            let what = format!("descriptor {} ({})", info.number, info.shown());
            let why = "it holds a lease that another process waits for";
            Err(Error::unsettled(what, why, "take the checkpoint when the program has given it up"))
        }
        _ if !comes_back => Err(refused(info, "it holds a file lock on what the restart replaces")),
        Owner::Process => Ok(LockKind::Process),
        Owner::Description => Ok(LockKind::Description),
        Owner::Whole => Ok(LockKind::Whole),
        Owner::Lease => Ok(LockKind::Lease),
    }
}

/// The file, or the description, that a lock belongs to.
fn belongs_to(kind: LockKind, info: &FdInfo, descriptor: &Descriptor) -> (u64, u64) {
    match kind {
        LockKind::Process => (info.metadata.device, info.metadata.inode),
        LockKind::Description | LockKind::Whole | LockKind::Lease => (u64::MAX, u64::from(descriptor.file)),
    }
}

/// Whether the kernel lets a lock be set through a descriptor.
fn can_set(info: &FdInfo, seen: &Seen<'_>) -> bool {
    let access = info.flags & libc::O_ACCMODE;
    let needed = if seen.lock.exclusive { libc::O_WRONLY } else { libc::O_RDONLY };
    let is_named_only = info.flags & libc::O_PATH != 0;
    let is_of_any_access = matches!(seen.kind, LockKind::Whole | LockKind::Lease);
    !is_named_only && (is_of_any_access || access == libc::O_RDWR || access == needed)
}
