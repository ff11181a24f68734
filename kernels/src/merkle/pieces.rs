//! The bytes of regions that a difference stores, on their way to a sink.

use std::{borrow::Cow, io, ops::Range};

use rayon::prelude::*;

use super::{Region, Sink, forest::Forest, joined::Written};

/// Slices shorter than a quarter of this are put together into buffers as long as this.
const GATHERED_BYTES: usize = 1 << 20;

/// Slices of regions, in order. Those that touch are one.
pub(super) struct Pieces<'a> {
    regions: &'a [Region<'a>],
    /// The position of the region, and the bytes in it.
    pieces: Vec<(usize, Range<u64>)>,
}

impl<'a> Pieces<'a> {
    pub fn of(regions: &'a [Region<'a>]) -> Self {
        Self { regions, pieces: Vec::new() }
    }

    /// Adds bytes of a region, behind all that were added.
    pub fn push(&mut self, region: usize, bytes: Range<u64>) {
        match self.pieces.last_mut() {
            Some((last, before)) if *last == region && before.end == bytes.start => before.end = bytes.end,
            _ => self.pieces.push((region, bytes)),
        }
    }

    /// Adds the bytes below a node.
    pub fn push_node(&mut self, forest: &Forest, node: &Written) {
        let region = forest.trees.partition_point(|tree| !tree.ends_behind(node.node));
        let tree = &forest.trees[region];
        self.push(region, tree.bytes_of_chunks(tree.chunks_below_in(node.level.into(), node.node)));
    }

    /// How long all are together.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, bytes)| bytes.end - bytes.start).sum()
    }

    /// Hands them to a sink. Short ones are gathered by all cores, some MiB at a time.
    ///
    /// # Errors
    /// The sink's.
    pub fn send(&self, sink: &mut dyn Sink) -> io::Result<()> {
        for batches in self.batches().chunks(2 * rayon::current_num_threads()) {
            let gathered: Vec<Cow<'_, [u8]>> = batches.par_iter().map(|batch| self.gathered(batch.clone())).collect();
            gathered.iter().try_for_each(|bytes| sink.data(bytes))?;
        }
        Ok(())
    }

    /// Ranges of pieces: a long one alone, short ones as many as fit into a buffer.
    fn batches(&self) -> Vec<Range<usize>> {
        let (mut batches, mut length): (Vec<Range<usize>>, usize) = (Vec::new(), GATHERED_BYTES);
        for (at, (_, bytes)) in self.pieces.iter().enumerate().filter(|(_, (_, bytes))| !bytes.is_empty()) {
            let piece = (bytes.end - bytes.start) as usize;
            let is_long = piece >= GATHERED_BYTES / 4;
            match batches.last_mut() {
                Some(batch) if !is_long && length + piece <= GATHERED_BYTES => batch.end = at + 1,
                _ => {
                    batches.push(at..at + 1);
                    length = 0;
                }
            }
            length += if is_long { GATHERED_BYTES } else { piece };
        }
        batches
    }

    fn gathered(&self, batch: Range<usize>) -> Cow<'_, [u8]> {
        let piece = |(region, bytes): &(usize, Range<u64>)| {
            &self.regions[*region].bytes[bytes.start as usize..bytes.end as usize]
        };
        match &self.pieces[batch] {
            [one] => Cow::Borrowed(piece(one)),
            many => Cow::Owned(many.iter().map(piece).collect::<Vec<_>>().concat()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merkle::{Difference, Head};

    /// Fails at the given call.
    struct Failing(Difference, usize);

    impl Failing {
        fn next(&mut self) -> io::Result<()> {
            self.1 = self.1.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
            Ok(())
        }
    }

    impl Sink for Failing {
        fn head(&mut self, head: &Head) -> io::Result<()> {
            self.next().and_then(|()| self.0.head(head))
        }

        fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
            assert!(!bytes.is_empty());
            self.next().and_then(|()| self.0.data(bytes))
        }
    }

    #[test]
    fn long_and_short_slices_arrive_in_their_order_until_the_sink_fails() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let regions = [Region { id: 3, bytes: &bytes }, Region { id: 1, bytes: &bytes[7..9_000] }];
        let mut pieces = Pieces::of(&regions);
        let (mut expected, mut from) = (Vec::new(), 0);
        for length in [1, 300_000, 5, 200_000, 262_143, 262_144, 250_000, 250_000, 250_000, 250_000, 250_000, 100, 9] {
            pieces.push(0, from as u64..(from + length) as u64);
            expected.extend_from_slice(&bytes[from..from + length]);
            from += length + 1;
        }
        pieces.push(1, 0..31);
        pieces.push(1, 31..100);
        expected.extend_from_slice(&regions[1].bytes[..100]);
        assert_eq!(pieces.bytes(), expected.len() as u64);
        for failing_call in 0.. {
            let mut sink = Failing(Difference::default(), failing_call);
            match pieces.send(&mut sink) {
                Ok(()) => {
                    assert!(sink.0.data == expected);
                    assert_eq!((sink.1, failing_call), (0, 6), "calls");
                    return;
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
                    assert!(sink.0.data.len() < expected.len() && expected.starts_with(&sink.0.data));
                }
            }
        }
    }
}
