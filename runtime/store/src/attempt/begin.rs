//! Beginning an attempt: its number, its row, and the removal of what dead attempts left.
//!
//! All of it happens under the store's lock, which a crash releases. The number is one more than any that a file of the
//! store bears. The row file is locked before it gets its name, so that nobody ever sees an attempt that lives and
//! takes it for dead.

use std::{collections::HashSet, sync::Arc, time::SystemTime};

use super::{Attempt, Sharing, row::AttemptRow, row::AttemptStart};
use crate::{
    Result, StoreError, fault,
    files::{ATTEMPTS, Files, Kind, MANIFESTS, PackName},
    format,
    store::Shared,
};

/// The trigger of an attempt that completes checkpoints.
pub(crate) const COMPLETION: &str = "completion";

/// Begins an attempt.
pub(crate) fn begin(shared: &Arc<Shared>, start: AttemptStart) -> Result<Attempt> {
    begin_as(shared, start, Sharing::WithAll)
}

/// Begins an attempt that writes again what the store has, and is then retired. It belongs to no job.
pub(crate) fn begin_copy(shared: &Arc<Shared>, trigger: &str) -> Result<Attempt> {
    begin_as(shared, housekeeping(trigger, ""), Sharing::WithItself)
}

/// Begins an attempt that writes what checkpoints of a job lack. It belongs to no job itself, and has that of the checkpoints
/// for its name.
pub(crate) fn begin_completion(shared: &Arc<Shared>, job: &str) -> Result<Attempt> {
    begin_as(shared, housekeeping(COMPLETION, job), Sharing::WithAll)
}

/// What an attempt that belongs to no job says of itself.
fn housekeeping(trigger: &str, name: &str) -> AttemptStart {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    AttemptStart {
        job: String::new(),
        name: name.into(),
        trigger: trigger.into(),
        started_unix_ms: since_1970.as_millis() as u64,
        processes: 0,
        depth: crate::Depth::Full,
    }
}

fn begin_as(shared: &Arc<Shared>, start: AttemptStart, sharing: Sharing) -> Result<Attempt> {
    let files = &shared.files;
    let _lock = files.lock()?;
    let found = Found::look(files)?;
    found.remove_leftovers(files)?;
    let row = AttemptRow::begun(found.next_id(files)?, start);
    let encoded = format::row::encode(&row)?;
    let (new, writing) = (Kind::RowNew.name(row.id), Kind::Writing.name(row.id));
    let mut output = files.create(&new, fault::ROW_CREATE)?;
    output.append(&encoded, fault::ROW_WRITE)?;
    output.hold()?;
    files.rename(&new, &writing, fault::ROW_RENAME)?;
    Ok(Attempt::new(shared.clone(), row, output, sharing))
}

/// The attempts and the traces of attempts in a store, as the holder of the lock sees them.
pub(crate) struct Found {
    pub packs: Vec<PackName>,
    pub rows: Vec<(u64, Kind)>,
    pub manifests: Vec<(u64, Kind)>,
    /// The attempts whose writers live.
    pub live: HashSet<u64>,
}

impl Found {
    /// In this order: an attempt that seals itself meanwhile is seen alive, or else its manifest is seen.
    pub fn look(files: &Files) -> Result<Self> {
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

    pub fn highest_id(&self) -> u64 {
        let packs = self.packs.iter().map(|pack| pack.attempt);
        packs.chain(self.rows.iter().chain(&self.manifests).map(|(id, _)| *id)).max().unwrap_or(0)
    }

    fn next_id(&self, files: &Files) -> Result<u64> {
        let highest = self.highest_id();
        // No store gets that far: somebody made a file of that name.
        highest.checked_add(1).ok_or_else(|| StoreError::Corrupt {
            path: files.path(""),
            offset: 0,
            what: "the highest number in a file's name",
            expected: format!("less than {}", u64::MAX),
            found: highest.to_string(),
        })
    }

    /// Removes what nobody writes any more and no checkpoint has. The row of a dead attempt stays.
    ///
    /// Packs go last, after another look at what is sealed: where a writer can be taken for dead and live on (a lease),
    /// its last step is to rename its manifest, and that fails once the manifest is gone.
    fn remove_leftovers(&self, files: &Files) -> Result<()> {
        let mut ended = ended(&self.manifests);
        let mut half_written = false;
        for (id, kind) in self.rows.iter().chain(&self.manifests) {
            if self.is_leftover(*id, *kind, &ended) {
                half_written |= *kind == Kind::ManifestNew;
                files.remove(&kind.name(*id), fault::LEFTOVER_REMOVE)?;
            }
        }
        if half_written {
            ended.extend(self::ended(&files.list_kinds(MANIFESTS)?));
        }
        for pack in &self.packs {
            if !self.live.contains(&pack.attempt) && !ended.contains(&pack.attempt) {
                files.remove(&pack.name(), fault::LEFTOVER_REMOVE)?;
            }
        }
        Ok(())
    }

    fn is_leftover(&self, id: u64, kind: Kind, ended: &HashSet<u64>) -> bool {
        let dead = !self.live.contains(&id);
        match kind {
            Kind::RowNew | Kind::Condemning => true,
            Kind::Failing | Kind::ManifestNew => dead,
            Kind::Writing => dead && (ended.contains(&id) || self.rows.contains(&(id, Kind::Failed))),
            Kind::Manifest | Kind::Retired | Kind::Condemned | Kind::Failed => false,
        }
    }
}

/// The attempts whose packs count.
fn ended(manifests: &[(u64, Kind)]) -> HashSet<u64> {
    manifests.iter().filter(|(_, kind)| kind.makes_packs_count()).map(|(id, _)| *id).collect()
}
