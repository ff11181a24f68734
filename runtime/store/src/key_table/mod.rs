//! A table from keys to places in packs: 36 bytes an entry, and some 10 bytes to find it.
//!
//! The table consists of shards (shard.rs), each of some ten thousand entries. A table of many entries never stops to
//! grow: when it needs one more shard, a single one is split in two by one more bit of the hash (linear hashing), so the
//! longest pause is to move 57,000 entries (2 ms), and the memory follows the size closely.
//!
//! In a large table every look is two cache misses. Callers have hundreds of keys at once, so there are calls for many
//! keys, in which the misses of 32 keys are waited for together: several times as fast as one key after the other.

mod seed;
mod shard;

use std::hint::black_box;

use rayon::prelude::*;
use seed::Seed;
use shard::Shard;

use crate::PageKey;

/// Entries of a shard, on average; the fullest has about twice as many, which is less than [`shard::ENTRIES_MAX`].
const SHARD_ENTRIES: usize = 28 << 10;
/// Parts that a table is made in, each of which takes a look at all keys.
const PARTS_MAX: usize = 8;
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

/// Keys and their places.
pub struct KeyTable {
    shards: Vec<Shard>,
    /// As many ones as the number of the last shard has bits.
    mask: usize,
    len: usize,
    seed: Seed,
}

/// Where the search for a key begins.
#[derive(Clone, Copy, Default)]
struct Search {
    hash: u64,
    shard: usize,
    line: usize,
}

impl Default for KeyTable {
    fn default() -> Self {
        Self { shards: vec![Shard::default()], mask: 0, len: 0, seed: Seed::default() }
    }
}

impl KeyTable {
    /// A table of `entries`, `count` of them, made on all cores; of equal keys the first one counts. Each core goes through all, and
    /// adds those that belong to its part of the shards.
    pub fn of<I: Iterator<Item = Entry>>(count: usize, entries: impl Fn() -> I + Sync) -> Self {
        let mut table = Self::with_room(count);
        let (mask, seed, shards) = (table.mask, table.seed, table.shards.len());
        let part_shards = shards.div_ceil(rayon::current_num_threads().min(PARTS_MAX));
        table.shards.par_chunks_mut(part_shards).enumerate().for_each(|(part, own)| {
            let first = part * part_shards;
            for entry in entries() {
                let hash = seed.hash(&entry.key);
                let shard = shard_of(hash, mask, shards).checked_sub(first).and_then(|at| own.get_mut(at));
                let Some(shard) = shard else { continue };
                if let Err(line) = shard.find(hash, shard.home(hash), &entry.key) {
                    shard.add(hash, line, &entry, |key| seed.hash(key));
                }
            }
        });
        table.len = table.shards.iter().map(Shard::len).sum();
        table
    }

    /// A table that so many keys can be added to without one of them being moved.
    fn with_room(keys: usize) -> Self {
        let count = keys.div_ceil(SHARD_ENTRIES).max(1);
        let bit = 1 << count.ilog2();
        let is_split = |shard: usize| shard + bit < count || shard >= bit;
        let expected = |shard: usize| if is_split(shard) { keys / (2 * bit) } else { keys / bit };
        let shards = (0..count).map(|shard| Shard::with_room(expected(shard))).collect();
        Self { shards, mask: count.next_power_of_two() - 1, ..Self::default() }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The place of a key.
    pub fn get(&self, key: &PageKey) -> Option<Place> {
        let Search { hash, shard, line } = self.search(key);
        let shard = &self.shards[shard];
        Some(shard.entry(shard.find(hash, line, key).ok()?)?.place)
    }

    /// The place of each key, in their order.
    pub fn get_many<'a>(&'a self, keys: &'a [PageKey]) -> impl Iterator<Item = Option<Place>> + 'a {
        keys.chunks(TOGETHER).flat_map(move |keys| self.get_together(keys).into_iter().take(keys.len()))
    }

    /// Adds a key; `false`, and nothing changed, when it is there already.
    pub fn insert(&mut self, key: PageKey, place: Place) -> bool {
        self.insert_or(key, place, |old| old)
    }

    /// Adds a key; when it is there already it gets the place that `choose` makes of its old one, and this is `false`.
    pub fn insert_or(&mut self, key: PageKey, place: Place, choose: impl FnOnce(Place) -> Place) -> bool {
        let search = self.search(&key);
        self.insert_at(search, &Entry { key, place }, choose)
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
            let searches = self.searches(together.iter().map(|entry: &Entry| &entry.key));
            for (entry, search) in together.iter().zip(&searches) {
                let search = self.search_of(search.hash);
                self.insert_at(search, entry, |old| choose(old, entry.place));
            }
            together.clear();
        }
    }

