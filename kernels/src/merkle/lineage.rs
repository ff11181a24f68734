//! The differences of a lineage, and what they restore.
//!
//! What has been added can be restored: a difference is taken only if what it refers to is stored, and what it says nothing
//! of is as it was at the newest checkpoint, all of which can be restored already. So adding looks at the new difference
//! alone, however long the lineage is.
//!
//! A difference that says nothing of the chunks that are needed can go, wherever it lies in the lineage. The newest one
//! stays always: the next difference will say what has changed since.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use rayon::prelude::*;

use super::{Body, Difference, Error, Head, Region, Result, checked::Checked, forest::Tree, plan::Plan};

/// Differences by the number of their checkpoint.
#[derive(Clone, Default)]
pub struct Lineage {
    differences: BTreeMap<u32, Checked>,
    /// Checkpoints that can be restored. Others are there because these need them.
    kept: BTreeSet<u32>,
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
        let Head { checkpoint, previous, .. } = difference.head;
        let newest = self.differences.last_key_value();
        let last = newest.map(|(last, _)| *last);
        if let Some(last) = last.filter(|last| *last >= checkpoint) {
            return Err(Error::OutOfOrder { checkpoint, last });
        }
        if previous.is_some() && previous != last {
            let what = format!("it follows checkpoint {previous:?}, and the newest here is {last:?}");
            return Err(difference.head.corrupt(what));
        }
        let known = Checked::new(difference)?;
        known.check_references(&self.differences)?;
        known.check_unsaid(newest.map(|(_, newest)| newest).filter(|_| previous.is_some()))?;
        self.differences.insert(checkpoint, known);
        self.kept.insert(checkpoint);
        Ok(())
    }

    /// Takes the newest difference out again. Nothing may have been removed since it was added.
    pub(crate) fn take_back(&mut self) {
        let newest = self.differences.pop_last();
        newest.map(|(checkpoint, _)| self.kept.remove(&checkpoint));
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
        let plan = self.plan(checkpoint)?;
        let restore = |tree: &Tree| {
            let mut bytes = vec![0; tree.region.bytes as usize];
            restore_part(plan, tree, 0, &mut bytes).map(|()| (tree.region.id, bytes))
        };
        plan.wanted.forest.trees.par_iter().map(restore).collect()
    }

    /// A part of a region of a checkpoint, as it was, from an offset on.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`], [`Error::NoSuchRegion`] when the region was not there or shorter.
    pub fn restore_part(&self, checkpoint: u32, region: u64, offset: u64, to: &mut [u8]) -> Result<()> {
        let plan = self.plan(checkpoint)?;
        let end = offset.saturating_add(to.len() as u64);
        let tree = plan.wanted.tree_of_region(region).map(|at| &plan.wanted.forest.trees[at]);
        let tree = tree.filter(|tree| end <= tree.region.bytes);
        restore_part(plan, tree.ok_or(Error::NoSuchRegion { checkpoint, region, bytes: end })?, offset, to)
    }

    /// Compares regions with what would be restored, without restoring it.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`].
    pub fn mismatch(&self, checkpoint: u32, regions: &[Region<'_>]) -> Result<Option<Mismatch>> {
        let plan = self.plan(checkpoint)?;
        for region in regions {
            let tree = plan.wanted.tree_of_region(region.id).map(|at| &plan.wanted.forest.trees[at]);
            let known_bytes = tree.map_or(0, |tree| tree.region.bytes);
            let differs = tree.map_or(Ok(None), |tree| first_difference(plan, tree, region.bytes))?;
            let is_as_long = tree.is_some() && known_bytes == region.bytes.len() as u64;
            let end = known_bytes.min(region.bytes.len() as u64);
            if let Some(offset) = differs.or((!is_as_long).then_some(end)) {
                return Ok(Some(Mismatch { region: region.id, offset }));
            }
        }
        let live: BTreeSet<u64> = regions.iter().map(|region| region.id).collect();
        let gone = plan.wanted.difference.head.regions.iter().find(|region| !live.contains(&region.id));
        Ok(gone.map(|region| Mismatch { region: region.id, offset: 0 }))
    }

    /// Keeps these checkpoints alone, the differences that they need, and the newest with what it needs. Returns the numbers
    /// of the differences that are gone, which an [`super::Engine`] must forget.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`], and then nothing is gone.
    pub fn keep(&mut self, checkpoints: &[u32]) -> Result<Vec<u32>> {
        checkpoints.iter().try_for_each(|checkpoint| self.plan(*checkpoint).map(drop))?;
        let mut needed = BTreeSet::new();
        let newest = self.differences.last_key_value().map(|(newest, _)| *newest);
        for checkpoint in checkpoints.iter().copied().chain(newest) {
            needed.insert(checkpoint);
            needed.append(&mut self.needed_by(checkpoint)?);
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
        let plan = self.plan(checkpoint)?;
        let head = &plan.wanted.difference.head;
        let data_bytes = head.regions.iter().map(|region| region.bytes).sum();
        let mut data = vec![0; data_bytes as usize];
        let mut rest = &mut data[..];
        for tree in &plan.wanted.forest.trees {
            let (bytes, behind) = rest.split_at_mut(tree.region.bytes as usize);
            restore_part(plan, tree, 0, bytes)?;
            rest = behind;
        }
        let head = Head { previous: None, regions: head.regions.clone(), body: Body::Full, data_bytes, ..*head };
        self.differences.insert(checkpoint, Checked::new(Difference { head, data })?);
        Ok(())
    }

    fn plan(&self, checkpoint: u32) -> Result<Plan<'_>> {
        let is_kept = self.kept.contains(&checkpoint);
        let wanted = self.differences.get(&checkpoint).filter(|_| is_kept);
        let wanted = wanted.ok_or(Error::NoSuchCheckpoint { checkpoint })?;
        Ok(Plan { differences: &self.differences, wanted })
    }

    /// The differences without which a checkpoint could not be restored.
    fn needed_by(&self, checkpoint: u32) -> Result<BTreeSet<u32>> {
        let Some(wanted) = self.differences.get(&checkpoint) else { return Ok(BTreeSet::new()) };
        let plan = Plan { differences: &self.differences, wanted };
        let of_range = |tree, chunks| {
            let stored = plan.stored(tree, chunks)?;
            Ok(stored.iter().flat_map(|stored| [stored.said_by, stored.checkpoint]).collect::<BTreeSet<_>>())
        };
        let ranges =
            wanted.forest.trees.par_iter().flat_map(|tree| plan.ranges(tree).map(move |it| of_range(tree, it)));
        ranges.try_reduce(BTreeSet::new, |all, some| Ok(&all | &some))
    }
}

