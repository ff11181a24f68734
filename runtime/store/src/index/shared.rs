//! An index that threads share, and how it learns what others have done.

use std::sync::{
    PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use rayon::prelude::*;

use super::{Catalog, Index};
use crate::{
    Result,
    files::{Files, MANIFESTS, PackName},
    format::pack::Trailer,
    key_table::KeyTable,
    pack,
};

/// Trailers read at once; each can be 30 MiB long.
const LOAD_TOGETHER: usize = 4;

/// An index that threads share.
#[derive(Default)]
pub(crate) struct SharedIndex {
    index: RwLock<Index>,
    /// Counts the catalogs read, so that an old one never undoes what a newer one said.
    catalogs: AtomicU64,
}

impl SharedIndex {
    pub fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns what was sealed, condemned and removed since the last time, by anybody. Returns the packs that are gone.
    pub fn refresh(&self, files: &Files, store_id: &[u8; 16]) -> Result<Vec<PackName>> {
        let stamp = files.stamp(MANIFESTS)?;
        if stamp.is_some() && stamp == self.read().stamp {
            return Ok(Vec::new());
        }
        let gone = self.load(files, store_id)?;
        self.write().stamp = stamp;
        Ok(gone)
    }

    /// [`SharedIndex::refresh`], also when nothing seems to have changed.
    ///
    /// Trailers are read, and the table of the first one is made, without the lock: both use all threads of the pool, and those
    /// may be waiting for the lock.
    pub fn load(&self, files: &Files, store_id: &[u8; 16]) -> Result<Vec<PackName>> {
        let number = self.catalogs.fetch_add(1, Relaxed) + 1;
        // A pack that this process seals from here on may be missing in the catalog.
        let settled = self.read().slot_count();
        let catalog = Catalog::read(files)?;
        let new = self.read().unknown(&catalog);
        self.each_trailer(files, store_id, &new, Index::add)?;
        let gone = self.write().settle(number, &catalog, settled);
        if !gone.is_empty() {
            let again = self.read().outdone();
            self.each_trailer(files, store_id, &again, Index::offer_again)?;
            self.write().drop_gone_entries();
        }
        Ok(gone)
    }

    fn each_trailer(
        &self,
        files: &Files,
        store_id: &[u8; 16],
        packs: &[PackName],
        take: fn(&mut Index, PackName, Result<Trailer>, Option<KeyTable>) -> Result<()>,
    ) -> Result<()> {
        for names in packs.chunks(LOAD_TOGETHER) {
            let trailers: Vec<_> = names.par_iter().map(|name| pack::load(files, store_id, *name)).collect();
            let is_new = self.read().slot_count() == 0;
            let mut alone =
                trailers.first().and_then(|first| first.as_ref().ok()).filter(|_| is_new).map(Index::table_of);
            let mut index = self.write();
            let each = names.iter().zip(trailers);
            each.into_iter().try_for_each(|(name, trailer)| take(&mut index, *name, trailer, alone.take()))?;
        }
        Ok(())
    }
}
