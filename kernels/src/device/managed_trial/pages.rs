//! Pages of this process, and ordinary memory that is moved to them and away.

use std::ffi::{c_int, c_void};
use std::io;
use std::ops::Range;
use std::ptr;

const PAGE: u64 = 4096;

/// The pages that hold these bytes, each once: what shares a page is one range.
pub fn pages_of(allocations: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let whole = |bytes: Range<u64>| bytes.start / PAGE * PAGE..bytes.end.div_ceil(PAGE) * PAGE;
    let mut pages: Vec<_> = allocations.into_iter().map(whole).collect();
    pages.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in pages {
        match joined.last_mut().filter(|last| range.start < last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => joined.push(range),
        }
    }
    joined
}

/// Whether two ranges have an address in common.
pub fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// An address that somebody gave as a number.
pub fn place(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// Lets the pages only be read from now on.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// Nobody writes there any more.
pub unsafe fn protect(pages: &Range<u64>) -> io::Result<()> {
    // SAFETY: the caller's.
    done(unsafe { libc::mprotect(place(pages.start), bytes_of(pages), libc::PROT_READ) })
}

/// Puts a mapping that nobody can use where nothing is mapped; it fails where something is.
fn hold(pages: &Range<u64>) -> io::Result<()> {
    let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: nothing is replaced.
    mapped(unsafe { libc::mmap(place(pages.start), bytes_of(pages), libc::PROT_NONE, how, -1, 0) }).map(drop)
}

/// Ordinary memory, as long as the pages that it is for.
pub struct Ordinary {
    pages: Range<u64>,
    own: *mut c_void,
    /// Whether the addresses of the pages were held by somebody before it was moved there.
    were_held: bool,
}

impl Ordinary {
    /// A copy of the pages, elsewhere.
    ///
    /// # Errors
    /// When there is not as much memory.
    ///
    /// # Safety
    /// They can be read, and nobody writes there.
    pub unsafe fn copy_of(pages: &Range<u64>) -> io::Result<Self> {
        let own = map_anywhere(bytes_of(pages), libc::PROT_READ | libc::PROT_WRITE)?;
        // SAFETY: the caller's; and both are as long.
        unsafe { ptr::copy_nonoverlapping(place(pages.start).cast::<u8>(), own.cast::<u8>(), bytes_of(pages)) };
        Ok(Self { pages: pages.clone(), own, were_held: false })
    }

    /// The pages that it is for.
    pub fn pages(&self) -> &Range<u64> {
        &self.pages
    }

    /// Moves it to the pages that it is for, whose addresses are held by somebody now, or not.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Safety
    /// Nothing that anybody uses is mapped there.
    pub unsafe fn move_there(&mut self, are_held: bool) -> io::Result<()> {
        self.were_held = are_held;
        // SAFETY: the caller's; what is moved is this one's own.
        unsafe { move_mapping(self.own, place(self.pages.start), bytes_of(&self.pages)) }
    }

    /// Moves it away from them; nothing is mapped there then, or their addresses are held again, as before.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Safety
    /// It is there.
    pub unsafe fn move_away(&mut self) -> io::Result<()> {
        let bytes = bytes_of(&self.pages);
        self.own = map_anywhere(bytes, libc::PROT_NONE)?;
        // SAFETY: the caller's; what is replaced was mapped for that.
        unsafe { move_mapping(place(self.pages.start), self.own, bytes)? };
        if self.were_held { hold(&self.pages) } else { Ok(()) }
    }

    /// Copies it to its pages, while it is elsewhere.
    ///
    /// # Safety
    /// It has been moved away, or never been there; they can be written, and nobody else does.
    pub unsafe fn copy_there(&self) {
        let to = place(self.pages.start).cast::<u8>();
        // SAFETY: the caller's; and both are as long.
        unsafe { ptr::copy_nonoverlapping(self.own.cast::<u8>(), to, bytes_of(&self.pages)) };
    }
}

fn bytes_of(pages: &Range<u64>) -> usize {
    (pages.end - pages.start) as usize
}

fn map_anywhere(bytes: usize, access: c_int) -> io::Result<*mut c_void> {
    let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, where nothing is.
    mapped(unsafe { libc::mmap(ptr::null_mut(), bytes, access, how, -1, 0) })
}

/// # Safety
/// As of mremap: what is mapped at `to` is gone then.
unsafe fn move_mapping(from: *mut c_void, to: *mut c_void, bytes: usize) -> io::Result<()> {
    // SAFETY: the caller's.
    mapped(unsafe { libc::mremap(from, bytes, bytes, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, to) }).map(drop)
}

fn mapped(returned: *mut c_void) -> io::Result<*mut c_void> {
    if returned == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

fn done(returned: c_int) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shares_a_page_is_one_range_and_what_does_not_is_another() {
        let bytes = [0x5000..0x7000, 0x1000..0x1010, 0x1200..0x2001, 0x3000..0x4000];
        assert_eq!(pages_of(bytes), [0x1000..0x3000, 0x3000..0x4000, 0x5000..0x7000]);
    }

    #[test]
    fn ordinary_memory_moves_there_and_away_with_its_content() {
        // Where nobody else's memory comes to lie while nothing is there.
        let start = 0x2100_0000_0000;
        let pages = start..start + 8192;
        hold(&pages).unwrap();
        // SAFETY: two pages that this test has mapped, and nobody else uses.
        unsafe {
            done(libc::mprotect(place(start), 8192, libc::PROT_READ | libc::PROT_WRITE)).unwrap();
            place(start).cast::<u8>().write_bytes(7, 8192);
            let mut ordinary = Ordinary::copy_of(&pages).unwrap();
            protect(&pages).unwrap();
            ordinary.move_there(true).unwrap();
            place(start + 8191).cast::<u8>().write(8);
            ordinary.move_away().unwrap();
            assert!(hold(&pages).is_err());
            ordinary.move_there(false).unwrap();
            assert_eq!(place(start).cast::<u8>().read(), 7);
            assert_eq!(place(start + 8191).cast::<u8>().read(), 8);
            assert_eq!(ordinary.pages(), &pages);
        }
    }
}
