//! Completing checkpoints: pages that one was sealed without are written behind its seal, and its manifest is replaced.
//!
//! An attempt that belongs to no job writes the pages. It is begun before the checkpoint is sealed, so that whoever finds it
//! incomplete can tell whether a writer is at it. When the attempt is retired its packs count, and the new manifests, which
//! take the places of the old ones by a rename, refer to them. The reclaim lock is held from the one to the other: until then
//! no checkpoint reaches these packs. After a crash in between the checkpoints are as incomplete as they were.

use super::{Shared, Store};
use crate::{
    Attempt, AttemptRow, AttemptState, PageListRef, Result, StoreError,
    attempt::{begin, begin::COMPLETION},
    fault,
    files::{ATTEMPTS, Files, Kind, Lock, MANIFESTS},
    format::manifest,
};

/// How often the lock is waited for, half a minute each.
const WAITS_MAX: u32 = 20;

/// What a checkpoint is when it is complete.
#[derive(Clone, Debug)]
pub struct Completed {
    /// Its number.
    pub id: u64,
    /// See [`crate::AttemptEnd::memory_bytes`].
    pub memory_bytes: u64,
    /// What takes the place of its state.
    pub state: Vec<u8>,
    /// The page lists that `state` has and the state before has not, written by the attempt that completes it.
    pub roots: Vec<PageListRef>,
}

impl Store {
    /// Begins to write what checkpoints of `job` lack that are sealed, or are going to be. To be ended by
    /// [`Attempt::complete`]; dropped, it leaves them as they are.
    ///
    /// # Errors
    /// As of [`Store::begin`].
    pub fn begin_completion(&self, job: &str) -> Result<Attempt> {
        begin::begin_completion(&self.shared, job)
    }

    /// Whether a writer that lives is completing checkpoints of `job`.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn is_being_completed(&self, job: &str) -> Result<bool> {
        for (id, _) in self.shared.files.list_kinds(ATTEMPTS)?.into_iter().filter(|(_, kind)| *kind == Kind::Writing) {
            if let Some(row) = self.row_of_writing(id)?
                && row.is_housekeeping()
                && (row.trigger.as_str(), row.name.as_str(), row.state) == (COMPLETION, job, AttemptState::Writing)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Attempt {
    /// Makes what the attempt wrote count, and completes these checkpoints with it. One that was dropped meanwhile is passed
    /// by. Gives the rows of the others; what the attempt added to the store's files is told in the first.
    ///
    /// # Errors
    /// [`crate::StoreError::NotReclaimable`] where locks are leases. Some checkpoints may be complete by then.
    pub fn complete(self, checkpoints: &[Completed]) -> Result<Vec<AttemptRow>> {
        let shared = self.shared().clone();
        let _reclaiming = wait_to_reclaim(&shared.files)?;
        let mut behind_bytes = self.retire()?;
        let mut rows = Vec::with_capacity(checkpoints.len());
        for checkpoint in checkpoints {
            if let Some(row) = replace(&shared, checkpoint, behind_bytes)? {
                behind_bytes = 0;
                rows.push(row);
            }
        }
        Ok(rows)
    }
}

/// The reclaim lock. Whoever prunes a large store may have it for minutes, and what has been written would be lost.
fn wait_to_reclaim(files: &Files) -> Result<Lock> {
    for _ in 0..WAITS_MAX {
        match files.reclaim_lock() {
            Err(StoreError::Locked { .. }) => {}
            outcome => return outcome,
        }
    }
    files.reclaim_lock()
}

/// Replaces the manifest of a checkpoint, if it is still there.
fn replace(shared: &Shared, completed: &Completed, behind_bytes: u64) -> Result<Option<AttemptRow>> {
    let Shared { files, header, .. } = shared;
    let name = Kind::Manifest.name(completed.id);
    let Some(input) = files.open_if_there(&name)? else { return Ok(None) };
    let (mut row, mut contents, _) = manifest::read(&input, &header.store_id, completed.id)?;
    row.memory_bytes = completed.memory_bytes;
    row.pending_bytes = 0;
    row.behind_bytes += behind_bytes;
    row.new_bytes = contents.packs.iter().map(|own| own.bytes).sum();
    contents.roots.extend(completed.roots.iter().cloned());
    let encoded = manifest::encode(files, &header.store_id, &mut row, &contents, &completed.state)?;
    // Its attempt has ended long ago: whoever begins another one takes the new file for a leftover.
    let _lock = files.lock()?;
    let new = Kind::ManifestNew.name(completed.id);
    let written = write(files, &new, &encoded).and_then(|()| files.rename(&new, &name, fault::MANIFEST_RENAME));
    if let Err(error) = written {
        // Best effort: the next attempt to begin removes it.
        let _ = files.remove(&new, fault::LEFTOVER_REMOVE);
        return Err(error);
    }
    files.sync_dir(MANIFESTS, fault::MANIFESTS_SYNC)?;
    Ok(Some(row))
}

fn write(files: &Files, name: &str, bytes: &[u8]) -> Result<()> {
    let mut output = files.create(name, fault::MANIFEST_CREATE)?;
    output.append(bytes, fault::MANIFEST_WRITE)?;
    output.sync(fault::MANIFEST_SYNC)
}
