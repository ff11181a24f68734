//! Reading rows and manifests: what is in the store, without a lock and without the index.

use std::collections::BTreeMap;

use super::{Manifest, Store};
use crate::{
    AttemptRow, AttemptState, Result, StoreError,
    attempt::row::WRITER_GONE,
    files::{ATTEMPTS, Kind},
    format::{manifest, row},
};

impl Store {
    /// Every attempt, by number. One whose record is damaged is listed as failed, with the damage as its reason, so
    /// that it does not hide the others.
    pub fn attempts(&self) -> Result<Vec<AttemptRow>> {
        let mut rows = self.every_attempt()?;
        rows.retain(|row| !row.is_housekeeping());
        Ok(rows)
    }

    /// [`Store::attempts`], and those to move pages.
    pub(super) fn every_attempt(&self) -> Result<Vec<AttemptRow>> {
        let files = &self.shared.files;
        let mut rows = BTreeMap::new();
        for (id, kind) in files.list_kinds(ATTEMPTS)? {
            let row = match kind {
                Kind::Failed => self.row_of_file(kind, id)?,
                Kind::Writing if !rows.contains_key(&id) => self.row_of_writing(id)?,
                _ => None,
            };
            rows.extend(row.map(|row| (id, row)));
        }
        // Last, so that an attempt that is sealed meanwhile is not missed.
        for id in files.list_sealed()? {
            match self.sealed_row(id) {
                Ok(Some(row)) => drop(rows.insert(id, row)),
                Ok(None) => {}
                Err(error) if error.is_corrupt() => {
                    drop(rows.insert(id, AttemptRow::unreadable(id, error.to_string())))
                }
                Err(error) => return Err(error),
            }
        }
        Ok(rows.into_values().collect())
    }

    /// The newest sealed checkpoint, of one job (its id or its name) or of all.
    ///
    /// A damaged manifest met on the way to one job's newest is an error: it may be the one that is looked for, and to
    /// go back to older memory in silence is not for the store to decide.
    pub fn newest_sealed(&self, job: Option<&str>) -> Result<Option<u64>> {
        let sealed = self.shared.files.list_sealed()?;
        let Some(job) = job else { return Ok(sealed.last().copied()) };
        for id in sealed.into_iter().rev() {
            if self.sealed_row(id)?.is_some_and(|row| row.is_of(job)) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// The root record of checkpoint `id`.
    pub fn manifest(&self, id: u64) -> Result<Manifest> {
        let files = &self.shared.files;
        let Some(input) = files.open_if_there(&Kind::Manifest.name(id))? else {
            return Err(self.no_such_checkpoint(id)?);
        };
        let (row, _, state) = manifest::read(&input, &self.shared.header.store_id, id)?;
        Ok(Manifest { id, row, state })
    }

    /// The error for a number that no sealed checkpoint has.
    pub(super) fn no_such_checkpoint(&self, id: u64) -> Result<StoreError> {
        let newest = self.newest_sealed(None)?;
        Ok(StoreError::NoSuchCheckpoint { path: self.shared.files.path(""), id, newest })
    }

    fn sealed_row(&self, id: u64) -> Result<Option<AttemptRow>> {
        let input = self.shared.files.open_if_there(&Kind::Manifest.name(id))?;
        input.map(|input| manifest::read_row(&input, &self.shared.header.store_id, id)).transpose()
    }

    /// The row of an attempt that is not sealed; `None` when its file is gone by now.
    fn row_of_file(&self, kind: Kind, id: u64) -> Result<Option<AttemptRow>> {
        let Some(input) = self.shared.files.open_if_there(&kind.name(id))? else { return Ok(None) };
        match row::read(&input, id) {
            Err(error) if error.is_corrupt() => Ok(Some(AttemptRow::unreadable(id, error.to_string()))),
            row => row.map(Some),
        }
    }

    pub(super) fn row_of_writing(&self, id: u64) -> Result<Option<AttemptRow>> {
        let lives = self.shared.files.writer_lives(id)?;
        let Some(mut row) = self.row_of_file(Kind::Writing, id)? else {
            // It has just ended: as failed, or as a checkpoint, which is looked for later.
            return self.row_of_file(Kind::Failed, id);
        };
        if !lives {
            row.state = AttemptState::Failed;
            row.reason = WRITER_GONE.into();
        }
        Ok(Some(row))
    }
}
