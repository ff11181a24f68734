//! Sealing: everything a checkpoint consists of becomes durable, then its manifest gets its name, then that is durable.
//!
//! Before the rename the attempt can still fail and leave nothing. After it the checkpoint may be there whatever goes
//! wrong (an fsync of the directory that fails says nothing about what is on the disk), so nothing is removed any more:
//! an error then means that the checkpoint is there complete, or not at all.

use std::{
    mem,
    time::{SystemTime, UNIX_EPOCH},
};

use super::{Attempt, Stage};
use crate::{
    AttemptEnd, AttemptRow, AttemptState, Result, fault,
    files::{Kind, MANIFESTS, PACKS},
    format::manifest::{self, Contents},
    pack::Pack,
};

impl Attempt {
    /// Makes the attempt a checkpoint with this `state`, which the store keeps as it is. The checkpoint is durable and
    /// visible when this returns its row. After an error the attempt has failed, and its row says why.
    pub fn seal(mut self, end: AttemptEnd, state: &[u8]) -> Result<AttemptRow> {
        self.row.stop_ms = end.stop_ms;
        self.row.stop_phases_ms.clone_from(&end.stop_phases_ms);
        self.end_as(Kind::Manifest, &end, state)?;
        Ok(self.row.clone())
    }

    /// [`Attempt::seal`] for a copy, which keeps the time at which the original was sealed.
    pub(crate) fn seal_at(mut self, sealed_unix_s: Option<u64>, end: AttemptEnd, state: &[u8]) -> Result<AttemptRow> {
        self.row.sealed_unix_s = sealed_unix_s;
        self.seal(end, state)
    }

    /// Makes what the attempt wrote count, without a checkpoint. Returns how many bytes that are.
    pub(crate) fn retire(mut self) -> Result<u64> {
        let nothing = AttemptEnd::default();
        self.end_as(Kind::Retired, &nothing, &[])?;
        Ok(self.row.new_bytes)
    }

    fn end_as(&mut self, kind: Kind, end: &AttemptEnd, state: &[u8]) -> Result<()> {
        let durable = self.check_usable().and_then(|()| self.make_durable(end, state));
        if let Err(error) = durable.and_then(|()| self.publish(kind)) {
            if self.stage == Stage::Writing {
                // Best effort: a row that cannot be written now reads as that of an agent that ended.
                let _ = self.shared.files.remove(&Kind::ManifestNew.name(self.row.id), fault::LEFTOVER_REMOVE);
                let _ = self.record_failure(&error.to_string());
            }
            return Err(error);
        }
        self.hand_over();
        Ok(())
    }

    /// Packs, their names, the names of checkpoints that this one may refer to, and the manifest under a name that
    /// does not count.
    fn make_durable(&mut self, end: &AttemptEnd, state: &[u8]) -> Result<()> {
        self.finish_packs()?;
        if !self.finished.is_empty() {
            self.shared.files.sync_dir(PACKS, fault::PACKS_SYNC)?;
        }
        self.sync_seen_names()?;
        self.complete_row(end);
        let contents =
            Contents { packs: self.finished.iter().map(|(own, _)| *own).collect(), roots: mem::take(&mut self.roots) };
        let encoded =
            manifest::encode(&self.shared.files, &self.shared.header.store_id, &mut self.row, &contents, state)?;
        let mut output = self.shared.files.create(&Kind::ManifestNew.name(self.row.id), fault::MANIFEST_CREATE)?;
        output.append(&encoded, fault::MANIFEST_WRITE)?;
        output.sync(fault::MANIFEST_SYNC)
    }

    /// Another writer's checkpoint becomes visible a moment before its name is durable. This one may refer to its packs
    /// by now, and a crash must not take them away from under it.
    fn sync_seen_names(&self) -> Result<()> {
        let (seen, synced) = {
            let index = self.shared.index();
            (index.names_seen, index.names_synced)
        };
        if synced < seen {
            self.shared.files.sync_dir(MANIFESTS, fault::NAMES_SYNC)?;
            let mut index = self.shared.index_mut();
            index.names_synced = index.names_synced.max(seen);
        }
        Ok(())
    }

    fn complete_row(&mut self, end: &AttemptEnd) {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let row = &mut self.row;
        row.state = AttemptState::Sealed;
        row.sealed_unix_s.get_or_insert(since_1970.as_secs());
        row.memory_bytes = end.memory_bytes;
        row.pending_bytes = end.pending_bytes;
        row.processes = end.processes;
        row.total_ms = end.total_ms;
        row.written = self.counts;
        row.new_bytes = self.finished.iter().map(|(own, _)| own.bytes).sum();
    }

    fn publish(&mut self, kind: Kind) -> Result<()> {
        // Whoever takes us for dead removes our packs.
        self.row_file.check_hold()?;
        let files = &self.shared.files;
        let (new, sealed) = (Kind::ManifestNew.name(self.row.id), kind.name(self.row.id));
        self.stage = Stage::Published;
        if let Err(error) = files.rename(&new, &sealed, fault::MANIFEST_RENAME) {
            if matches!(files.open_if_there(&sealed), Ok(None)) {
                self.stage = Stage::Writing;
            }
            return Err(error);
        }
        files.sync_dir(MANIFESTS, fault::MANIFESTS_SYNC)
    }

    /// What this attempt wrote is there for all from now on.
    fn hand_over(&mut self) {
        self.stage = Stage::Ended;
        // The manifest says it all; a row file that stays behind is removed by the next attempt.
        let _ = self.shared.files.remove(&Kind::Writing.name(self.row.id), fault::ROW_REMOVE);
        let packs: Vec<Pack> = self.finished.drain(..).map(|(_, pack)| pack).collect();
        self.shared.index_mut().absorb(packs, mem::take(&mut self.pages), mem::take(&mut self.nodes));
    }
}
