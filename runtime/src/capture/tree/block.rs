//! A block of a mapping, as the engine reads it.

use std::io;
use std::ops::Range;

use ckpt_kernels::merkle::{Live, Memory};
use ckpt_store::PAGE_BYTES;

use crate::capture::pages::PageSource;
use crate::page_set::PageSet;

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

    /// Bytes that may have changed, counted from the block's start, if that is known.
    pub fn changed(&self) -> Option<&[Range<u64>]> {
        self.changed.as_deref()
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
        Live { id: self.block.addresses.start, memory: self, changed: self.block.changed() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_arrive_one_after_another_and_pages_that_are_not_there_are_zero() {
        let memory: Vec<u8> = (0..20 * PAGE as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let start = memory.as_ptr() as u64;
        let mut present = PageSet::default();
        [1..3, 5..6, 7..19].into_iter().for_each(|run| present.push(run));
        let block = Block::new(start..start + 20 * PAGE, present.clone(), Some(PageSet::of(4..6)));
        let source = PageSource::open(std::process::id() as i32).unwrap();
        let live = BlockMemory { block: &block, source: &source };
        assert!(live.live().changed.into_iter().flatten().eq([&(4 * PAGE..6 * PAGE)]));
        let expected = |at: u64| match present.runs_in(at / PAGE..at / PAGE + 1).next() {
            Some(_) => memory[at as usize],
            None => 0,
        };
        let ranges = [0..1, 100..PAGE + 7, 2 * PAGE..8 * PAGE, 9 * PAGE + 1..9 * PAGE + 2, 18 * PAGE - 5..20 * PAGE];
        let mut bytes = vec![3];
        live.read(&ranges, &mut bytes).unwrap();
        let wanted: Vec<u8> = std::iter::once(3).chain(ranges.into_iter().flatten().map(expected)).collect();
        assert!(bytes == wanted);
    }
}
