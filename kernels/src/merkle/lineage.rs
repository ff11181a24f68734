//! The differences of a lineage, and what they restore.
//!
//! A chunk is restored from the newest difference, from the checkpoint asked for backwards, that says anything of it: it is
//! stored there, or there is a reference to where it is stored. References lead to bytes and never further, so what a
//! checkpoint needs is known before a byte is read, and regions are restored in parallel.
//!
//! A difference that says nothing of the chunks that are needed can go, wherever it lies in the lineage. The newest one
//! stays always: the next difference will say what has changed since.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use rayon::prelude::*;

use super::{
    Body, Difference, Error, Head, Result,
    checked::{Checked, Piece, Place},
    forest::{RegionShape, Tree},
};

/// Differences by the number of their checkpoint.
#[derive(Clone, Default)]
pub struct Lineage {
    differences: BTreeMap<u32, Checked>,
    /// Checkpoints that can be restored. Others are there because these need them.
    kept: BTreeSet<u32>,
}

/// Where bytes of a region come from.
#[derive(Clone, Debug)]
struct Copy {
    /// In the region to be restored.
    to: u64,
    bytes: u64,
    /// The checkpoint whose difference says so.
    said_by: u32,
    /// The one that has the bytes.
    checkpoint: u32,
    data_offset: u64,
}

impl Lineage {
    /// Adds a difference.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it contradicts itself or what it refers to; [`Error::OutOfOrder`].
    pub fn add(&mut self, difference: Difference) -> Result<()> {
        let Head { checkpoint, previous, .. } = difference.head;
        let last = self.differences.last_key_value().map(|(last, _)| *last);
        if let Some(last) = last.filter(|last| *last >= checkpoint) {
            return Err(Error::OutOfOrder { checkpoint, last });
        }
        if previous.is_some() && previous != last {
            let what = format!("it follows checkpoint {previous:?}, and the newest here is {last:?}");
            return Err(difference.head.corrupt(what));
        }
        let known = Checked::new(difference)?;
        self.differences.insert(checkpoint, known);
        self.kept.insert(checkpoint);
        // Whatever it refers to must be there and be as long: then it can always be restored.
        self.plan(checkpoint).map(drop).inspect_err(|_| {
            self.differences.remove(&checkpoint);
            self.kept.remove(&checkpoint);
        })
    }

    /// The checkpoints that can be restored.
    pub fn checkpoints(&self) -> impl Iterator<Item = u32> {
        self.kept.iter().copied()
    }

    /// The difference of a checkpoint that can be restored, or that one of these needs.
    pub fn difference(&self, checkpoint: u32) -> Option<&Difference> {
        self.differences.get(&checkpoint).map(|known| &known.difference)
    }

    /// The regions of a checkpoint, as they were.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`].
    pub fn restore(&self, checkpoint: u32) -> Result<Vec<(u64, Vec<u8>)>> {
        let regions = &self.get(checkpoint)?.difference.head.regions;
        let plans = self.plan(checkpoint)?;
        let restore = |(region, copies): (&RegionShape, Vec<Copy>)| {
            let mut bytes = vec![0; region.bytes as usize];
            for copy in copies {
                let from = &self.differences[&copy.checkpoint].difference.data;
                let (to, from_offset, length) = (copy.to as usize, copy.data_offset as usize, copy.bytes as usize);
                bytes[to..to + length].copy_from_slice(&from[from_offset..from_offset + length]);
            }
            (region.id, bytes)
        };
        Ok(regions.par_iter().zip(plans).map(restore).collect())
    }

    /// Keeps these checkpoints alone, the differences that they need, and the newest with what it needs. Returns the numbers
    /// of the differences that are gone, which an [`super::Engine`] must forget.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`], and then nothing is gone.
    pub fn keep(&mut self, checkpoints: &[u32]) -> Result<Vec<u32>> {
        checkpoints.iter().try_for_each(|checkpoint| self.get(*checkpoint).map(drop))?;
        let mut needed = BTreeSet::new();
        let newest = self.differences.last_key_value().map(|(newest, _)| *newest);
        for checkpoint in checkpoints.iter().copied().chain(newest) {
            needed.insert(checkpoint);
            needed.extend(self.plan(checkpoint)?.iter().flatten().flat_map(|copy| [copy.said_by, copy.checkpoint]));
        }
        self.kept = checkpoints.iter().copied().collect();
        let gone: Vec<u32> = self.differences.keys().filter(|number| !needed.contains(number)).copied().collect();
        gone.iter().for_each(|number| drop(self.differences.remove(number)));
        Ok(gone)
    }

