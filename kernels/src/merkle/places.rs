//! Where the bytes of a lineage's checkpoints are, from the heads of its differences alone.
//!
//! What has been added can be restored: a head is taken only if what it refers to is stored, and what it says nothing
//! of is as it was at the newest checkpoint, all of which can be restored already. So adding looks at the new head
//! alone, however long the lineage is.
//!
//! A difference that says nothing of the chunks that are needed can go, wherever it lies in the lineage. The newest one
//! stays always: the next difference will say what has changed since.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use rayon::prelude::*;

use super::{
    Error, Head, RegionShape, Result,
    checked::{Checked, Place},
    plan::{Plan, Stored},
};

/// The heads of a lineage's differences, for those who keep the data elsewhere. (A [`super::Lineage`] has them in memory.)
#[derive(Clone, Default)]
pub struct Places {
    heads: BTreeMap<u32, Checked>,
    /// Checkpoints that can be restored. Others are there because these need them.
    kept: BTreeSet<u32>,
}

/// Bytes of a region that a difference stores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Own {
    /// The region.
    pub region: u64,
    /// Offset of the first one in the region.
    pub offset: u64,
    /// The bytes, counted in the data of the difference.
    pub bytes: Range<u64>,
}

impl Places {
    /// Adds the head of a difference, whose data are as long as it says.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it contradicts itself or what it refers to; [`Error::OutOfOrder`].
    pub fn add(&mut self, head: &Head) -> Result<()> {
        let &Head { checkpoint, previous, .. } = head;
        let newest = self.heads.last_key_value();
        let last = newest.map(|(last, _)| *last);
        if let Some(last) = last.filter(|last| *last >= checkpoint) {
            return Err(Error::OutOfOrder { checkpoint, last });
        }
        if previous.is_some() && previous != last {
            return Err(head.corrupt(format!("it follows checkpoint {previous:?}, and the newest here is {last:?}")));
        }
        let known = Checked::new(head)?;
        known.check_references(&self.heads)?;
        known.check_unsaid(newest.map(|(_, newest)| newest).filter(|_| previous.is_some()))?;
        self.heads.insert(checkpoint, known);
        self.kept.insert(checkpoint);
        Ok(())
    }

    /// Takes the newest head out again. Nothing may have been removed since it was added.
    pub fn take_back(&mut self) {
        let newest = self.heads.pop_last();
        newest.map(|(checkpoint, _)| self.kept.remove(&checkpoint));
    }

    /// Where bytes of a region of a checkpoint are, in pieces in the order of the region.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`], [`Error::NoSuchRegion`] when the region was not there or shorter.
    pub fn find(&self, checkpoint: u32, region: u64, bytes: Range<u64>) -> Result<Vec<Stored>> {
        let plan = self.plan(checkpoint)?;
        let tree = plan.wanted.tree_of_region(region).map(|at| &plan.wanted.forest.trees[at]);
        let tree = tree.filter(|tree| bytes.end <= tree.region.bytes);
        let tree = tree.ok_or(Error::NoSuchRegion { checkpoint, region, bytes: bytes.end })?;
        let mut found = plan.stored(tree, tree.chunks_with(bytes.clone()))?;
        found.iter_mut().for_each(|stored| stored.clip(&bytes));
        found.sort_unstable_by_key(|stored| stored.offset);
        Ok(found)
    }

    /// The bytes that the difference of a checkpoint stores, in the order of its data.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`].
    pub fn stored_with(&self, checkpoint: u32) -> Result<impl Iterator<Item = Own>> {
        let known = self.heads.get(&checkpoint).ok_or(Error::NoSuchCheckpoint { checkpoint })?;
        Ok(known.pieces().iter().filter_map(|piece| {
            let Place::Here(from) = piece.place else { return None };
            let tree = &known.forest.trees[piece.tree];
            let there = tree.bytes_of_chunks(piece.chunks.clone());
            Some(Own { region: tree.region.id, offset: there.start, bytes: from..from + there.end - there.start })
        }))
    }

    /// The regions of a checkpoint.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`].
    pub fn regions(&self, checkpoint: u32) -> Result<impl Iterator<Item = RegionShape>> {
        let known = self.heads.get(&checkpoint).ok_or(Error::NoSuchCheckpoint { checkpoint })?;
        Ok(known.forest.trees.iter().map(|tree| tree.region))
    }

    /// The checkpoints that can be restored.
    pub fn checkpoints(&self) -> impl Iterator<Item = u32> {
        self.kept.iter().copied()
    }

    /// Keeps these checkpoints alone, the differences that they need, and the newest with what it needs. Returns the numbers
    /// of the differences that are gone, which an [`super::Engine`] must forget.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`], and then nothing is gone.
    pub fn keep(&mut self, checkpoints: &[u32]) -> Result<Vec<u32>> {
        checkpoints.iter().try_for_each(|checkpoint| self.plan(*checkpoint).map(drop))?;
        let mut needed = BTreeSet::new();
        let newest = self.heads.last_key_value().map(|(newest, _)| *newest);
        for checkpoint in checkpoints.iter().copied().chain(newest) {
            needed.insert(checkpoint);
            needed.append(&mut self.needed_by(checkpoint)?);
        }
        self.kept = checkpoints.iter().copied().collect();
        let gone: Vec<u32> = self.heads.keys().filter(|number| !needed.contains(number)).copied().collect();
        gone.iter().for_each(|number| drop(self.heads.remove(number)));
        Ok(gone)
    }

    /// Puts a head that says where all bytes of its checkpoint are in the place of the one that is there.
    pub(super) fn replace(&mut self, head: &Head) -> Result<()> {
        self.heads.insert(head.checkpoint, Checked::new(head)?);
        Ok(())
    }

    pub(super) fn plan(&self, checkpoint: u32) -> Result<Plan<'_>> {
        let is_kept = self.kept.contains(&checkpoint);
        let wanted = self.heads.get(&checkpoint).filter(|_| is_kept);
        let wanted = wanted.ok_or(Error::NoSuchCheckpoint { checkpoint })?;
        Ok(Plan { differences: &self.heads, wanted })
    }

    /// The differences without which a checkpoint could not be restored.
    fn needed_by(&self, checkpoint: u32) -> Result<BTreeSet<u32>> {
        let Some(wanted) = self.heads.get(&checkpoint) else { return Ok(BTreeSet::new()) };
        let plan = Plan { differences: &self.heads, wanted };
        let of_range = |tree, chunks| {
            let stored = plan.stored(tree, chunks)?;
            Ok(stored.iter().flat_map(|stored| [stored.said_by, stored.checkpoint]).collect::<BTreeSet<_>>())
        };
        let ranges =
            wanted.forest.trees.par_iter().flat_map(|tree| plan.ranges(tree).map(move |it| of_range(tree, it)));
        ranges.try_reduce(BTreeSet::new, |all, some| Ok(&all | &some))
    }
}
