//! `/proc/PID/pagemap`: which pages of a process are there.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::error::{Error, Result};

const PAGE_BYTES: u64 = 4096;
/// Of an entry: in memory, or swapped out.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;

/// Whether process `pid` has a page at `address`. To read where there is none gives it one.
pub fn has_page(pid: i32, address: u64) -> Result<bool> {
    let mut entry = [0; size_of::<u64>()];
    let (path, place) = (format!("/proc/{pid}/pagemap"), address / PAGE_BYTES * entry.len() as u64);
    let read = File::open(&path).and_then(|pages| pages.read_exact_at(&mut entry, place));
    read.map_err(|source| Error::io("read", path, source))?;
    Ok(u64::from_ne_bytes(entry) & (PRESENT | SWAPPED) != 0)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    use super::*;

    #[test]
    fn a_page_is_there_when_it_has_been_written_to() {
        let bytes = NonZeroUsize::new(2 * PAGE_BYTES as usize).unwrap();
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: new memory, at an address of the kernel's choice.
        let memory =
            unsafe { mmap_anonymous(None, bytes, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags) }.unwrap();
        // SAFETY: the mapping has two pages, and the second begins here.
        unsafe { memory.add(PAGE_BYTES as usize).cast::<u8>().write(1) };
        let (pid, address) = (std::process::id() as i32, memory.as_ptr() as u64);
        let behind = address + PAGE_BYTES + 7;
        assert_eq!((has_page(pid, address).unwrap(), has_page(pid, behind).unwrap()), (false, true));
        // SAFETY: nobody else knows the mapping.
        unsafe { munmap(memory, bytes.get()) }.unwrap();
    }
}
