//! Finding the pages that were written since the last look.

use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};

use super::finding::{Finding, State};
use super::trial::{Failure, Outcome, checked, in_child};
use super::uffd;
use crate::userfaultfd;

const PROBE: &str = "write tracking";
const TRIED: &str = "write-protect four pages, write to one, and find it with PAGEMAP_SCAN";
const PAGE_BYTES: usize = 4096;
const PAGES: usize = 4;
const WRITTEN_PAGE: usize = 2;
const MAPPED_BYTES: NonZeroUsize = NonZeroUsize::new(PAGES * PAGE_BYTES).expect("four pages are not zero bytes");

const PAGEMAP_SCAN: u64 = 0xc060_6610;
const PM_SCAN_WP_MATCHING: u64 = 1;
const PAGE_IS_WRITTEN: u64 = 1 << 1;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// The probe.
pub fn probe() -> Finding {
    Finding::of(PROBE, TRIED, in_child(find_the_written_page), State::Degraded, uffd::ADVICE)
}

fn find_the_written_page() -> Outcome {
    // SAFETY: a new private mapping at an address that the kernel chooses.
    let memory = unsafe {
        mmap_anonymous(None, MAPPED_BYTES, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE)
    };
    let start = memory.map_err(|errno| Failure::call("mmap", errno))?.cast::<u8>();
    let write = |page: usize| {
        // SAFETY: the mapping has `PAGES` pages.
        unsafe { start.add(page * PAGE_BYTES).write_volatile(page as u8 + 1) };
    };
    (0..PAGES).for_each(write);
    let tracker = uffd::open()?;
    let bytes = (PAGES * PAGE_BYTES) as u64;
    userfaultfd::register(&tracker, start.as_ptr() as u64, bytes, userfaultfd::MODE_WRITE_PROTECT)
        .map_err(|errno| Failure::call("UFFDIO_REGISTER", errno))?;
    written_pages(start.as_ptr() as u64)?;
    write(WRITTEN_PAGE);
    match written_pages(start.as_ptr() as u64)? {
        pages if pages == [WRITTEN_PAGE] => Ok("found exactly the written page".to_owned()),
        pages => Err(Failure::wrong(format!("found pages {pages:?} instead of {WRITTEN_PAGE}"))),
    }
}

/// The pages behind `start` that were written since the last call, which are protected again.
fn written_pages(start: u64) -> Result<Vec<usize>, Failure> {
    let pagemap =
        std::fs::File::open("/proc/self/pagemap").map_err(|error| Failure::wrong(format!("open pagemap: {error}")))?;
    let mut found = [PageRegion::default(); PAGES];
    let mut scan = Scan {
        size: size_of::<Scan>() as u64,
        flags: PM_SCAN_WP_MATCHING,
        start,
        end: start + (PAGES * PAGE_BYTES) as u64,
        vec: found.as_mut_ptr() as u64,
        vec_len: PAGES as u64,
        category_mask: PAGE_IS_WRITTEN,
        return_mask: PAGE_IS_WRITTEN,
        ..Scan::default()
    };
    // SAFETY: PAGEMAP_SCAN reads and writes one `Scan` and at most `vec_len` elements of `found`.
    let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) };
    let count = checked("PAGEMAP_SCAN", count.into())? as usize;
    let page = |address: u64| (address - start) as usize / PAGE_BYTES;
    Ok(found.iter().take(count).flat_map(|region| page(region.start)..page(region.end)).collect())
}
