//! A store that is open: what readers and writers of one process share.

mod complete;
pub(crate) mod condemned;
mod copy;
mod keys;
mod marks;
mod open;
mod read;
mod reclaim;
mod rows;
mod verify;

use std::{
    fmt,
    path::Path,
    sync::{Arc, RwLockReadGuard, RwLockWriteGuard},
};

use crate::{
    Attempt, AttemptRow, AttemptStart, Digest, Result, StoreOptions,
    encryption::store_key::StoreKey,
    files::Files,
    format::header::Header,
    index::{Index, SharedIndex},
    pace::Pace,
    pack::opened::OpenPacks,
};

pub use complete::Completed;
pub use copy::Copied;
pub use keys::AddedKey;
pub use reclaim::Reclaimed;
pub use verify::Verifier;

/// A store that is open. Clones share everything; any number of threads may use it at once.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

/// A checkpoint's root record.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The checkpoint's number.
    pub id: u64,
    /// Its row.
    pub row: AttemptRow,
    /// What the caller gave to [`Attempt::seal`], as it was.
    pub state: Vec<u8>,
}

/// What a store and its attempts have in common.
pub(crate) struct Shared {
    pub files: Files,
    pub options: StoreOptions,
    pub header: Header,
    /// Of an encrypted store.
    pub store_key: Option<StoreKey>,
    pub open_packs: OpenPacks,
    /// How fast it is written to.
    pub pace: Arc<Pace>,
    index: SharedIndex,
}

impl Shared {
    /// The index as last loaded.
    pub fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read()
    }

    pub fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write()
    }

    /// Learns what was sealed, condemned and removed since the last time, by anybody.
    pub fn refresh(&self) -> Result<()> {
        let gone = self.index.refresh(&self.files, &self.header.store_id)?;
        gone.into_iter().for_each(|name| self.open_packs.forget(name));
        Ok(())
    }

    /// [`Shared::refresh`], also when nothing seems to have changed.
    pub fn reload(&self) -> Result<()> {
        let gone = self.index.load(&self.files, &self.header.store_id)?;
        gone.into_iter().for_each(|name| self.open_packs.forget(name));
        Ok(())
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("dir", &self.dir()).finish_non_exhaustive()
    }
}

impl Store {
    /// The store's directory.
    pub fn dir(&self) -> &Path {
        self.shared.files.root()
    }

    /// What the store names its pages by: chosen when it was made.
    pub fn digest(&self) -> Digest {
        self.shared.header.digest
    }

    /// Begins an attempt to take a checkpoint. Cheap: the index is loaded by the first pages written.
    pub fn begin(&self, start: AttemptStart) -> Result<Attempt> {
        crate::attempt::begin::begin(&self.shared, start)
    }
}
