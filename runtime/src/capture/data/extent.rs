//! An allocation as the engine reads it: in a process that holds still, or what was copied of it.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use ckpt_kernels::merkle::Memory;

use crate::capture::pages::PageSource;

/// A range of memory of any length, at any address.
pub struct Extent<'a> {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Where it is read from.
    pub source: &'a PageSource,
    /// Counts the bytes that are read.
    pub read_bytes: &'a AtomicU64,
}

impl Memory for Extent<'_> {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, ranges: &[Range<u64>], to: &mut Vec<u8>) -> io::Result<()> {
        let at = to.len();
        let ranges: Vec<_> = ranges.iter().map(|range| self.address + range.start..self.address + range.end).collect();
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        to.resize(at + bytes as usize, 0);
        self.source.read_ranges(&ranges, &mut to[at..])
    }
}

/// Parts of an allocation, which are all that is asked for.
pub struct Copied {
    /// Bytes of all of it.
    pub bytes: u64,
    /// The parts, ascending, none of which touches the next.
    pub ranges: Vec<Range<u64>>,
    /// Their content, one behind the other.
    pub content: Vec<u8>,
}

impl Copied {
    /// Copies parts of the allocation at `address`.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn of(address: u64, bytes: u64, ranges: Vec<Range<u64>>, source: &PageSource) -> io::Result<Copied> {
        let there: Vec<_> = ranges.iter().map(|range| address + range.start..address + range.end).collect();
        let mut content = vec![0; there.iter().map(|range| (range.end - range.start) as usize).sum()];
        source.read_ranges(&there, &mut content)?;
        Ok(Copied { bytes, ranges, content })
    }

    /// Where a range is in the content.
    fn find(&self, range: &Range<u64>) -> Option<Range<usize>> {
        let mut at = 0;
        for copied in &self.ranges {
            if copied.start <= range.start && range.end <= copied.end {
                let start = at + (range.start - copied.start) as usize;
                return Some(start..start + (range.end - range.start) as usize);
            }
            at += (copied.end - copied.start) as usize;
        }
        None
    }
}

impl Memory for Copied {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, ranges: &[Range<u64>], to: &mut Vec<u8>) -> io::Result<()> {
        for range in ranges {
            let found = self.find(range).ok_or(io::ErrorKind::NotFound)?;
            to.extend_from_slice(&self.content[found]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(range: Range<u64>) -> Vec<Range<u64>> {
        std::iter::once(range).collect()
    }

    #[test]
    fn what_was_copied_can_be_read_and_nothing_else() {
        let memory: Vec<u8> = (0..100).collect();
        let source = PageSource::open(std::process::id() as i32).unwrap();
        let copied = Copied::of(memory.as_ptr() as u64, 100, vec![3..10, 50..60, 99..100], &source).unwrap();
        let mut bytes = vec![7];
        copied.read(&[4..6, 50..60, 99..100, 10..10], &mut bytes).unwrap();
        assert_eq!(bytes, [&[7, 4, 5][..], &memory[50..60], &[99]].concat());
        assert!(copied.read(&of(9..11), &mut bytes).is_err() && copied.read(&of(20..21), &mut bytes).is_err());
        assert!(Copied::of(8, 1, of(0..1), &source).is_err());
    }
}
