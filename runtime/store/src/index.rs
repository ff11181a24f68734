//! Where every page and node of the sealed checkpoints lies.
//!
//! Only packs of attempts whose manifest is in place are in the index, so whatever is found here is durable, and a new
//! checkpoint may refer to it. What another writer has appended but not sealed is not shared: two writers may then
//! store a page twice, which costs room and nothing else. Packs are loaded a trailer at a time; a damaged trailer is
//! left out and reported when a page is missing, so that it does not stand in the way of other checkpoints.

use std::{collections::HashSet, sync::Arc};

use rayon::prelude::*;

use crate::{
    PageKey, Result, StoreError,
    files::{Files, MANIFESTS, PACKS, PackName},
    format::pack::Trailer,
    key_table::{KeyTable, Place},
    pack::{self, Pack},
};

/// Trailers read at once; each can be 30 MiB long.
const LOAD_TOGETHER: usize = 4;

/// The sealed packs and the keys in them.
#[derive(Default)]
pub(crate) struct Index {
    packs: Vec<Arc<Pack>>,
    pub pages: KeyTable,
    pub nodes: KeyTable,
    known: HashSet<PackName>,
    damaged: Vec<PackName>,
    stamp: Option<u64>,
    /// Counts the loads of packs whose manifest's name somebody else has still to make durable, or has not.
    pub names_seen: u64,
    /// The value of `names_seen` that a later fsync of the names has covered.
    pub names_synced: u64,
}

impl Index {
    pub fn pack(&self, place: Place) -> &Arc<Pack> {
        &self.packs[place.pack as usize]
    }

    /// Whether nothing was sealed since the last [`Index::refresh`] that saw this stamp.
    pub fn is_current(&self, stamp: Option<u64>) -> bool {
        stamp.is_some() && stamp == self.stamp
    }

    /// Loads the packs of checkpoints that were sealed meanwhile. `stamp` was taken before.
    pub fn refresh(&mut self, files: &Files, store_id: &[u8; 16], stamp: Option<u64>) -> Result<()> {
        // Manifests first: the packs of every manifest seen here are in place already.
        let sealed: HashSet<u64> = files.list_sealed()?.into_iter().collect();
        let is_new = |name: &PackName| sealed.contains(&name.attempt) && !self.known.contains(name);
        let new: Vec<PackName> = files.list_packs()?.into_iter().filter(is_new).collect();
        for names in new.chunks(LOAD_TOGETHER) {
            let trailers: Vec<_> = names.par_iter().map(|name| pack::load(files, store_id, *name)).collect();
            for (name, trailer) in names.iter().zip(trailers) {
                match trailer {
                    Ok(trailer) => self.add(*name, trailer),
                    Err(StoreError::Corrupt { .. }) => self.damaged.push(*name),
                    Err(error) => return Err(error),
                }
                self.known.insert(*name);
            }
        }
        self.names_seen += u64::from(!new.is_empty());
        self.stamp = stamp;
        Ok(())
    }

    fn add(&mut self, name: PackName, trailer: Trailer) {
        let pack = self.packs.len() as u32;
        self.pages.reserve(trailer.page_keys.len());
        for (item, key) in pack::page_items(&trailer.runs).zip(trailer.page_keys) {
            self.pages.insert(key, Place { pack, item });
        }
        for (item, key) in (0..).zip(trailer.node_keys) {
            self.nodes.insert(key, Place { pack, item });
        }
        self.packs.push(Arc::new(Pack { name, runs: trailer.runs, nodes: trailer.nodes }));
    }

    /// Takes over what an attempt of this process has sealed; its places count packs from 0.
    pub fn absorb(&mut self, packs: Vec<Pack>, pages: &KeyTable, nodes: &KeyTable) {
        if packs.iter().any(|pack| self.known.contains(&pack.name)) {
            return; // a refresh was quicker
        }
        let first = self.packs.len() as u32;
        let moved = |place: Place| Place { pack: first + place.pack, item: place.item };
        self.pages.reserve(pages.len());
        for entry in pages.entries_from(0) {
            self.pages.insert(entry.key, moved(entry.place));
        }
        for entry in nodes.entries_from(0) {
            self.nodes.insert(entry.key, moved(entry.place));
        }
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
