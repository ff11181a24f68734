//! The differences of a lineage, in memory, and what they restore. Where the bytes are is said by places.rs.

use std::{collections::BTreeMap, collections::BTreeSet, ops::Range};

use rayon::prelude::*;

use super::{
    Body, Difference, Error, Head, Region, Result,
    forest::Tree,
    places::Places,
    plan::{Plan, Stored},
};

/// Differences by the number of their checkpoint.
#[derive(Clone, Default)]
pub struct Lineage {
    places: Places,
    differences: BTreeMap<u32, Difference>,
}

/// The first byte that is not as a lineage would restore it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// The region's id. It has another length, or is in one of the two alone, if all bytes that both have are equal.
    pub region: u64,
    /// Offset of the byte in the region.
    pub offset: u64,
}

impl Lineage {
    /// Adds a difference.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it contradicts itself or what it refers to; [`Error::OutOfOrder`].
    pub fn add(&mut self, difference: Difference) -> Result<()> {
        let Head { checkpoint, data_bytes, .. } = difference.head;
        let stored = difference.data.len();
        if stored as u64 != data_bytes {
            return Err(difference.head.corrupt(format!("{stored} bytes are stored, and {data_bytes} should be")));
        }
        self.places.add(&difference.head)?;
        self.differences.insert(checkpoint, difference);
        Ok(())
    }

    /// Takes the newest difference out again. Nothing may have been removed since it was added.
    pub(crate) fn take_back(&mut self) {
        self.places.take_back();
        self.differences.pop_last();
    }

    /// The checkpoints that can be restored.
    pub fn checkpoints(&self) -> impl Iterator<Item = u32> {
        self.places.checkpoints()
    }

    /// The difference of a checkpoint that can be restored, or that one of these needs.
    pub fn difference(&self, checkpoint: u32) -> Option<&Difference> {
        self.differences.get(&checkpoint)
    }

    /// The regions of a checkpoint, as they were.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`].
    pub fn restore(&self, checkpoint: u32) -> Result<Vec<(u64, Vec<u8>)>> {
        let plan = self.places.plan(checkpoint)?;
        let restore = |tree: &Tree| {
            let mut bytes = vec![0; tree.region.bytes as usize];
            self.restore_tree(plan, tree, 0, &mut bytes).map(|()| (tree.region.id, bytes))
        };
        plan.wanted.forest.trees.par_iter().map(restore).collect()
    }

    /// A part of a region of a checkpoint, as it was, from an offset on.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`], [`Error::NoSuchRegion`] when the region was not there or shorter.
    pub fn restore_part(&self, checkpoint: u32, region: u64, offset: u64, to: &mut [u8]) -> Result<()> {
        let plan = self.places.plan(checkpoint)?;
        let end = offset.saturating_add(to.len() as u64);
        let tree = plan.wanted.tree_of_region(region).map(|at| &plan.wanted.forest.trees[at]);
        let tree = tree.filter(|tree| end <= tree.region.bytes);
        self.restore_tree(plan, tree.ok_or(Error::NoSuchRegion { checkpoint, region, bytes: end })?, offset, to)
    }

