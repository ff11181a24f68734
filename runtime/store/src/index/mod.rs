//! Where every page and node of the store lies.
//!
//! Only packs of attempts that are sealed or retired are in the index, so whatever is found here is durable, and a new
//! checkpoint may refer to it, unless it is in a condemned pack. What another writer has appended but not sealed is not
//! shared: two writers may then store a page twice, which costs room and nothing else. Packs are loaded a trailer at a
//! time; a damaged trailer is left out and reported when a page is missing, so that it does not stand in the way of
//! other checkpoints.
//!
//! Of a key's places, the one in the pack with the highest number is *the* place, in every process: so all agree on
//! which packs are still needed, and a page that was moved is found where it is now.

mod catalog;
mod shared;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    PageKey, Result, StoreError,
    files::{Files, MANIFESTS, PACKS, PackName},
    format::pack::{Run, Trailer},
    key_table::{Entry, KeyTable, Place},
    pack::{self, Pack},
};

pub(crate) use catalog::{Catalog, read_condemned};
pub(crate) use shared::SharedIndex;

/// The packs that count and the keys in them.
pub(crate) struct Index {
    slots: Vec<Slot>,
    pages: KeyTable,
    nodes: KeyTable,
    known: HashMap<PackName, u32>,
    damaged: HashSet<PackName>,
    /// The stamp of the manifests when they were last looked at.
    stamp: Option<u64>,
    /// The number of the catalog that was settled last.
    settled: u64,
    /// How many entries of the tables are in packs that are gone.
    gone_entries: usize,
    /// Another number, different in all indexes of this process, whenever something is not shared any more.
    pub generation: u64,
    /// Counts the packs of other writers: the name of their manifest may not be durable yet.
    pub names_seen: u64,
    /// The value of `names_seen` that a later fsync of the names has covered.
    pub names_synced: u64,
}

/// A pack in the index.
struct Slot {
    name: PackName,
    /// `None` when it is gone.
    pack: Option<Arc<Pack>>,
    /// Attempts up to this number may share from it.
    shared_up_to: u64,
    /// A key of it is found in another pack.
    outdone: bool,
}

/// What a writer may do with a page that it would like to refer to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shareable {
    /// Refer to it.
    Yes,
    /// Refer to it: its pack is condemned, but not for an attempt of this number.
    ThisTime,
    /// Its pack is condemned.
    Condemned(PackName),
    /// It is not there.
    Missing,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            pages: KeyTable::default(),
            nodes: KeyTable::default(),
            known: HashMap::new(),
            damaged: HashSet::new(),
            stamp: None,
            settled: 0,
            gone_entries: 0,
            generation: next_generation(),
            names_seen: 0,
            names_synced: 0,
        }
    }
}

fn next_generation() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Relaxed) + 1
}

impl Index {
    /// The pack of a place that [`Index::page`] or [`Index::node`] gave, unless it is gone by now.
    pub fn pack(&self, place: Place) -> Option<&Arc<Pack>> {
        self.slots.get(place.pack as usize)?.pack.as_ref()
    }

    /// Where each page lies, in the order of `keys`.
    pub fn find_pages<'a>(&'a self, keys: &'a [PageKey]) -> impl Iterator<Item = Option<Place>> + use<'a> {
        self.pages.get_many(keys).map(|place| place.filter(|place| self.pack(*place).is_some()))
    }

    /// Where each node lies, in the order of `keys`.
    pub fn find_nodes<'a>(&'a self, keys: &'a [PageKey]) -> impl Iterator<Item = Option<Place>> + use<'a> {
        self.nodes.get_many(keys).map(|place| place.filter(|place| self.pack(*place).is_some()))
    }

    /// Where a page lies.
    pub fn page(&self, key: &PageKey) -> Option<Place> {
        self.pages.get(key).filter(|place| self.pack(*place).is_some())
    }

    /// Where a node lies.
    pub fn node(&self, key: &PageKey) -> Option<Place> {
        self.nodes.get(key).filter(|place| self.pack(*place).is_some())
    }