    /// Keeps the entries that `keep` says yes to, and gives the memory of the others back.
    pub fn retain(&mut self, mut keep: impl FnMut(&Entry) -> bool) {
        let entries = std::mem::take(self).into_entries();
        self.insert_many(entries.filter(|entry| keep(entry)));
    }

    /// Every entry, in no order. The memory is given back on the way.
    pub fn into_entries(self) -> impl Iterator<Item = Entry> {
        self.shards.into_iter().flat_map(Shard::into_entries)
    }

    /// Looks for these keys, so that what follows finds everything in the cache.
    pub fn touch(&self, keys: &[PageKey]) {
        keys.chunks(TOGETHER).for_each(|keys| _ = self.searches(keys.iter()));
    }

    /// Where to look for up to 32 keys, whose lines are in the cache afterwards. The loads are a pass of their own, with
    /// next to nothing between one and the next, so that the CPU has many of them under way at once.
    #[inline]
    fn searches<'a>(&self, keys: impl Iterator<Item = &'a PageKey>) -> [Search; TOGETHER] {
        let mut searches = [Search::default(); TOGETHER];
        let mut count = 0;
        for (key, search) in keys.zip(&mut searches) {
            *search = self.search(key);
            count += 1;
        }
        let look = |seen, search: &Search| seen ^ self.shards[search.shard].look(search.line);
        black_box(searches[..count].iter().fold(0, look));
        searches
    }

    /// The places of up to 32 keys.
    #[inline]
    fn get_together(&self, keys: &[PageKey]) -> [Option<Place>; TOGETHER] {
        let searches = self.searches(keys.iter());
        let mut candidates = [0; TOGETHER];
        for (search, candidate) in searches.iter().zip(&mut candidates).take(keys.len()) {
            *candidate = self.shards[search.shard].candidate(search.hash, search.line);
        }
        let touch = |seen, (search, candidate): (&Search, &u16)| {
            let Some(Entry { key, place }) = self.shards[search.shard].entry(*candidate) else { return seen };
            seen ^ u64::from(place.item) ^ key.words()[0]
        };
        black_box(searches.iter().zip(&candidates).fold(0, touch));
        let mut places = [None; TOGETHER];
        for (((key, search), candidate), place) in keys.iter().zip(&searches).zip(&candidates).zip(&mut places) {
            let shard = &self.shards[search.shard];
            *place = match shard.entry(*candidate) {
                Some(entry) if entry.key == *key => Some(entry.place),
                None if *candidate == 0 && shard.ends(search.line) => None,
                _ => self.get(key),
            };
        }
        places
    }

    #[inline]
    fn search(&self, key: &PageKey) -> Search {
        self.search_of(self.seed.hash(key))
    }

    #[inline]
    fn search_of(&self, hash: u64) -> Search {
        let shard = shard_of(hash, self.mask, self.shards.len());
        Search { hash, shard, line: self.shards[shard].home(hash) }
    }

    #[inline]
    fn insert_at(&mut self, search: Search, entry: &Entry, choose: impl FnOnce(Place) -> Place) -> bool {
        let shard = &mut self.shards[search.shard];
        match shard.find(search.hash, search.line, &entry.key) {
            Ok(at) => {
                if let Some(entry) = shard.entry_mut(at) {
                    entry.place = choose(entry.place);
                }
                false
            }
            Err(line) => {
                shard.add(search.hash, line, entry, |key| self.seed.hash(key));
                self.len += 1;
                if self.len > self.shards.len() * SHARD_ENTRIES {
                    self.add_shard();
                }
                true
            }
        }
    }

    /// Splits the shard whose turn it is.
    #[cold]
    fn add_shard(&mut self) {
        let bit = 1 << self.shards.len().ilog2();
        let split = self.shards.len() - bit;
        let new = self.shards[split].split(|key| self.seed.hash(key), |hash| hash as usize & bit != 0);
        self.shards.push(new);
        self.mask = self.shards.len().next_power_of_two() - 1;
    }
}

