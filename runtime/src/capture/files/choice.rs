//! Which files are captured: what the program may write to, what only it can still reach, and what its user names.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use super::held::{HeldFiles, Known};
use super::hold::{Holder, bytes_there};
use super::record::{about, regular};
use super::trees;
use super::wishes::Wishes;
use crate::capture::descriptors::Tables;
use crate::capture::regions::{Draft, mapped_file};
use crate::descriptor::{pidfd_getfd, pidfd_open};
use crate::error::{Error, Result};
use crate::image::{Backing, FileKind, path_of};
use crate::proc::is_the_kernels;

/// Makes the content of all files that are to be captured hold still. The job, whose descriptors are `tables` and mappings
/// `drafts`, stands still, and `runs_on` before the content is read, or does not.
///
/// # Errors
/// When a file that no path leads to cannot be captured, or a directory that the user has named.
pub fn hold(
    tables: &Tables,
    drafts: &[(i32, &Draft)],
    wishes: &Wishes,
    known: &Known,
    runs_on: bool,
) -> Result<HeldFiles> {
    let mut held = HeldFiles::default();
    let mut holder = Holder::new(known, runs_on, &wishes.store);
    if let Some(max_bytes) = wishes.max_bytes {
        for written in written_files(tables, drafts) {
            hold_written(&written, drafts, max_bytes, &mut holder, &mut held);
        }
    }
    for unlinked in &tables.unlinked {
        let shown = || format!("descriptor {} ({})", unlinked.opened.1, path_of(&unlinked.file.path).display());
        let mut hold = || {
            let file = open(descriptor(unlinked.opened))?;
            if !is_in_memory(&file)? {
                within(&file, wishes.max_bytes)?;
            }
            holder.hold(file, unlinked.file.object.is_some())
        };
        held.unlinked.push(hold().map_err(|error| {
            let why = format!("no path leads to the file, and its content cannot be captured: {error}");
            Error::unsupported(shown(), why, "close it before the checkpoint, or see CKPT_FILES")
        })?);
    }
    trees::hold(wishes, &mut holder, &mut held)?;
    Ok(held)
}

/// A file with a path that the program may write to.
struct Written<'a> {
    path: &'a [u8],
    inode: u64,
    /// Where it can be opened, whatever its path leads to by now.
    place: String,
    /// Its device, where it may have to be opened by its path.
    device: Option<u64>,
    /// The descriptor, a process and a number, of one who may have a lease on it: to open the file would break that.
    leased: Option<(i32, i32)>,
}

fn descriptor((pid, number): (i32, i32)) -> String {
    format!("/proc/{pid}/fd/{number}")
}

fn written_files<'a>(tables: &'a Tables, drafts: &'a [(i32, &'a Draft)]) -> Vec<Written<'a>> {
    let mut found: Vec<Written<'a>> = Vec::new();
    let mut add = |written: Written<'a>| {
        let is_known = found.iter().any(|other| other.path == written.path);
        if !is_known && !is_the_kernels(path_of(written.path)) {
            found.push(written);
        }
    };
    for (index, (file, place)) in tables.files.iter().zip(&tables.places).enumerate() {
        if let (FileKind::Regular { path, inode, .. }, true) = (&file.kind, file.is_writable()) {
            // The kernel marks the descriptor of a lease so (O_ASYNC), and no other of a file.
            let leased = tables.signal_driven.iter().any(|driven| driven.file as usize == index).then_some(*place);
            add(Written { path, inode: *inode, place: descriptor(*place), device: None, leased });
        }
    }
    for (pid, draft) in drafts {
        if let Backing::SharedFile { file, may_write: true } = &draft.backing {
            let device = draft.file.map(|stamp| stamp.device);
            add(Written {
                path: &file.path,
                inode: file.inode,
                place: mapped_file(*pid, &draft.mapping),
                device,
                leased: None,
            });
        }
    }
    found
}

/// A file that cannot be captured is as one that is not: a restart refuses it if it has become shorter.
fn hold_written(
    written: &Written<'_>,
    drafts: &[(i32, &Draft)],
    max_bytes: u64,
    holder: &mut Holder<'_>,
    held: &mut HeldFiles,
) {
    let is_mapped = drafts.iter().any(
        |(_, draft)| matches!(&draft.backing, Backing::SharedFile { file, may_write: true } if file.inode == written.inode),
    );
    let mut hold = || -> io::Result<_> {
        if let Some((pid, number)) = written.leased {
            let pidfd = pidfd_open(pid).map_err(io::Error::other)?;
            let shared = File::from(pidfd_getfd(pidfd.as_fd(), number).map_err(io::Error::other)?);
            within(&shared, Some(max_bytes))?;
            let metadata = shared.metadata()?;
            return Ok((about(written.path.to_vec(), &metadata, regular(&metadata)), holder.hold_through(&shared)?));
        }
        let (file, metadata) = open_written(written)?;
        within(&file, Some(max_bytes))?;
        Ok((about(written.path.to_vec(), &metadata, regular(&metadata)), holder.hold(file, is_mapped)?))
    };
    match hold() {
        Ok((file, content)) => held.add(file, Some(content)),
        Err(error) => log::warn!("the content of {} is not captured: {error}", path_of(written.path).display()),
    }
}

/// The very file that the program has. Only root may open one that is mapped; others take its path.
fn open_written(written: &Written<'_>) -> io::Result<(File, Metadata)> {
    let opened = match (open(&written.place), written.device) {
        (Err(error), Some(_)) if error.kind() == io::ErrorKind::PermissionDenied => open(path_of(written.path)),
        (opened, _) => opened,
    };
    let file = opened?;
    let metadata = file.metadata()?;
    let is_it = metadata.ino() == written.inode && written.device.is_none_or(|device| metadata.dev() == device);
    if !is_it {
        return Err(io::Error::other("its path leads to another file by now"));
    }
    Ok((file, metadata))
}

/// Whether a file that no path leads to is memory, of which a program may have as much as it likes.
fn is_in_memory(file: &File) -> io::Result<bool> {
    Ok(fstatfs(file)?.filesystem_type() == TMPFS_MAGIC)
}

fn within(file: &File, max_bytes: Option<u64>) -> io::Result<()> {
    match (bytes_there(file)?, max_bytes) {
        (bytes, Some(max)) if bytes > max => {
            Err(io::Error::other(format!("it has {bytes} bytes, and CKPT_FILES allows {max}")))
        }
        _ => Ok(()),
    }
}

fn open(path: impl AsRef<Path>) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}