    /// Whether attempt `attempt` may refer to each page, in the order of `keys`.
    pub fn shareable_pages<'a>(
        &'a self,
        keys: &'a [PageKey],
        attempt: u64,
    ) -> impl Iterator<Item = Shareable> + use<'a> {
        self.find_pages(keys).map(move |place| self.shareable(place, attempt))
    }

    /// Whether attempt `attempt` may refer to a node.
    pub fn shareable_node(&self, key: &PageKey, attempt: u64) -> Shareable {
        self.shareable(self.node(key), attempt)
    }

    fn shareable(&self, place: Option<Place>, attempt: u64) -> Shareable {
        let Some(place) = place else { return Shareable::Missing };
        let slot = &self.slots[place.pack as usize];
        match slot.shared_up_to {
            u64::MAX => Shareable::Yes,
            highest if attempt <= highest => Shareable::ThisTime,
            _ => Shareable::Condemned(slot.name),
        }
    }

    /// The packs that are there, with their positions.
    pub fn packs(&self) -> impl Iterator<Item = (u32, &Arc<Pack>)> {
        (0..).zip(&self.slots).filter_map(|(position, slot)| Some((position, slot.pack.as_ref()?)))
    }

    /// Whether every attempt may share from the pack at this position.
    pub fn is_shared(&self, position: u32) -> bool {
        self.slots[position as usize].shared_up_to == u64::MAX
    }

    /// The position of a pack that is there.
    pub fn position(&self, name: PackName) -> Option<u32> {
        self.known.get(&name).copied().filter(|position| self.slots[*position as usize].pack.is_some())
    }

    fn slot_count(&self) -> usize {
        self.slots.len()
    }

    fn unknown(&self, catalog: &Catalog) -> Vec<PackName> {
        let is_new = |name: &&PackName| !self.known.contains_key(name) && !self.damaged.contains(name);
        catalog.packs.iter().filter(is_new).copied().collect()
    }

    /// The table of a pack's pages, as it is in an index that has no other.
    fn table_of(trailer: &Trailer) -> KeyTable {
        KeyTable::of(trailer.page_keys.len(), || page_entries(0, &trailer.runs, &trailer.page_keys))
    }

    /// Adds a pack; `alone` is its [`Index::table_of`] if that has been made.
    fn add(&mut self, name: PackName, trailer: Result<Trailer>, alone: Option<KeyTable>) -> Result<()> {
        if self.known.contains_key(&name) {
            return Ok(()); // two threads have loaded it at once
        }
        match trailer {
            Ok(trailer) => {
                let (page_keys, node_keys) = (trailer.page_keys, trailer.node_keys);
                let position = self.push(Pack { name, runs: trailer.runs, nodes: trailer.nodes });
                match alone.filter(|_| position == 0 && self.pages.is_empty()) {
                    Some(table) => self.pages = table,
                    None => self.offer_pages(position, &page_keys),
                }
                self.offer_nodes(position, &node_keys);
            }
            Err(StoreError::Corrupt { .. }) => drop(self.damaged.insert(name)),
            // Condemned, and removed since the catalog was read.
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error),
        }
        self.names_seen += 1;
        Ok(())
    }

    fn push(&mut self, pack: Pack) -> u32 {
        let position = self.slots.len() as u32;
        self.known.insert(pack.name, position);
        let name = pack.name;
        self.slots.push(Slot { name, pack: Some(Arc::new(pack)), shared_up_to: u64::MAX, outdone: false });
        position
    }

    /// Makes a pack's places those of its pages, where no better one is known.
    fn offer_pages(&mut self, pack: u32, keys: &[PageKey]) {
        let Some(found) = self.slots[pack as usize].pack.clone() else { return };
        let entries = page_entries(pack, &found.runs, keys);
        self.pages.insert_many_or(entries, |old, new| better(&mut self.slots, old, new));
    }

    /// The same of its nodes.
    fn offer_nodes(&mut self, pack: u32, keys: &[PageKey]) {
        let entries = (0..).zip(keys).map(|(item, key)| Entry { key: *key, place: Place { pack, item } });
        self.nodes.insert_many_or(entries, |old, new| better(&mut self.slots, old, new));
    }

    /// Takes over what an attempt of this process has sealed; its places count packs from 0.
    pub fn absorb(&mut self, packs: Vec<Pack>, pages: KeyTable, nodes: KeyTable) {
        if packs.iter().any(|pack| self.known.contains_key(&pack.name)) {
            return; // a refresh was quicker
        }
        let first = self.slots.len() as u32;
        for pack in packs {
            self.push(pack);
        }
        for (own, table) in [(pages, &mut self.pages), (nodes, &mut self.nodes)] {
            if first == 0 && table.is_empty() {
                *table = own;
                continue;
            }
            let moved = own.into_entries().map(|Entry { key, place }| {
                let place = Place { pack: first + place.pack, item: place.item };
                Entry { key, place }
            });
            table.insert_many_or(moved, |old, new| better(&mut self.slots, old, new));
        }
    }

    /// Takes from a catalog which packs are condemned and which are gone, of the first `count` ones. Returns those that
    /// have gone. A catalog that was begun before the last one changes nothing.
    fn settle(&mut self, number: u64, catalog: &Catalog, count: usize) -> Vec<PackName> {
        if number <= self.settled {
            return Vec::new();
        }
        self.settled = number;
        let there: HashSet<PackName> = catalog.packs.iter().copied().collect();
        let (mut gone, mut narrowed) = (Vec::new(), false);
        for (position, slot) in self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.pack.is_some()) {
            let shared_up_to = catalog.condemned.get(&slot.name).copied().unwrap_or(u64::MAX);
            narrowed |= shared_up_to < slot.shared_up_to;
            slot.shared_up_to = shared_up_to;
            if position < count && !there.contains(&slot.name) {
                let entries = slot.pack.take().map_or(0, |pack| pack.page_count());
                self.gone_entries += entries;
                gone.push(slot.name);
            }
        }
        self.damaged.retain(|name| there.contains(name));
        if narrowed || !gone.is_empty() {
            self.generation = next_generation();
        }
        gone
    }

    /// The packs with a key whose place is, or was, in another pack.
    fn outdone(&self) -> Vec<PackName> {
        self.slots.iter().filter(|slot| slot.outdone && slot.pack.is_some()).map(|slot| slot.name).collect()
    }

    /// Offers the places of a pack again, after others have gone.
    fn offer_again(&mut self, name: PackName, trailer: Result<Trailer>, _alone: Option<KeyTable>) -> Result<()> {
        let (Some(position), Ok(trailer)) = (self.position(name), trailer) else {
            return Ok(()); // gone too, or damaged since: then its pages are missing where they are looked for
        };
        self.offer_pages(position, &trailer.page_keys);
        self.offer_nodes(position, &trailer.node_keys);
        Ok(())
    }

    /// Gives back the memory of entries that lead nowhere, when they are many.
    fn drop_gone_entries(&mut self) {
        if self.gone_entries * 2 <= self.pages.len() {
            return;
        }
        let there: Vec<bool> = self.slots.iter().map(|slot| slot.pack.is_some()).collect();
        self.pages.retain(|entry| there[entry.place.pack as usize]);
        self.nodes.retain(|entry| there[entry.place.pack as usize]);
        self.gone_entries = 0;
    }

    /// The error for a key that no pack has: what is wrong with a damaged pack, if there is one.
    pub fn missing(&self, files: &Files, store_id: &[u8; 16], what: &'static str, key: &PageKey) -> StoreError {
        let damage = self.damaged.iter().find_map(|name| pack::load(files, store_id, *name).err());
        damage.unwrap_or_else(|| StoreError::Corrupt {
            path: files.path(PACKS),
            offset: 0,
            what,
            expected: format!("{key:?}"),
            found: format!("in none of {} packs that {MANIFESTS} has sealed", self.packs().count()),
        })
    }
}

/// The pages of a pack and their places.
fn page_entries<'a>(pack: u32, runs: &'a [Run], keys: &'a [PageKey]) -> impl Iterator<Item = Entry> + 'a {
    pack::page_items(runs).zip(keys).map(move |(item, key)| Entry { key: *key, place: Place { pack, item } })
}

/// The better of two places of a key: one that is not gone, in the pack with the higher number.
fn better(slots: &mut [Slot], old: Place, new: Place) -> Place {
    let rank = |place: Place| {
        let slot = &slots[place.pack as usize];
        (slot.pack.is_some(), slot.name)
    };
    let (better, other) = if rank(new) > rank(old) { (new, old) } else { (old, new) };
    slots[other.pack as usize].outdone |= other.pack != better.pack;
    better
}
