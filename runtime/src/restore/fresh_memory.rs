//! Fresh private memory into which pages are put without a page fault for each.
//!
//! To write into memory that is not there yet has the kernel make each page, clear it and look it up again; by UFFDIO_COPY
//! it makes a page out of the content, in three quarters of the time. For that, memory is registered with a userfaultfd
//! while nobody runs who could fault on it, and is as it was when that is closed.

use std::collections::HashSet;
use std::fs;
use std::os::fd::OwnedFd;

use ckpt_store::PAGE_BYTES;
use nix::errno::Errno;

use super::mapping_plan::Source;
use super::process::HalfBuilt;
use crate::error::{Error, Result};
use crate::image::{ProcessImage, Region};
use crate::ptrace::write_memory;
use crate::userfaultfd::{self, Partly};

/// Less is written as fast as it is registered.
const REGION_BYTES_MIN: u64 = 256 << 10;
const FLAGS: u64 = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64 | userfaultfd::USER_MODE_ONLY;

/// Memory of one process.
#[derive(Debug)]
pub struct FreshMemory {
    pid: i32,
    userfaultfd: OwnedFd,
    /// First addresses of the regions that are registered.
    regions: HashSet<u64>,
}

impl FreshMemory {
    /// Registers what is worth it of a process whose mappings have just been made. `None` where there is nothing, and where
    /// the host or the user cannot have it.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn of(process: &mut HalfBuilt, image: &ProcessImage, sources: &[Source]) -> Result<Option<FreshMemory>> {
        let huge_pages = HugePages::of_this_host();
        let is_worth_it = |(region, source): &(&Region, &Source)| {
            **source == Source::Memory
                && region.bytes >= REGION_BYTES_MIN
                && region.protection & libc::PROT_WRITE != 0
                && !region.advice.droppable
                && region.advice.huge_page_bytes == 0
                && !huge_pages.may_be_in(region)
        };
        let worth_it: Vec<&Region> =
            image.regions.iter().zip(sources).filter(is_worth_it).map(|(region, _)| region).collect();
        if worth_it.is_empty() {
            return Ok(None);
        }
        let failed = |source| Error::io("set up", "a userfaultfd", source);
        let made = process.make_userfaultfd(FLAGS)?;
        let userfaultfd = match made.and_then(|made| userfaultfd::set_up(&made, 0).map(|()| made).map_err(failed)) {
            Ok(userfaultfd) => userfaultfd,
            Err(error) => {
                log::debug!("memory is written instead: {error}");
                return Ok(None);
            }
        };
        let register = |region: &&&Region| {
            userfaultfd::register(&userfaultfd, region.address, region.bytes, userfaultfd::MODE_MISSING).is_ok()
        };
        let regions = worth_it.iter().filter(register).map(|region| region.address).collect();
        Ok(Some(FreshMemory { pid: process.pid(), userfaultfd, regions }))
    }

    /// Whether pages of `region` can be put there.
    pub fn has(&self, region: &Region) -> bool {
        self.regions.contains(&region.address)
    }

    /// Puts whole pages to `address` of such a region.
    ///
    /// # Errors
    /// The kernel's.
    pub fn put(&self, address: u64, content: &[u8]) -> Result<()> {
        let end = address + content.len() as u64;
        let mut rest = content;
        while !rest.is_empty() {
            let at = end - rest.len() as u64;
            rest = match userfaultfd::copy(&self.userfaultfd, at, rest) {
                Ok(()) => return Ok(()),
                // What is wrong with the next page is told again.
                Err(Partly { bytes: copied @ 1.., .. }) => &rest[copied as usize..],
                // It is there, say because all new memory is locked.
                Err(Partly { errno: Errno::EEXIST, .. }) => {
                    write_memory(self.pid, at, &rest[..PAGE_BYTES])?;
                    &rest[PAGE_BYTES..]
                }
                Err(Partly { errno, .. }) => return Err(Error::io("put memory at", format!("{at:#x}"), errno)),
            };
        }
        Ok(())
    }
}

/// Where the kernel makes huge pages by itself. They are made by writing, faster than by anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HugePages {
    Always,
    WhereAdvised,
    Never,
}

impl HugePages {
    fn of_this_host() -> HugePages {
        let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        match setting.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
            Some(("always", _)) => HugePages::Always,
            Some(("madvise", _)) => HugePages::WhereAdvised,
            _ => HugePages::Never,
        }
    }

    fn may_be_in(self, region: &Region) -> bool {
        match self {
            HugePages::Always => !region.advice.no_huge_page,
            HugePages::WhereAdvised => region.advice.huge_page,
            HugePages::Never => false,
        }
    }
}
