//! Giving space back: of checkpoints that were dropped, and of what attempts no longer need.
//!
//! 1. *Reach*: what the checkpoints need that stay is marked, without any lock. Where that cannot be read, nothing is dropped.
//! 2. *Retire*: the manifests of the checkpoints to be dropped are renamed: they only say that their packs count.
//! 3. *Sweep*: packs that nobody needs are removed. While attempts are running that may share from them they are listed
//!    as condemned instead, and a later sweep works the list off.
//! 4. *Repack*: what is needed of packs that are mostly not is copied to new packs; then those are swept too.
//!
//! A crash between any two operations leaves all checkpoints that were not to be dropped, and at most some space that
//! the next time gives back. One process at a time reclaims (the reclaim lock); writers and readers go on. A reader
//! whose pack is removed finds what it needs elsewhere, unless its checkpoint was dropped.

mod reach;
mod repack;
mod retire;
mod sweep;

use super::Store;
use crate::{AttemptRow, PageList, Result, attempt::begin, files::Kind, format::manifest};
use reach::Reach;

/// What [`Store::prune`] and [`Store::flatten`] did.
#[derive(Clone, Debug, Default)]
pub struct Reclaimed {
    /// The checkpoints that were dropped, oldest first.
    pub checkpoints: Vec<AttemptRow>,
    /// Bytes of the packs that were removed.
    pub removed_bytes: u64,
    /// Bytes that were written anew, as copies of what is still needed.
    pub copied_bytes: u64,
    /// Bytes of packs that nobody needs but which wait for attempts that are still running.
    pub waiting_bytes: u64,
    /// Why packs that are mostly not needed were left as they are: damage in them, or no room for a copy.
    pub problems: Vec<String>,
}

impl Store {
    /// Drops all but the newest `keep` checkpoints (at least 1) of each job and depth, or of one job (its id or its name), with
    /// the records of older failed attempts, and gives back the space that nobody needs any more.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] when a page list of a checkpoint that is kept cannot be read: what it needs is unknown, so
    /// nothing is dropped.
    pub fn prune(&self, keep: usize, job: Option<&str>) -> Result<Reclaimed> {
        let _reclaiming = self.shared.files.reclaim_lock()?;
        let checkpoints = retire::choose(self, keep, job)?;
        let reach = self.retire(&checkpoints)?;
        retire::forget_failures(self, job)?;
        Ok(Reclaimed { checkpoints, ..self.reclaim(reach)? })
    }

    /// Drops these checkpoints, and gives back the space that no other one needs.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchCheckpoint`] when one of them is not there: then all stay. As of [`Store::prune`].
    pub fn remove(&self, ids: &[u64]) -> Result<Reclaimed> {
        let _reclaiming = self.shared.files.reclaim_lock()?;
        let sealed = self.sealed()?;
        if let Some(&missing) = ids.iter().find(|id| !sealed.contains(id)) {
            return Err(self.no_such_checkpoint(missing)?);
        }
        let mut checkpoints: Vec<AttemptRow> =
            self.attempts()?.into_iter().filter(|row| ids.contains(&row.id)).collect();
        checkpoints.sort_by_key(|row| row.id);
        let reach = self.retire(&checkpoints)?;
        Ok(Reclaimed { checkpoints, ..self.reclaim(reach)? })
    }

    /// What [`Store::prune`] would drop.
    pub fn prunable(&self, keep: usize, job: Option<&str>) -> Result<Vec<AttemptRow>> {
        retire::choose(self, keep, job)
    }

    /// Gives a checkpoint packs of its own, with its pages one after another as they lie in memory, and removes packs
    /// that nobody needs any more. A restart then reads it from front to back, and damage to older packs cannot touch
    /// it. Others that share its pages share the new ones.
    pub fn flatten(&self, id: u64) -> Result<Reclaimed> {
        let _reclaiming = self.shared.files.reclaim_lock()?;
        let Some(input) = self.shared.files.open_if_there(&Kind::Manifest.name(id))? else {
            return Err(self.no_such_checkpoint(id)?);
        };
        let (_, contents, _) = manifest::read(&input, &self.shared.header.store_id, id)?;
        let mut attempt = begin::begin_copy(&self.shared, "flatten")?;
        for root in &contents.roots {
            let list: PageList = self.page_list(root)?;
            repack::copy_pages(self, &mut attempt, list.iter().map(|(_, key)| key))?;
            attempt.copy_list(&list)?;
        }
        let copied_bytes = attempt.retire()?;
        let mut reclaimed = self.reclaim(Reach::default())?;
        reclaimed.copied_bytes += copied_bytes;
        Ok(reclaimed)
    }

    /// Steps 1 and 2: gives what the others need. The caller holds the reclaim lock.
    fn retire(&self, checkpoints: &[AttemptRow]) -> Result<Reach> {
        let mut reach = Reach::default();
        reach.extend_but(&self.shared, checkpoints)?;
        retire::retire(&self.shared, checkpoints)?;
        Ok(reach)
    }

    /// Steps 3 and 4, with what was reached before. The caller holds the reclaim lock. What needs no copying goes first: the disk
    /// may be full.
    fn reclaim(&self, mut reach: Reach) -> Result<Reclaimed> {
        let mut reclaimed = Reclaimed::default();
        reach.extend(&self.shared)?;
        sweep::sweep(&self.shared, &mut reach, &mut reclaimed)?;
        match repack::repack(self, &mut reach, &mut reclaimed) {
            Ok(0) => {}
            Ok(_emptied) => {
                reclaimed.waiting_bytes = 0;
                sweep::sweep(&self.shared, &mut reach, &mut reclaimed)?;
            }
            Err(error) => reclaimed.problems.push(error.to_string()),
        }
        Ok(reclaimed)
    }
}
