//! Huge pages that a program has asked for (hugetlbfs): memory of a pool, which the machine's user has to provide.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use super::window::Window;
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

/// Maps all of a file of huge pages in this process: nobody can write to one otherwise.
///
/// # Errors
/// The kernel's: there may be too few pages.
pub fn map(file: &File, bytes: u64) -> std::io::Result<Window> {
    let length = NonZeroUsize::new(bytes as usize).ok_or(std::io::ErrorKind::InvalidInput)?;
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: new memory, at an address of the kernel's choice.
    let at = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, file.as_fd(), 0) }?;
    let unmap = |start: NonNull<u8>, bytes| {
        // SAFETY: it was mapped there, and nothing refers to it any more.
        let _ = unsafe { munmap(start.cast(), bytes) };
    };
    // SAFETY: so many bytes have just been mapped, and only the window knows of them.
    Ok(unsafe { Window::new(at.cast(), length.get(), unmap) })
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
