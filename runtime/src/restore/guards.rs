//! Guards: places in memory where who touches one gets SIGSEGV, without a mapping of their own.

use std::num::NonZeroUsize;

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::process::{Call, HalfBuilt};
use crate::error::{Error, Result};
use crate::image::{JobImage, PageRange, ProcessImage};

/// Since Linux 6.13.
const MADV_GUARD_INSTALL: i32 = 102;
const MADVISE: Call = Call("madvise", libc::SYS_madvise);
const PAGE: u64 = ckpt_store::PAGE_BYTES as u64;

/// Refuses a job with guards where the kernel has none.
pub fn check(job: &JobImage) -> Result<()> {
    if job.processes.iter().flat_map(|process| &process.regions).all(|region| region.guards.is_empty()) {
        return Ok(());
    }
    try_one().map_err(|errno| {
        let why = format!("the program has guards in its memory (MADV_GUARD_INSTALL), and this kernel says {errno}");
        Error::environment("restart", why, "use Linux 6.13 or newer")
    })
}

fn try_one() -> nix::Result<()> {
    const BYTES: NonZeroUsize = NonZeroUsize::new(PAGE as usize).expect("a page has bytes");
    // SAFETY: new memory, at an address of the kernel's choice.
    let page = unsafe { mmap_anonymous(None, BYTES, ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE) }?;
    // SAFETY: nobody knows the page.
    let outcome = Errno::result(unsafe { libc::madvise(page.as_ptr(), BYTES.get(), MADV_GUARD_INSTALL) });
    // SAFETY: as above.
    unsafe { munmap(page, BYTES.get()) }?;
    outcome.map(drop)
}

/// Puts the guards of `image` where they were. There is nothing behind them.
pub fn install(process: &mut HalfBuilt, image: &ProcessImage) -> Result<()> {
    for region in &image.regions {
        for &PageRange { first, count } in &region.guards {
            let (start, bytes) = (region.address + first * PAGE, count * PAGE);
            let purpose = format_args!("guard {start:#x}");
            process.call(0, MADVISE, &[start, bytes, MADV_GUARD_INSTALL as u64], purpose)?;
        }
    }
    Ok(())
}
