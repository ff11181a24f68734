//! Instances of io_uring, made as far along as they were. What lay in them comes with the regions that map them.

use std::fs::File;
use std::os::fd::RawFd;

use super::mapping_plan::Source;
use super::process::{Call, HalfBuilt};
use super::ranges::{LOWEST, Span, gaps};
use crate::error::{Error, Result};
use crate::image::{IoUring, ProcessImage, Region};
use crate::io_uring::Ring;
use crate::proc::maps;

const MMAP: Call = Call("mmap", libc::SYS_mmap);
const MUNMAP: Call = Call("munmap", libc::SYS_munmap);

/// Makes `wanted` anew.
///
/// # Errors
/// When this kernel makes none, or one that programs would not find their way in.
pub fn make(wanted: &IoUring) -> Result<File> {
    let failed = |source| Error::io("make", format!("an io_uring instance of {} requests", wanted.entries), source);
    let ring = Ring::new(wanted.entries, wanted.completions, wanted.has_array).map_err(failed)?;
    if ring.layout() != wanted.layout {
        return Err(Error::environment(
            "make an io_uring instance",
            "this kernel lays out its memory otherwise, and the program has that in its own",
            "restart on the kernel of the checkpoint",
        ));
    }
    ring.advance(wanted.used, wanted.read).map_err(failed)?;
    Ok(File::from(ring.into_descriptor()))
}

/// Maps all that `image` has mapped of instances. Hardly anything else is mapped yet.
///
/// The kernel lets nobody choose where: it takes an address that is free. So for a moment no other is.
pub fn map(process: &mut HalfBuilt, image: &ProcessImage, sources: &[Source], first_file: RawFd) -> Result<()> {
    for (region, &source) in image.regions.iter().zip(sources) {
        let Source::Ring { file, offset } = source else { continue };
        let mapped = maps::outline(process.pid())?.into_iter().map(|it| Span::of(it.start, it.bytes()));
        let taken: Vec<Span> = mapped.chain([Span::of(region.address, region.bytes)]).collect();
        let free = gaps(taken).into_iter().map(|gap| Span { start: gap.start.max(LOWEST), end: gap.end });
        let free: Vec<Span> = free.filter(|gap| gap.start < gap.end).collect();
        let purpose = format_args!("no room but for the io_uring instance at {:#x}", region.address);
        for gap in &free {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
            let arguments = [gap.start, gap.end - gap.start, libc::PROT_NONE as u64, flags as u64, u64::MAX, 0];
            process.call(0, MMAP, &arguments, purpose)?;
        }
        map_in_the_only_place(process, region, first_file + file as RawFd, offset)?;
        for gap in &free {
            process.call(0, MUNMAP, &[gap.start, gap.end - gap.start], purpose)?;
        }
    }
    Ok(())
}

fn map_in_the_only_place(process: &mut HalfBuilt, region: &Region, number: RawFd, offset: u64) -> Result<()> {
    let purpose = format_args!("{:#x} {}", region.address, String::from_utf8_lossy(&region.name));
    let arguments = [0, region.bytes, region.protection as u64, libc::MAP_SHARED as u64, number as u64, offset];
    let address = process.call(0, MMAP, &arguments, purpose)?;
    if address != region.address {
        let why = format!("the kernel maps it at {address:#x}, and it was at {:#x}", region.address);
        return Err(Error::environment("map an io_uring instance", why, "restart another checkpoint"));
    }
    Ok(())
}