    /// Compares regions with what would be restored, without restoring it.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`].
    pub fn mismatch(&self, checkpoint: u32, regions: &[Region<'_>]) -> Result<Option<Mismatch>> {
        let plan = self.places.plan(checkpoint)?;
        for region in regions {
            let tree = plan.wanted.tree_of_region(region.id).map(|at| &plan.wanted.forest.trees[at]);
            let known_bytes = tree.map_or(0, |tree| tree.region.bytes);
            let differs = tree.map_or(Ok(None), |tree| self.first_difference(plan, tree, region.bytes))?;
            let is_as_long = tree.is_some() && known_bytes == region.bytes.len() as u64;
            let end = known_bytes.min(region.bytes.len() as u64);
            if let Some(offset) = differs.or((!is_as_long).then_some(end)) {
                return Ok(Some(Mismatch { region: region.id, offset }));
            }
        }
        let live: BTreeSet<u64> = regions.iter().map(|region| region.id).collect();
        let mut known = plan.wanted.forest.trees.iter().map(|tree| tree.region.id);
        Ok(known.find(|region| !live.contains(region)).map(|region| Mismatch { region, offset: 0 }))
    }

    /// Keeps these checkpoints alone, the differences that they need, and the newest with what it needs. Returns the numbers
    /// of the differences that are gone, which an [`super::Engine`] must forget.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`], and then nothing is gone.
    pub fn keep(&mut self, checkpoints: &[u32]) -> Result<Vec<u32>> {
        let gone = self.places.keep(checkpoints)?;
        gone.iter().for_each(|number| drop(self.differences.remove(number)));
        Ok(gone)
    }

    /// Stores everything of a checkpoint with it, so that it needs no other.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`].
    pub fn flatten(&mut self, checkpoint: u32) -> Result<()> {
        let plan = self.places.plan(checkpoint)?;
        let regions: Vec<_> = plan.wanted.forest.trees.iter().map(|tree| tree.region).collect();
        let data_bytes = regions.iter().map(|region| region.bytes).sum();
        let mut data = vec![0; data_bytes as usize];
        let mut rest = &mut data[..];
        for tree in &plan.wanted.forest.trees {
            let (bytes, behind) = rest.split_at_mut(tree.region.bytes as usize);
            self.restore_tree(plan, tree, 0, bytes)?;
            rest = behind;
        }
        let chunk_bytes = plan.wanted.chunk_bytes;
        let head = Head { checkpoint, previous: None, chunk_bytes, regions, body: Body::Full, data_bytes };
        self.places.replace(&head)?;
        self.differences.insert(checkpoint, Difference { head, data });
        Ok(())
    }

    fn bytes_of(&self, stored: &Stored) -> Option<&[u8]> {
        let Range { start, end } = stored.bytes;
        self.differences.get(&stored.checkpoint)?.data.get(start as usize..end as usize)
    }

    fn restore_tree(&self, plan: Plan<'_>, tree: &Tree, offset: u64, to: &mut [u8]) -> Result<()> {
        let piece_bytes = plan.range_bytes();
        to.par_chunks_mut(piece_bytes).enumerate().try_for_each(|(number, to)| {
            let begin = offset + (number * piece_bytes) as u64;
            let wanted = begin..begin + to.len() as u64;
            for mut stored in plan.stored(tree, tree.chunks_with(wanted.clone()))? {
                // A piece need not begin and end where chunks do.
                stored.clip(&wanted);
                let bytes = self.bytes_of(&stored).unwrap_or_default();
                let from = (stored.offset - begin) as usize;
                to[from..from + bytes.len()].copy_from_slice(bytes);
            }
            Ok(())
        })
    }

    /// The offset of the first byte that is not as it would be restored, of those that there are.
    fn first_difference(&self, plan: Plan<'_>, tree: &Tree, live: &[u8]) -> Result<Option<u64>> {
        let differs = |chunks: Range<u32>| {
            let stored = match plan.stored(tree, chunks) {
                Ok(stored) => stored,
                Err(error) => return Some(Err(error)),
            };
            let offsets = stored.iter().filter_map(|stored| {
                let live = live.get(stored.offset as usize..).unwrap_or_default();
                let stored_bytes = self.bytes_of(stored).unwrap_or_default();
                let length = stored_bytes.len().min(live.len());
                let (live, stored_bytes) = (&live[..length], &stored_bytes[..length]);
                let at = (live != stored_bytes).then(|| live.iter().zip(stored_bytes).position(|(a, b)| a != b));
                Some(stored.offset + at?? as u64)
            });
            offsets.min().map(Ok)
        };
        plan.ranges(tree).find_map_first(differs).transpose()
    }
}