fn restore_part(plan: Plan<'_>, tree: &Tree, offset: u64, to: &mut [u8]) -> Result<()> {
    let piece_bytes = plan.range_bytes();
    to.par_chunks_mut(piece_bytes).enumerate().try_for_each(|(number, to)| {
        let begin = offset + (number * piece_bytes) as u64;
        let end = begin + to.len() as u64;
        for stored in plan.stored(tree, tree.chunks_with(begin..end))? {
            // A piece need not begin and end where chunks do.
            let from = stored.offset.max(begin);
            let behind = (stored.offset + stored.bytes.len() as u64).min(end);
            let bytes = &stored.bytes[(from - stored.offset) as usize..(behind - stored.offset) as usize];
            to[(from - begin) as usize..(behind - begin) as usize].copy_from_slice(bytes);
        }
        Ok(())
    })
}

/// The offset of the first byte that is not as it would be restored, of those that there are.
fn first_difference(plan: Plan<'_>, tree: &Tree, live: &[u8]) -> Result<Option<u64>> {
    let differs = |chunks: Range<u32>| {
        let stored = match plan.stored(tree, chunks) {
            Ok(stored) => stored,
            Err(error) => return Some(Err(error)),
        };
        let offsets = stored.iter().filter_map(|stored| {
            let live = live.get(stored.offset as usize..).unwrap_or_default();
            let length = stored.bytes.len().min(live.len());
            let (live, stored_bytes) = (&live[..length], &stored.bytes[..length]);
            let at = (live != stored_bytes).then(|| live.iter().zip(stored_bytes).position(|(a, b)| a != b));
            Some(stored.offset + at?? as u64)
        });
        offsets.min().map(Ok)
    };
    plan.ranges(tree).find_map_first(differs).transpose()
}
