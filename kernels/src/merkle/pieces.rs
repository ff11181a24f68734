//! The bytes of regions that a difference stores, on their way to a sink.

use std::{borrow::Cow, io, ops::Range};

use rayon::prelude::*;

use super::{Memory, Sink, forest::Forest, joined::Written};

/// Slices shorter than a quarter of this are put together into buffers as long as this.
const GATHERED_BYTES: u64 = 1 << 20;

/// Slices of regions, in order. Those that touch are one.
pub(super) struct Pieces<'a> {
    regions: Vec<&'a dyn Memory>,
    /// The position of the region, and the bytes in it.
    pieces: Vec<(usize, Range<u64>)>,
}

impl<'a> Pieces<'a> {
    pub fn of(regions: Vec<&'a dyn Memory>) -> Self {
        Self { regions, pieces: Vec::new() }
    }

    /// Adds bytes of a region, behind all that were added.
    pub fn push(&mut self, region: usize, bytes: Range<u64>) {
        match self.pieces.last_mut() {
            Some((last, before)) if *last == region && before.end == bytes.start => before.end = bytes.end,
            _ => self.pieces.push((region, bytes)),
        }
    }

    /// Adds the bytes below a node, and returns its chunks, counted through all regions.
    pub fn push_node(&mut self, forest: &Forest, node: &Written) -> Range<u32> {
        let region = forest.trees.partition_point(|tree| !tree.ends_behind(node.node));
        let tree = &forest.trees[region];
        let chunks = tree.chunks_below_in(node.level.into(), node.node);
        self.push(region, tree.bytes_of_chunks(chunks.clone()));
        tree.first_chunk() + chunks.start..tree.first_chunk() + chunks.end
    }

    /// How long all are together.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, bytes)| bytes.end - bytes.start).sum()
    }

    /// Hands them to a sink: long ones that lie in memory as they are, the others gathered by all cores, some MiB at a time.
    ///
    /// # Errors
    /// The sink's, and those of regions that cannot be read.
    pub fn send(&self, sink: &mut dyn Sink) -> io::Result<()> {
        for batches in self.batches().chunks(2 * rayon::current_num_threads()) {
            let gathered: Vec<_> = batches.par_iter().map(|batch| self.gathered(batch)).collect();
            gathered.into_iter().try_for_each(|bytes| sink.data(&bytes?))?;
        }
        Ok(())
    }

    /// What goes to the sink at a time: a long piece that lies in memory alone; of others as much as a buffer holds.
    fn batches(&self) -> Vec<Batch> {
        let (mut batches, mut room): (Vec<Batch>, u64) = (Vec::new(), 0);
        for (region, bytes) in self.pieces.iter().filter(|(_, bytes)| !bytes.is_empty()) {
            let is_long = bytes.end - bytes.start >= GATHERED_BYTES / 4;
            if is_long && self.regions[*region].as_slice().is_some() {
                batches.push(vec![(*region, bytes.clone())]);
                room = 0;
                continue;
            }
            let mut rest = bytes.clone();
            while !rest.is_empty() {
                let length = rest.end - rest.start;
                if room == 0 || (room < length && length <= GATHERED_BYTES) {
                    batches.push(Batch::new());
                    room = GATHERED_BYTES;
                }
                let part = rest.start..rest.end.min(rest.start + room);
                (rest.start, room) = (part.end, room - (part.end - part.start));
                batches.last_mut().into_iter().for_each(|batch| batch.push((*region, part.clone())));
            }
        }
        batches
    }

    fn gathered(&self, batch: &Batch) -> io::Result<Cow<'_, [u8]>> {
        if let [(region, bytes)] = &batch[..]
            && let Some(slice) = self.regions[*region].as_slice()
        {
            return Ok(Cow::Borrowed(&slice[bytes.start as usize..bytes.end as usize]));
        }
        let mut gathered = Vec::with_capacity(GATHERED_BYTES as usize);
        for of_region in batch.chunk_by(|(one, _), (other, _)| one == other) {
            let ranges: Vec<_> = of_region.iter().map(|(_, bytes)| bytes.clone()).collect();
            self.regions[of_region[0].0].read(&ranges, &mut gathered)?;
        }
        Ok(Cow::Owned(gathered))
    }
}

/// Pieces that go to the sink together.
type Batch = Vec<(usize, Range<u64>)>;

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
        let (first, second) = (&bytes[..], &bytes[7..9_000]);
        let mut pieces = Pieces::of(vec![&first, &second]);
        let (mut expected, mut from) = (Vec::new(), 0);
        for length in [1, 300_000, 5, 200_000, 262_143, 262_144, 250_000, 250_000, 250_000, 250_000, 250_000, 100, 9] {
            pieces.push(0, from as u64..(from + length) as u64);
            expected.extend_from_slice(&bytes[from..from + length]);
            from += length + 1;
        }
        pieces.push(1, 0..31);
        pieces.push(1, 31..100);
        expected.extend_from_slice(&second[..100]);
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
