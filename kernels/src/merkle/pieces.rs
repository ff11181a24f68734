//! The bytes of regions that a difference stores, on their way to a sink.

use std::{io, ops::Range};

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

    /// Hands them to a sink: long ones that lie in memory as they are, and all others gathered.
    ///
    /// # Errors
    /// The sink's, and those of regions that cannot be read.
    pub fn send(&self, sink: &mut dyn Sink) -> io::Result<()> {
        let mut batch = Batch { regions: &self.regions, pieces: Vec::new(), bytes: 0, gathered: Vec::new() };
        for (region, bytes) in &self.pieces {
            let is_long = bytes.end - bytes.start >= GATHERED_BYTES / 4;
            match self.regions[*region].as_slice().filter(|_| is_long) {
                Some(slice) => {
                    batch.send(sink)?;
                    sink.data(&slice[bytes.start as usize..bytes.end as usize])?;
                }
                None => batch.push(*region, bytes.clone(), sink)?,
            }
        }
        batch.send(sink)
    }
}

/// Pieces that are on their way to the sink together.
struct Batch<'a> {
    regions: &'a [&'a dyn Memory],
    pieces: Vec<(usize, Range<u64>)>,
    bytes: u64,
    gathered: Vec<u8>,
}

impl Batch<'_> {
    fn push(&mut self, region: usize, mut bytes: Range<u64>, sink: &mut dyn Sink) -> io::Result<()> {
        while !bytes.is_empty() {
            let part = bytes.start..bytes.end.min(bytes.start + GATHERED_BYTES);
            bytes.start = part.end;
            if self.bytes + (part.end - part.start) > GATHERED_BYTES {
                self.send(sink)?;
            }
            self.bytes += part.end - part.start;
            self.pieces.push((region, part));
        }
        Ok(())
    }

    fn send(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        if self.pieces.is_empty() {
            return Ok(());
        }
        self.gathered.clear();
        for of_region in self.pieces.chunk_by(|(one, _), (other, _)| one == other) {
            let ranges: Vec<_> = of_region.iter().map(|(_, bytes)| bytes.clone()).collect();
            self.regions[of_region[0].0].read(&ranges, &mut self.gathered)?;
        }
        self.pieces.clear();
        self.bytes = 0;
        sink.data(&self.gathered)
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
