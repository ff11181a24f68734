//! Huge pages that a program has asked for (hugetlbfs): memory of a pool, which the machine's user has to provide.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::{Error, Result};
use crate::image::{Backing, JobImage};
use crate::units;

/// Of `mmap` and `memfd_create`, where the size is told in the highest bits.
const SIZE_SHIFT: u32 = 26;

/// The bits that ask `mmap` or `memfd_create` for huge pages of so many bytes, beside `MAP_HUGETLB` or `MFD_HUGETLB`.
pub fn size_bits(page_bytes: u64) -> i32 {
    (page_bytes.trailing_zeros() << SIZE_SHIFT).cast_signed()
}

/// Which pages of the pools are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// Those that nobody has: the job is to get them.
    Free,
    /// All: the job has its own.
    All,
}

/// Refuses a job for which the pools of this machine have not enough pages.
///
/// # Errors
/// With the setting that has to be raised.
pub fn check(job: &JobImage, pool: Pool) -> Result<()> {
    for (page_bytes, bytes) in needed(job) {
        let pages = bytes.div_ceil(page_bytes);
        let there = there(page_bytes, pool);
        if there < pages {
            let (all, each) = (units::bytes(bytes), units::bytes(page_bytes));
            let why =
                format!("the program has {all} of huge pages of {each}: {pages} pages, and this machine has {there}");
            let setting = setting(page_bytes, "nr_hugepages");
            return Err(Error::environment("restart", why, format!("provide them ({setting})")));
        }
    }
    Ok(())
}

/// Bytes of huge pages that a job needs, by the size of the pages. What the kernel was not to reserve may never be there.
fn needed(job: &JobImage) -> BTreeMap<u64, u64> {
    let mut needed = BTreeMap::new();
    for region in job.processes.iter().flat_map(|process| &process.regions) {
        let is_private = matches!(region.backing, Backing::Anonymous | Backing::PrivateFile(_));
        if is_private && region.advice.huge_page_bytes > 0 && !region.advice.no_reserve {
            *needed.entry(region.advice.huge_page_bytes).or_default() += region.bytes;
        }
    }
    let unlinked = &job.objects.unlinked_files;
    for (index, object) in job.objects.memory.iter().enumerate().filter(|(_, object)| object.huge_page_bytes > 0) {
        if unlinked.iter().all(|file| file.object != Some(index as u32)) {
            *needed.entry(object.huge_page_bytes).or_default() += object.bytes;
        }
    }
    for file in unlinked.iter().filter(|file| file.huge_page_bytes > 0) {
        *needed.entry(file.huge_page_bytes).or_default() += file.content.bytes;
    }
    needed
}

fn there(page_bytes: u64, pool: Pool) -> u64 {
    let count = |name| {
        let text = fs::read_to_string(setting(page_bytes, name)).unwrap_or_default();
        text.trim().parse::<u64>().unwrap_or(0)
    };
    let more = count("nr_overcommit_hugepages").saturating_sub(count("surplus_hugepages"));
    let there = match pool {
        Pool::All => count("nr_hugepages"),
        Pool::Free => count("free_hugepages").saturating_sub(count("resv_hugepages")),
    };
    there + more
}

fn setting(page_bytes: u64, name: &str) -> String {
    format!("/sys/kernel/mm/hugepages/hugepages-{}kB/{name}", page_bytes >> 10)
}

/// A file of huge pages that this process has mapped, until this is dropped: nobody can write to one otherwise.
#[derive(Debug)]
pub struct Mapped {
    start: NonNull<u8>,
    bytes: usize,
    writing: Mutex<()>,
}

// SAFETY: munmap may be called by any thread.
unsafe impl Send for Mapped {}
// SAFETY: only `write` uses the memory, and one thread at a time.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps all of `file`.
    ///
    /// # Errors
    /// The kernel's: there may be too few pages.
    pub fn of(file: &File, bytes: u64) -> std::io::Result<Mapped> {
        let length = NonZeroUsize::new(bytes as usize).ok_or(std::io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: new memory, at an address of the kernel's choice.
        let at = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, file.as_fd(), 0) }?;
        Ok(Mapped { start: at.cast(), bytes: length.get(), writing: Mutex::new(()) })
    }

    /// Writes `content` at `offset`, as far as the file goes.
    pub fn write(&self, offset: u64, content: &[u8]) {
        let from = (offset as usize).min(self.bytes);
        let bytes = content.len().min(self.bytes - from);
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: so many bytes are mapped behind `from`, and nothing in this process refers to them.
        unsafe { ptr::copy_nonoverlapping(content.as_ptr(), self.start.as_ptr().add(from), bytes) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped there, and nothing refers to it any more.
        let _ = unsafe { munmap(self.start.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_pages_is_told_in_the_highest_bits() {
        assert_eq!(size_bits(2 << 20), libc::MAP_HUGE_2MB);
        assert_eq!(size_bits(1 << 30), libc::MAP_HUGE_1GB);
    }
}
