//! A block of a mapping, as the engine reads it.

use std::io;
use std::ops::Range;

use ckpt_kernels::merkle::{Live, Memory};
use ckpt_store::PAGE_BYTES;

use crate::capture::page_set::PageSet;
use crate::capture::pages::PageSource;

const PAGE: u64 = PAGE_BYTES as u64;

/// A part of a mapping, page 0 of which is its first.
pub struct Block {
    pub addresses: Range<u64>,
    /// Pages that are there; the others are zero.
    pub present: PageSet,
    /// Bytes that may have changed since the last sealed checkpoint, if that is known.
    changed: Option<Vec<Range<u64>>>,
}

impl Block {
    /// The block at these addresses, of which these pages are there, and these may have changed.
    pub fn new(addresses: Range<u64>, present: PageSet, changed: Option<PageSet>) -> Block {
        let changed = changed.map(|pages| pages.ranges().map(|run| run.start * PAGE..run.end * PAGE).collect());
        Block { addresses, present, changed }
    }
}

/// A block in a process that holds still.
pub struct BlockMemory<'a> {
    pub block: &'a Block,
    pub source: &'a PageSource,
}

impl BlockMemory<'_> {
    /// As the engine wants it.
    pub fn live(&self) -> Live<'_> {
        Live { id: self.block.addresses.start, memory: self, changed: self.block.changed.as_deref() }
    }

    /// Fills `to` with the bytes of a range, which counts from the block's start; pages that are not there stay zero.
    pub fn fill(&self, ranges: &[Range<u64>], to: &mut [u8]) -> io::Result<()> {
        let (mut filled, mut wanted): (usize, Vec<(usize, Range<u64>)>) = (0, Vec::new());
        for range in ranges {
            for run in self.block.present.runs_in(range.start / PAGE..range.end.div_ceil(PAGE)) {
                let there = range.start.max(run.start * PAGE)..range.end.min(run.end * PAGE);
                let start = self.block.addresses.start;
                wanted.push((filled + (there.start - range.start) as usize, start + there.start..start + there.end));
            }
            filled += (range.end - range.start) as usize;
        }
        let touches = |(at, one): &(usize, Range<u64>), (next, _): &(usize, Range<u64>)| {
            at + (one.end - one.start) as usize == *next
        };
        for run in wanted.chunk_by(touches) {
            let at = run[0].0;
            let ranges: Vec<_> = run.iter().map(|(_, range)| range.clone()).collect();
            let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            self.source.read_ranges(&ranges, &mut to[at..at + bytes as usize])?;
        }
        Ok(())
    }
}

impl Memory for BlockMemory<'_> {
    fn bytes(&self) -> u64 {
        self.block.addresses.end - self.block.addresses.start
    }

    fn read(&self, ranges: &[Range<u64>], to: &mut Vec<u8>) -> io::Result<()> {
        let (at, bytes) = (to.len(), ranges.iter().map(|range| range.end - range.start).sum::<u64>());
        to.resize(at + bytes as usize, 0);
        self.fill(ranges, &mut to[at..])
    }
}
