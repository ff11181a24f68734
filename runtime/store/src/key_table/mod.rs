//! A table from keys to places in packs: 36 bytes an entry, and some 10 bytes to find it.
//!
//! Entries lie densely in blocks, in the order in which they came, and never move; slots with a part of the hash and a
//! position find them (slots.rs). So loading is appending, the order doubles as the order of keys in a pack's trailer,
//! and the table grows a little at a time. The first place a key was given stays, unless the caller chooses another.
//!
//! In a large table every look is two cache misses. Callers have hundreds of keys at once, so there are calls for many
//! keys, in which the misses of 32 keys are waited for together: several times as fast as one key after the other.

mod seed;
mod slots;

use std::hint::black_box;

use seed::Seed;
use slots::{Home, Slots};

use crate::PageKey;

const BLOCK_ENTRIES: usize = 1 << 14;
/// Keys whose cache misses are waited for together.
const TOGETHER: usize = 32;

/// Where something lies: which pack, and which item of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// Position in a list of packs.
    pub pack: u32,
    /// Pages: run number * 64 + page in the run. Nodes: node number.
    pub item: u32,
}

/// A key and its place.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub key: PageKey,
    pub place: Place,
}

/// Keys and their places: at most 2^32 - 1.
#[derive(Default)]
pub struct KeyTable {
    blocks: Vec<Vec<Entry>>,
    slots: Slots,
    seed: Seed,
}

