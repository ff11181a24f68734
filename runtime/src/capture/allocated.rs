//! Which pages of files, and of memory that processes share, hold anything.
//!
//! All others are zeros. They are not read through the mapping, because that makes the kernel allocate them, for good: of a segment of
//! 1 GiB with 28 KiB in it a checkpoint would make 1 GiB of memory. Who has the file asks for its data (`SEEK_DATA`). Shared memory
//! without a descriptor an ordinary user cannot open: the program is asked which pages are in memory (`mincore`), which is all that there is
//! unless some may be swapped out.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use nix::sys::stat::makedev;

use super::guest::Guest;
use super::regions::{Draft, mapped_file};
use crate::error::Result;
use crate::image::Backing;
use crate::page_set::PageSet;
use crate::ptrace::read_memory;
use crate::sparse;

const PAGE: u64 = ckpt_store::PAGE_BYTES as u64;

/// Notes for each of `drafts`, the mappings of the guest's process, what there is of it, where that is worth knowing and can be known.
///
/// # Errors
/// When the program cannot be asked.
pub fn find(guest: &mut Guest<'_>, drafts: &mut [Draft]) -> Result<()> {
    let mut has_swap = None;
    for draft in drafts.iter_mut().filter(|draft| may_have_holes(draft)) {
        draft.data = match open(guest.pid(), draft) {
            Some(file) => data_of(&file, draft),
            None if *has_swap.get_or_insert_with(swap_is_used) => None,
            None => in_memory(guest, draft)?,
        };
    }
    Ok(())
}

fn may_have_holes(draft: &Draft) -> bool {
    match draft.backing {
        Backing::Anonymous => false,
        Backing::PrivateFile(_) | Backing::SharedFile { .. } => draft.file.is_none() || draft.is_sparse,
        Backing::SharedObject { .. } => true,
    }
}

/// The file that is mapped, if it can be opened: by the kernel's link to it, by its path, or by a descriptor of the process.
fn open(pid: i32, draft: &Draft) -> Option<File> {
    let mapping = &draft.mapping;
    let readable =
        |path: &str, flags| OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | flags).open(path).ok();
    if let Some(file) = readable(&mapped_file(pid, mapping), 0) {
        return Some(file);
    }
    if let (Some(stamp), Ok(path)) = (&draft.file, std::str::from_utf8(&mapping.name)) {
        let file = readable(path, libc::O_NOFOLLOW)?;
        let metadata = file.metadata().ok()?;
        return ((metadata.dev(), metadata.ino()) == (stamp.device, stamp.inode)).then_some(file);
    }
    let device = makedev(mapping.device.0.into(), mapping.device.1.into());
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let mut paths = descriptors.flatten().map(|entry| entry.path());
    let is_it =
        |metadata: fs::Metadata| (metadata.ino(), metadata.dev()) == (mapping.inode, device) && metadata.is_file();
    let path = paths.find(|path| fs::metadata(path).is_ok_and(is_it))?;
    readable(path.to_str()?, 0)
}

/// The pages of a mapping that its file has data for: all where the file system does not tell.
fn data_of(file: &File, draft: &Draft) -> Option<PageSet> {
    let mapping = &draft.mapping;
    let parts = sparse::data_within(file, mapping.offset..mapping.offset + mapping.bytes()).ok()?;
    let mut data = PageSet::default();
    for part in parts {
        data.push((part.start - mapping.offset) / PAGE..(part.end - mapping.offset).div_ceil(PAGE));
    }
    Some(data)
}

/// The pages of a mapping that are in memory, whoever has put them there. `None` if the kernel does not tell the program.
fn in_memory(guest: &mut Guest<'_>, draft: &Draft) -> Result<Option<PageSet>> {
    let mapping = &draft.mapping;
    let mut there = PageSet::default();
    let mut states = [0; ckpt_wire::SCRATCH_BYTES];
    let pages = mapping.bytes() / PAGE;
    for first in (0..pages).step_by(states.len()) {
        let count = (pages - first).min(states.len() as u64);
        let arguments = [mapping.start + first * PAGE, count * PAGE, guest.scratch(), 0, 0, 0];
        if guest.try_call(libc::SYS_mincore, arguments)?.is_err() {
            return Ok(None);
        }
        let states = &mut states[..count as usize];
        read_memory(guest.pid(), guest.scratch(), states)?;
        for (page, _) in (first..).zip(states.iter()).filter(|(_, state)| **state & 1 != 0) {
            there.push(page..page + 1);
        }
    }
    Ok(Some(there))
}

/// Whether anything of this machine's memory is swapped out. Unless it can be ruled out, it may be.
fn swap_is_used() -> bool {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    field("SwapTotal:").zip(field("SwapFree:")).is_none_or(|(total, free)| total != free)
}
