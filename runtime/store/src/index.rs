//! Where every page and node of the sealed checkpoints lies.
//!
//! Only packs of attempts whose manifest is in place are in the index, so whatever is found here is durable, and a new
//! checkpoint may refer to it. What another writer has appended but not sealed is not shared: two writers may then
//! store a page twice, which costs room and nothing else. Packs are loaded a trailer at a time; a damaged trailer is
//! left out and reported when a page is missing, so that it does not stand in the way of other checkpoints.

use std::{
    collections::HashSet,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use rayon::prelude::*;

use crate::{
    PageKey, Result, StoreError,
    files::{Files, MANIFESTS, PACKS, PackName},
    format::pack::Trailer,
    key_table::{Entry, KeyTable, Place},
    pack::{self, Pack},
};

/// Trailers read at once; each can be 30 MiB long.
const LOAD_TOGETHER: usize = 4;

/// An index that threads share.
#[derive(Default)]
pub(crate) struct SharedIndex(RwLock<Index>);

impl SharedIndex {
    pub fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the packs of checkpoints that were sealed since the last time, by anybody.
    ///
    /// Trailers are read without the lock: reading uses all threads of the pool, and those may be waiting for the lock.
    pub fn refresh(&self, files: &Files, store_id: &[u8; 16]) -> Result<()> {
        let stamp = files.stamp(MANIFESTS)?;
        if stamp.is_some() && stamp == self.read().stamp {
            return Ok(());
        }
        let new = self.read().unknown(files)?;
        for names in new.chunks(LOAD_TOGETHER) {
            let trailers: Vec<_> = names.par_iter().map(|name| pack::load(files, store_id, *name)).collect();
            let mut index = self.write();
            names.iter().zip(trailers).try_for_each(|(name, trailer)| index.add(*name, trailer))?;
        }
        self.write().stamp = stamp;
        Ok(())
    }
}

/// The sealed packs and the keys in them.
#[derive(Default)]
pub(crate) struct Index {
    packs: Vec<Arc<Pack>>,
    pub pages: KeyTable,
    pub nodes: KeyTable,
    known: HashSet<PackName>,
    damaged: Vec<PackName>,
    /// The stamp of the manifests when they were last looked at.
    stamp: Option<u64>,
    /// Counts the packs of other writers: the name of their manifest may not be durable yet.
    pub names_seen: u64,
    /// The value of `names_seen` that a later fsync of the names has covered.
    pub names_synced: u64,
}

impl Index {
    pub fn pack(&self, place: Place) -> &Arc<Pack> {
        &self.packs[place.pack as usize]
    }

    /// The packs of sealed checkpoints that are not in the index yet.
    fn unknown(&self, files: &Files) -> Result<Vec<PackName>> {
        // Manifests first: the packs of every manifest seen here are in place already.
        let sealed: HashSet<u64> = files.list_sealed()?.into_iter().collect();
        let is_new = |name: &PackName| sealed.contains(&name.attempt) && !self.known.contains(name);
        Ok(files.list_packs()?.into_iter().filter(is_new).collect())
    }

    fn add(&mut self, name: PackName, trailer: Result<Trailer>) -> Result<()> {
        if self.known.contains(&name) {
            return Ok(()); // two threads have loaded it at once
        }
        match trailer {
            Ok(trailer) => self.add_pack(name, trailer),
            Err(StoreError::Corrupt { .. }) => self.damaged.push(name),
            Err(error) => return Err(error),
        }
        self.known.insert(name);
        self.names_seen += 1;
        Ok(())
    }

    fn add_pack(&mut self, name: PackName, trailer: Trailer) {
        let pack = self.packs.len() as u32;
        let entry = |(item, key)| Entry { key, place: Place { pack, item } };
        self.pages.insert_many(pack::page_items(&trailer.runs).zip(trailer.page_keys).map(entry));
        self.nodes.insert_many((0..).zip(trailer.node_keys).map(entry));
        self.packs.push(Arc::new(Pack { name, runs: trailer.runs, nodes: trailer.nodes }));
    }

    /// Takes over what an attempt of this process has sealed; its places count packs from 0.
    pub fn absorb(&mut self, packs: Vec<Pack>, pages: KeyTable, nodes: KeyTable) {
        if packs.iter().any(|pack| self.known.contains(&pack.name)) {
            return; // a refresh was quicker
        }
        let first = self.packs.len() as u32;
        let moved = |Entry { key, place }| Entry { key, place: Place { pack: first + place.pack, item: place.item } };
        self.pages.insert_many(pages.into_entries().map(moved));
        self.nodes.insert_many(nodes.into_entries().map(moved));
        self.known.extend(packs.iter().map(|pack| pack.name));
        self.packs.extend(packs.into_iter().map(Arc::new));
    }

    /// The error for a key that no pack has: what is wrong with a damaged pack, if there is one.
    pub fn missing(&self, files: &Files, store_id: &[u8; 16], what: &'static str, key: &PageKey) -> StoreError {
        let damage = self.damaged.iter().find_map(|name| pack::load(files, store_id, *name).err());
        damage.unwrap_or_else(|| StoreError::Corrupt {
            path: files.path(PACKS),
            offset: 0,
            what,
            expected: format!("{key:?}"),
            found: format!("in none of {} packs that {MANIFESTS} has sealed", self.packs.len()),
        })
    }
}
