//! An allocation in a process that holds still, as the engine reads it.

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