/// The shard of a hash in a table of so many.
#[inline]
fn shard_of(hash: u64, mask: usize, shards: usize) -> usize {
    let shard = hash as u32 as usize & mask;
    if shard < shards { shard } else { shard & (mask >> 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> PageKey {
        crate::Digest::Sha1.key_of_bytes(&n.to_le_bytes())
    }

    /// Enough for shards to be split, some of them twice.
    const MANY: u64 = 5 * SHARD_ENTRIES as u64 + 5;

    #[test]
    fn every_key_is_found_at_its_first_place_while_the_table_grows() {
        let mut table = KeyTable::default();
        for n in 0..MANY {
            assert!(table.insert(key(n), Place { pack: 1, item: n as u32 }));
            assert!(!table.insert(key(n / 2), Place { pack: 9, item: 9 }));
        }
        assert_eq!((table.len() as u64, table.shards.len()), (MANY, 6));
        for n in 0..MANY {
            assert_eq!(table.get(&key(n)), Some(Place { pack: 1, item: n as u32 }));
            assert_eq!(table.get(&key(MANY + n)), None);
        }
        let mut items: Vec<u32> = table.into_entries().map(|entry| entry.place.item).collect();
        items.sort_unstable();
        assert!(items.into_iter().eq(0..MANY as u32));
    }

    #[test]
    fn a_table_that_is_made_at_once_is_as_one_that_has_grown() {
        for many in [0, 1, SHARD_ENTRIES as u64, 3 * SHARD_ENTRIES as u64, MANY] {
            let entry = |n: u64| Entry { key: key(n), place: Place { pack: 1, item: n as u32 } };
            let again = |n: u64| Entry { key: key(n), place: Place { pack: 2, item: 0 } };
            let mut table = KeyTable::of(many as usize, || (0..many).map(entry).chain((0..many / 2).map(again)));
            assert_eq!(table.len() as u64, many);
            for n in many..many + 2 * SHARD_ENTRIES as u64 {
                assert!(table.insert(key(n), Place { pack: 1, item: n as u32 }));
            }
            let is_there = |n: u64| table.get(&key(n)) == Some(Place { pack: 1, item: n as u32 });
            assert!((0..table.len() as u64).all(is_there));
            assert_eq!(table.get(&key(table.len() as u64)), None);
        }
    }

    #[test]
    fn no_shard_is_much_larger_than_the_others_also_when_keys_are_chosen_alike() {
        let alike = |n: u64| {
            let mut bytes = [7; 28];
            bytes[20..].copy_from_slice(&n.to_be_bytes());
            PageKey::from_bytes(bytes)
        };
        for key in [key, alike] {
            let mut table = KeyTable::default();
            table.insert_many((0..MANY).map(|n| Entry { key: key(n), place: Place { pack: 0, item: n as u32 } }));
            let largest = table.shards.into_iter().map(|shard| shard.into_entries().count()).max();
            assert!(largest <= Some(SHARD_ENTRIES * 9 / 4), "{largest:?}");
        }
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
    fn what_is_not_kept_is_gone_and_the_rest_stays() {
        let mut table = KeyTable::default();
        table.insert_many((0..MANY).map(|n| Entry { key: key(n), place: Place { pack: 0, item: n as u32 } }));
        table.retain(|entry| entry.place.item.is_multiple_of(3));
        assert_eq!(table.len() as u64, MANY.div_ceil(3));
        assert!((0..MANY).all(|n| table.get(&key(n)).is_some() == n.is_multiple_of(3)));
    }
}