    /// Stores everything of a checkpoint with it, so that it needs no other.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`].
    pub fn flatten(&mut self, checkpoint: u32) -> Result<()> {
        let data: Vec<u8> = self.restore(checkpoint)?.into_iter().flat_map(|(_, bytes)| bytes).collect();
        let head = &self.get(checkpoint)?.difference.head;
        let (regions, data_bytes) = (head.regions.clone(), data.len() as u64);
        let head = Head { previous: None, regions, body: Body::Full, data_bytes, ..*head };
        let flat = Difference { head, data };
        self.differences.insert(checkpoint, Checked::new(flat)?);
        Ok(())
    }

    fn get(&self, checkpoint: u32) -> Result<&Checked> {
        let is_kept = self.kept.contains(&checkpoint);
        self.differences.get(&checkpoint).filter(|_| is_kept).ok_or(Error::NoSuchCheckpoint { checkpoint })
    }

    /// Where the bytes of each region come from.
    fn plan(&self, checkpoint: u32) -> Result<Vec<Vec<Copy>>> {
        let wanted = &self.differences[&checkpoint];
        wanted.forest.trees.par_iter().map(|tree| self.plan_of(wanted, tree)).collect()
    }

    fn plan_of(&self, wanted: &Checked, tree: &Tree) -> Result<Vec<Copy>> {
        let region = tree.region;
        let all = 0..tree.chunks();
        let mut missing: Vec<Range<u32>> = Some(all).filter(|chunks| !chunks.is_empty()).into_iter().collect();
        let mut copies = Vec::new();
        for (&number, known) in self.differences.range(..=wanted.difference.head.checkpoint).rev() {
            if missing.is_empty() {
                break;
            }
            let Some(at) = known.forest.tree_of_region(region.id) else { continue };
            for (piece, chunks) in found(known.pieces_of(at), &mut missing) {
                let to = tree.bytes_of_chunks(chunks.clone());
                if known.forest.trees[at].bytes_of_chunks(chunks.clone()) != to {
                    let what = format!("chunks {chunks:?} of region {} were not as long before", region.id);
                    return Err(wanted.difference.head.corrupt(what));
                }
                let skipped = chunks.start - piece.chunks.start;
                let (checkpoint, data_offset) = self.resolve(known, piece, skipped, chunks.end - chunks.start)?;
                copies.push(Copy { to: to.start, bytes: to.end - to.start, said_by: number, checkpoint, data_offset });
            }
        }
        match missing.first() {
            Some(chunks) => {
                let what = format!("nothing says what chunks {chunks:?} of region {} are", region.id);
                Err(wanted.difference.head.corrupt(what))
            }
            None => Ok(copies),
        }
    }

    /// Where `count` chunks of a piece are stored, after the first `skipped` ones.
    fn resolve(&self, known: &Checked, piece: &Piece, skipped: u32, count: u32) -> Result<(u32, u64)> {
        let chunk_bytes = u64::from(known.difference.head.chunk_bytes);
        let source = match piece.place {
            Place::Here(offset) => {
                return Ok((known.difference.head.checkpoint, offset + u64::from(skipped) * chunk_bytes));
            }
            Place::There(source) => source,
        };
        let lost = || known.difference.head.corrupt(format!("it refers to {source:?}, which is not stored"));
        let there = self.differences.get(&source.checkpoint).ok_or_else(lost)?;
        let at = there.forest.tree_of(source.node).ok_or_else(lost)?;
        let from = there.forest.trees[at].chunks_below(source.node);
        let is_as_long = there.bytes(at, &from) == known.bytes(piece.tree, &piece.chunks);
        if !is_as_long || there.difference.head.chunk_bytes != known.difference.head.chunk_bytes {
            return Err(known.difference.head.corrupt(format!("it refers to {source:?}, which is of another length")));
        }
        let first = from.start + skipped;
        let pieces = there.pieces_of(at);
        let behind = pieces.partition_point(|piece| piece.chunks.start <= first);
        match pieces[..behind].last() {
            Some(Piece { chunks, place: Place::Here(offset), .. }) if chunks.end >= first + count => {
                Ok((source.checkpoint, offset + u64::from(first - chunks.start) * chunk_bytes))
            }
            _ => Err(lost()),
        }
    }
}

/// The missing chunks of which these pieces say something, with the piece; they are missing no more. All are in order.
fn found<'a>(pieces: &'a [Piece], missing: &mut Vec<Range<u32>>) -> Vec<(&'a Piece, Range<u32>)> {
    let (mut found, mut still_missing) = (Vec::new(), Vec::new());
    for gap in missing.drain(..) {
        let mut from = gap.start;
        let first = pieces.partition_point(|piece| piece.chunks.end <= gap.start);
        for piece in pieces[first..].iter().take_while(|piece| piece.chunks.start < gap.end) {
            let chunks = piece.chunks.start.max(from)..piece.chunks.end.min(gap.end);
            if from < chunks.start {
                still_missing.push(from..chunks.start);
            }
            from = chunks.end;
            found.push((piece, chunks));
        }
        if from < gap.end {
            still_missing.push(from..gap.end);
        }
    }
    *missing = still_missing;
    found
}