impl KeyTable {
    /// How many keys there are.
    pub fn len(&self) -> usize {
        match self.blocks.last() {
            Some(last) => (self.blocks.len() - 1) * BLOCK_ENTRIES + last.len(),
            None => 0,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The place of a key.
    pub fn get(&self, key: &PageKey) -> Option<Place> {
        self.find(key).map(|at| self.entry(at).place)
    }

    /// The place of each key, in their order.
    pub fn get_many<'a>(&'a self, keys: &'a [PageKey]) -> impl Iterator<Item = Option<Place>> + 'a {
        keys.chunks(TOGETHER).flat_map(move |keys| {
            let candidates = self.candidates(keys.iter());
            keys.iter().zip(candidates).map(|(key, candidate)| {
                let entry = self.entry(candidate?);
                if entry.key == *key { Some(entry.place) } else { self.get(key) }
            })
        })
    }

    /// Adds a key; `false`, and nothing changed, when it is there already.
    pub fn insert(&mut self, key: PageKey, place: Place) -> bool {
        self.insert_or(key, place, |old| old)
    }

    /// Adds a key; when it is there already it gets the place that `choose` makes of its old one, and this is `false`.
    pub fn insert_or(&mut self, key: PageKey, place: Place, choose: impl FnOnce(Place) -> Place) -> bool {
        if let Some(at) = self.find(&key) {
            let entry = &mut self.blocks[at as usize / BLOCK_ENTRIES][at as usize % BLOCK_ENTRIES];
            entry.place = choose(entry.place);
            return false;
        }
        let at = self.len();
        assert!(at < u32::MAX as usize, "a table of 2^32 keys");
        if at.is_multiple_of(BLOCK_ENTRIES) {
            self.blocks.push(Vec::with_capacity(if at == 0 { 16 } else { BLOCK_ENTRIES }));
        }
        self.blocks[at / BLOCK_ENTRIES].push(Entry { key, place });
        self.slots.insert(self.seed.hash(&key), at as u32);
        true
    }

    /// [`KeyTable::insert`] of each, in their order.
    pub fn insert_many(&mut self, entries: impl IntoIterator<Item = Entry>) {
        self.insert_many_or(entries, |old, _| old);
    }

    /// [`KeyTable::insert_or`] of each, in their order; `choose` gets the old place and the new one.
    pub fn insert_many_or(
        &mut self,
        entries: impl IntoIterator<Item = Entry>,
        mut choose: impl FnMut(Place, Place) -> Place,
    ) {
        let mut entries = entries.into_iter();
        let mut together = Vec::with_capacity(TOGETHER);
        loop {
            together.extend(entries.by_ref().take(TOGETHER));
            if together.is_empty() {
                return;
            }
            self.candidates(together.iter().map(|entry: &Entry| &entry.key));
            for Entry { key, place } in together.drain(..) {
                self.insert_or(key, place, |old| choose(old, place));
            }
        }
    }

    /// Keeps the entries that `keep` says yes to, in their order, and gives the memory of the others back.
    pub fn retain(&mut self, mut keep: impl FnMut(&Entry) -> bool) {
        let entries = std::mem::take(self).into_entries();
        self.insert_many(entries.filter(|entry| keep(entry)));
    }

    /// Every entry, in the order of insertion. The memory is given back on the way.
    pub fn into_entries(self) -> impl Iterator<Item = Entry> {
        let Self { blocks, .. } = self;
        blocks.into_iter().flatten()
    }

    /// Every entry from the `first`-th on, in the order of insertion.
    pub fn entries_from(&self, first: usize) -> impl Iterator<Item = &Entry> {
        let block = first / BLOCK_ENTRIES;
        self.blocks.iter().skip(block).flatten().skip(first - block * BLOCK_ENTRIES)
    }

    /// Looks for these keys, so that what follows finds everything in the cache.
    pub fn touch(&self, keys: &[PageKey]) {
        keys.chunks(TOGETHER).for_each(|keys| _ = self.candidates(keys.iter()));
    }

    /// For up to 32 keys the first entry of the same short hash. None of the loads of a pass waits for another one: the
    /// CPU has many of them under way at once.
    #[inline]
    fn candidates<'a>(&self, keys: impl Iterator<Item = &'a PageKey>) -> [Option<u32>; TOGETHER] {
        let mut hashes = [(0, Home::default()); TOGETHER];
        let mut count = 0;
        for (key, hash) in keys.zip(&mut hashes) {
            let short = self.seed.hash(key);
            *hash = (short, self.slots.home(short));
            count += 1;
        }
        let hashes = &hashes[..count];
        black_box(hashes.iter().fold(0, |seen, (_, home)| seen ^ self.slots.look(*home)));
        let mut candidates = [None; TOGETHER];
        for ((hash, home), candidate) in hashes.iter().zip(&mut candidates) {
            *candidate = self.slots.first(*hash, *home);
        }
        black_box(candidates.iter().flatten().fold(0, |seen, &at| {
            let Entry { key, place } = self.entry(at);
            seen ^ key.words()[0] as u32 ^ place.item
        }));
        candidates
    }

    #[inline]
    fn find(&self, key: &PageKey) -> Option<u32> {
        self.slots.find(self.seed.hash(key), |at| self.entry(at).key == *key)
    }

    #[inline]
    fn entry(&self, at: u32) -> &Entry {
        &self.blocks[at as usize / BLOCK_ENTRIES][at as usize % BLOCK_ENTRIES]
    }
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
    fn an_entry_takes_36_bytes() {
        assert_eq!(size_of::<Entry>(), 36);
    }

    #[test]
    fn many_keys_at_once_are_as_one_after_the_other() {
        let place = |n: u64| Place { pack: n as u32 % 7, item: n as u32 };
        let (mut one_by_one, mut together) = (KeyTable::default(), KeyTable::default());
        let numbers: Vec<u64> = (0..70_000).map(|n| n * n % 50_021).collect();
        numbers.iter().enumerate().for_each(|(at, n)| _ = one_by_one.insert(key(*n), place(at as u64)));
        let entries = numbers.iter().enumerate().map(|(at, n)| Entry { key: key(*n), place: place(at as u64) });
        together.insert_many(entries);
        assert_eq!(together.len(), one_by_one.len());
        let keys: Vec<_> = (0..50_021).map(key).collect();
        let found: Vec<_> = together.get_many(&keys).collect();
        assert!(found.iter().any(Option::is_none));
        assert_eq!(found, keys.iter().map(|key| one_by_one.get(key)).collect::<Vec<_>>());
    }

    #[test]
    fn a_key_that_comes_again_gets_the_place_that_is_chosen() {
        let lower = |a: Place, b: Place| a.min(b);
        let place = |pack| Place { pack, item: 0 };
        let mut table = KeyTable::default();
        assert!(table.insert_or(key(1), place(5), |_| unreachable!()));
        assert!(!table.insert_or(key(1), place(3), |old| lower(old, place(3))));
        assert_eq!(table.get(&key(1)), Some(place(3)));
        table.insert_many_or([8, 2, 4].map(|pack| Entry { key: key(1), place: place(pack) }), lower);
        assert_eq!((table.get(&key(1)), table.len()), (Some(place(2)), 1));
    }

    #[test]
    fn what_is_not_kept_is_gone_and_the_rest_stays_in_order() {
        let mut table = KeyTable::default();
        let count = BLOCK_ENTRIES as u64 * 2;
        table.insert_many((0..count).map(|n| Entry { key: key(n), place: Place { pack: 0, item: n as u32 } }));
        table.retain(|entry| entry.place.item.is_multiple_of(3));
        assert_eq!(table.len() as u64, count.div_ceil(3));
        let kept: Vec<u32> = table.entries_from(0).map(|entry| entry.place.item).collect();
        assert_eq!(kept, (0..count as u32).step_by(3).collect::<Vec<_>>());
        assert!((0..count).all(|n| table.get(&key(n)).is_some() == n.is_multiple_of(3)));
    }
}
