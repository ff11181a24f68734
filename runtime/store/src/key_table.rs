//! A flat table from keys to places in packs: 36 bytes an entry, plus 5 bytes a slot.
//!
//! Entries lie densely in blocks, in the order in which they came, and never move; a table of 32-bit positions finds
//! them. So loading is appending, growing moves 4 bytes per entry and not 36, and the order doubles as the order of
//! keys in a pack's trailer. The first place a key was given stays: a page that two writers stored is read from either.

use hashbrown::HashTable;

use crate::PageKey;

const BLOCK_ENTRIES: usize = 1 << 14;

/// Where something lies: which pack, and which item of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    /// Position in a list of packs.
    pub pack: u32,
    /// Pages: run number * 64 + page in the run. Nodes: node number.
    pub item: u32,
}

/// A key and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub key: PageKey,
    pub place: Place,
}

/// Keys and their places.
#[derive(Default)]
pub(crate) struct KeyTable {
    blocks: Vec<Vec<Entry>>,
    slots: HashTable<u32>,
}

impl KeyTable {
    pub fn len(&self) -> usize {
        match self.blocks.last() {
            Some(last) => (self.blocks.len() - 1) * BLOCK_ENTRIES + last.len(),
            None => 0,
        }
    }

    /// Makes room for `more` entries at once.
    pub fn reserve(&mut self, more: usize) {
        let blocks = &self.blocks;
        self.slots.reserve(more, |&at| entry(blocks, at).key.hash64());
    }

    pub fn get(&self, key: &PageKey) -> Option<Place> {
        let at = self.slots.find(key.hash64(), |&at| entry(&self.blocks, at).key == *key)?;
        Some(entry(&self.blocks, *at).place)
    }

    /// Adds a key; `false`, and nothing changed, when it is there already.
    pub fn insert(&mut self, key: PageKey, place: Place) -> bool {
        self.insert_or(key, place, |old| old)
    }

    /// Adds a key, or gives the one that is there the place that `choose` makes of its old one. Whether it was added.
    pub fn insert_or(&mut self, key: PageKey, place: Place, choose: impl FnOnce(Place) -> Place) -> bool {
        let at = self.len() as u32;
        let blocks = &mut self.blocks;
        let slot =
            self.slots.entry(key.hash64(), |&at| entry(blocks, at).key == key, |&at| entry(blocks, at).key.hash64());
        match slot {
            hashbrown::hash_table::Entry::Vacant(vacant) => vacant.insert(at),
            hashbrown::hash_table::Entry::Occupied(found) => {
                let entry = &mut blocks[*found.get() as usize / BLOCK_ENTRIES][*found.get() as usize % BLOCK_ENTRIES];
                entry.place = choose(entry.place);
                return false;
            }
        };
        if blocks.last().is_none_or(|block| block.len() == BLOCK_ENTRIES) {
            blocks.push(Vec::with_capacity(if blocks.is_empty() { 16 } else { BLOCK_ENTRIES }));
        }
        if let Some(block) = blocks.last_mut() {
            block.push(Entry { key, place });
        }
        true
    }

    /// Keeps the entries for which `keep` holds, in their order.
    pub fn retain(&mut self, keep: impl Fn(&Entry) -> bool) {
        let old = std::mem::take(self);
        for kept in old.entries_from(0).filter(|entry| keep(entry)) {
            self.insert(kept.key, kept.place);
        }
    }

    /// Every entry from the `first`-th on, in the order of insertion.
    pub fn entries_from(&self, first: usize) -> impl Iterator<Item = &Entry> {
        let block = first / BLOCK_ENTRIES;
        self.blocks.iter().skip(block).flatten().skip(first - block * BLOCK_ENTRIES)
    }
}

fn entry(blocks: &[Vec<Entry>], at: u32) -> &Entry {
    &blocks[at as usize / BLOCK_ENTRIES][at as usize % BLOCK_ENTRIES]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> PageKey {
        crate::Digest::Sha1.key_of_bytes(&n.to_le_bytes())
    }

    #[test]
    fn every_key_is_found_at_its_first_place_and_in_order() {
        let mut table = KeyTable::default();
        let count = 3 * BLOCK_ENTRIES as u64 + 5;
        for n in 0..count {
            assert!(table.insert(key(n), Place { pack: 1, item: n as u32 }));
            assert!(!table.insert(key(n / 2), Place { pack: 9, item: 9 }));
        }
        assert_eq!(table.len() as u64, count);
        for n in 0..count {
            assert_eq!(table.get(&key(n)), Some(Place { pack: 1, item: n as u32 }));
        }
        assert_eq!(table.get(&key(count)), None);
        let from: Vec<u32> = table.entries_from(BLOCK_ENTRIES + 1).map(|entry| entry.place.item).collect();
        assert_eq!(from, (BLOCK_ENTRIES as u32 + 1..count as u32).collect::<Vec<_>>());
    }

    #[test]
    fn keys_that_differ_only_in_the_second_digest_are_two_keys() {
        let (a, b) = (PageKey::from_digests([1; 20], 1), PageKey::from_digests([1; 20], 2));
        let mut table = KeyTable::default();
        assert!(table.insert(a, Place { pack: 0, item: 0 }));
        assert!(table.insert(b, Place { pack: 0, item: 1 }));
        assert_eq!(table.get(&b), Some(Place { pack: 0, item: 1 }));
    }

    #[test]
    fn a_place_is_replaced_only_where_it_is_asked_for_and_entries_can_be_dropped() {
        let mut table = KeyTable::default();
        let place = |item| Place { pack: 0, item };
        for n in 0..10 {
            table.insert(key(n), place(1));
        }
        assert!(!table.insert_or(key(3), place(2), |old| Place { item: old.item + 6, ..old }));
        assert!(table.insert_or(key(10), place(3), |_| panic!("there is no old one")));
        table.retain(|entry| entry.place.item > 1);
        assert_eq!((table.len(), table.get(&key(3)), table.get(&key(10))), (2, Some(place(7)), Some(place(3))));
        assert_eq!(table.get(&key(4)), None);
    }

    #[test]
    fn an_entry_takes_36_bytes() {
        assert_eq!(size_of::<Entry>(), 36);
    }
}
