//! Where the bytes of a checkpoint are.
//!
//! A chunk is restored from the newest difference, from the checkpoint asked for backwards, that says anything of it: it is
//! stored there, or there is a reference to a node with the same bytes. What is below that is stored with that checkpoint, or
//! referred to in turn, from lower levels and within that checkpoint: so one difference is enough to follow a reference, and it
//! is followed at most as often as a tree has levels. Ranges of chunks are independent of one another, so
//! they are found, copied and compared in parallel.

use std::{collections::BTreeMap, ops::Range};

use rayon::prelude::*;

use super::{
    Result,
    checked::{Checked, Piece, Place},
    forest::Tree,
};

/// Bytes of a region that a thread finds at a time.
const RANGE_BYTES: u64 = 1 << 20;

/// Bytes of a region, where they are stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    /// Offset of the first one in the region.
    pub offset: u64,
    /// The bytes, counted in the data of a difference.
    pub bytes: Range<u64>,
    /// The checkpoint of that difference.
    pub checkpoint: u32,
    /// The checkpoint whose difference says so.
    pub said_by: u32,
}

impl Stored {
    /// Leaves those that are in this range of the region, which has some of them.
    pub(super) fn clip(&mut self, range: &Range<u64>) {
        let behind = self.offset + (self.bytes.end - self.bytes.start);
        self.bytes.end -= behind.saturating_sub(range.end);
        let skipped = range.start.saturating_sub(self.offset);
        self.offset += skipped;
        self.bytes.start += skipped;
    }
}

/// Finds the bytes of one checkpoint.
#[derive(Clone, Copy)]
pub(super) struct Plan<'a> {
    pub differences: &'a BTreeMap<u32, Checked>,
    pub wanted: &'a Checked,
}

impl Plan<'_> {
    /// Ranges of the chunks of a tree, and of their bytes, in order. All but the last have the same number of bytes.
    pub fn ranges(self, tree: &Tree) -> impl IndexedParallelIterator<Item = Range<u32>> {
        let each = (RANGE_BYTES / u64::from(self.wanted.chunk_bytes)) as u32;
        let chunks = tree.chunks();
        (0..chunks.div_ceil(each)).into_par_iter().map(move |at| at * each..chunks.min((at + 1).saturating_mul(each)))
    }

    /// Bytes of every range but the last.
    pub fn range_bytes(self) -> usize {
        let chunk_bytes = u64::from(self.wanted.chunk_bytes);
        (RANGE_BYTES / chunk_bytes * chunk_bytes) as usize
    }

    /// Where these chunks of a tree are stored.
    ///
    /// # Errors
    /// [`super::Error::Corrupt`] when that is nowhere, or of another length.
    pub fn stored(self, tree: &Tree, chunks: Range<u32>) -> Result<Vec<Stored>> {
        let (mut missing, mut stored) = (vec![chunks], Vec::new());
        for (&said_by, known) in self.differences.range(..=self.wanted.checkpoint).rev() {
            if missing.is_empty() {
                break;
            }
            let Some(at) = known.tree_of_region(tree.region.id) else { continue };
            for (piece, chunks) in said_of(known.pieces_of(at), &mut missing) {
                let bytes = tree.bytes_of_chunks(chunks.clone());
                let is_as_long = known.forest.trees[at].bytes_of_chunks(chunks.clone()) == bytes;
                let mut offset = bytes.start;
                let mut push = |checkpoint, bytes: Range<u64>| {
                    let length = bytes.end - bytes.start;
                    stored.push(Stored { offset, bytes, checkpoint, said_by });
                    offset += length;
                };
                let found = is_as_long.then(|| resolve(self.differences, known, piece, &chunks, &mut push)).flatten();
                found.ok_or_else(|| self.wanted.unsaid(tree, &chunks))?;
            }
        }
        missing.first().map_or(Ok(stored), |chunks| Err(self.wanted.unsaid(tree, chunks)))
    }
}

/// Says where the bytes of some chunks of a piece are, in their order: with which checkpoint, and where in its data. Nothing,
/// if they are not where they should be.
fn resolve(
    differences: &BTreeMap<u32, Checked>,
    known: &Checked,
    piece: &Piece,
    chunks: &Range<u32>,
    push: &mut impl FnMut(u32, Range<u64>),
) -> Option<()> {
    let skipped = chunks.start - piece.chunks.start;
    let Place::There(source, _) = piece.place else {
        push(known.checkpoint, known.stored_in(piece, skipped, known.bytes(piece.tree, chunks))?);
        return Some(());
    };
    let there = known.at(source, differences)?;
    let (at, from) = there.below(source.node)?;
    let first = from.start + skipped;
    let wanted = first..first + (chunks.end - chunks.start);
    for piece in there.pieces_over(at, &wanted) {
        let chunks = piece.chunks.start.max(wanted.start)..piece.chunks.end.min(wanted.end);
        resolve(differences, there, piece, &chunks, push)?;
    }
    Some(())
}

/// The missing chunks of which these pieces say something, with the piece; they are missing no more. All are in order.
fn said_of<'a>(pieces: &'a [Piece], missing: &mut Vec<Range<u32>>) -> Vec<(&'a Piece, Range<u32>)> {
    let (Some(first), Some(last)) = (missing.first(), missing.last()) else { return Vec::new() };
    let begin = pieces.partition_point(|piece| piece.chunks.end <= first.start);
    let end = begin + pieces[begin..].partition_point(|piece| piece.chunks.start < last.end);
    if begin == end {
        return Vec::new();
    }
    let (mut said, mut still_missing) = (Vec::new(), Vec::new());
    let mut pieces = &pieces[begin..end];
    for gap in missing.drain(..) {
        let mut from = gap.start;
        pieces = &pieces[pieces.partition_point(|piece| piece.chunks.end <= gap.start)..];
        for piece in pieces.iter().take_while(|piece| piece.chunks.start < gap.end) {
            let chunks = piece.chunks.start.max(from)..piece.chunks.end.min(gap.end);
            if from < chunks.start {
                still_missing.push(from..chunks.start);
            }
            from = chunks.end;
            said.push((piece, chunks));
        }
        if from < gap.end {
            still_missing.push(from..gap.end);
        }
    }
    *missing = still_missing;
    said
}
