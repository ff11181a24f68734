//! Beginning an attempt: its number, its row, and the removal of what dead attempts left.
//!
//! All of it happens under the store's lock, which a crash releases. The number is one more than any that a file of the
//! store bears. The row file is locked before it gets its name, so that nobody ever sees an attempt that lives and
//! takes it for dead.

use std::{collections::HashSet, sync::Arc};

use super::{Attempt, row::AttemptRow, row::AttemptStart};
use crate::{
    Result, fault,
    files::{ATTEMPTS, Files, Kind, MANIFESTS, PackName},
    format,
    store::Shared,
};

/// Begins an attempt.
pub(crate) fn begin(shared: &Arc<Shared>, start: AttemptStart) -> Result<Attempt> {
    let files = &shared.files;
    let _lock = files.lock()?;
    let found = Found::look(files)?;
    found.remove_leftovers(files)?;
    let row = AttemptRow::begun(found.highest_id() + 1, start);
    let encoded = format::row::encode(&row)?;
    let (new, writing) = (Kind::RowNew.name(row.id), Kind::Writing.name(row.id));
    let mut output = files.create(&new, fault::ROW_CREATE)?;
    output.append(&encoded, fault::ROW_WRITE)?;
    output.hold()?;
    files.rename(&new, &writing, fault::ROW_RENAME)?;
    Ok(Attempt::new(shared.clone(), row, output))
}

/// The attempts and the traces of attempts in a store, as the holder of the lock sees them.
struct Found {
    packs: Vec<PackName>,
    rows: Vec<(u64, Kind)>,
    manifests: Vec<(u64, Kind)>,
    live: HashSet<u64>,
}

impl Found {
    /// In this order: an attempt that seals itself meanwhile is seen alive, or else its manifest is seen.
    fn look(files: &Files) -> Result<Self> {
        let packs = files.list_packs()?;
        let rows = files.list_kinds(ATTEMPTS)?;
        let mut live = HashSet::new();
        for (id, _) in rows.iter().filter(|(_, kind)| *kind == Kind::Writing) {
            if files.writer_lives(*id)? {
                live.insert(*id);
            }
        }
        let manifests = files.list_kinds(MANIFESTS)?;
        Ok(Self { packs, rows, manifests, live })
    }

    fn highest_id(&self) -> u64 {
        let packs = self.packs.iter().map(|pack| pack.attempt);
        packs.chain(self.rows.iter().chain(&self.manifests).map(|(id, _)| *id)).max().unwrap_or(0)
    }

    /// Removes what nobody writes any more and no checkpoint has. The row of a dead attempt stays.
    ///
    /// Packs go last, after another look at what is sealed: where a writer can be taken for dead and live on (a lease),
    /// its last step is to rename its manifest, and that fails once the manifest is gone.
    fn remove_leftovers(&self, files: &Files) -> Result<()> {
        let mut half_written = false;
        for (id, kind) in self.rows.iter().chain(&self.manifests) {
            if self.is_leftover(*id, *kind) {
                half_written |= *kind == Kind::ManifestNew;
                files.remove(&kind.name(*id), fault::LEFTOVER_REMOVE)?;
            }
        }
        let sealed = if half_written { files.list_sealed()? } else { Vec::new() };
        for pack in &self.packs {
            let counts = self.is_sealed(pack.attempt) || sealed.contains(&pack.attempt);
            if !self.live.contains(&pack.attempt) && !counts {
                files.remove(&pack.name(), fault::LEFTOVER_REMOVE)?;
            }
        }
        Ok(())
    }

    fn is_sealed(&self, id: u64) -> bool {
        self.manifests.contains(&(id, Kind::Manifest))
    }

    fn is_leftover(&self, id: u64, kind: Kind) -> bool {
        let dead = !self.live.contains(&id);
        match kind {
            Kind::RowNew => true,
            Kind::Failing | Kind::ManifestNew => dead,
            Kind::Writing => dead && (self.is_sealed(id) || self.rows.contains(&(id, Kind::Failed))),
            Kind::Manifest | Kind::Failed => false,
        }
    }
}
