//! How fast the table of page keys is, how much memory it takes and how long it stops to grow, beside other tables.
//!
//!     cargo run --release -p ckpt-store --example key_table [ENTRIES [ROUNDS [TABLE]]]
//!
//! Each table in turn is filled with ENTRIES (default 2^24) random keys and asked for all of them in another order and
//! for as many that are not in it; all take part in each of the ROUNDS (default 10). One thread. TABLE leaves out those
//! whose names do not contain it. Prints CSV: after the
//! machine and the command, one line a round and table, then one with the medians. Rates are millions of keys a second of
//! processor time; memory is what was asked of the allocator. A further filling, timed key by key (or 32 at a time, where
//! the table takes many), gives the pauses, in processor time too; reading that clock is a part of them.
#![allow(clippy::unwrap_used, reason = "a measurement may stop at the first surprise")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    hint::black_box,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use ckpt_store::{
    PageKey,
    key_table::{Entry, KeyTable, Place},
};
use rustix::time::{ClockId, clock_gettime};

mod machine;

/// Keys of one call, as pages are written and looked up.
const CALL_KEYS: usize = 256;

/// Counts the bytes that are in use, and the most there were.
struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(used, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`; the memory came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What all tables can do.
trait Table {
    /// Keys given to `insert` and `count` at once when pauses are measured.
    const STEP: usize;
    fn new() -> Self;
    fn insert(&mut self, entries: &[Entry]);
    /// How many of the keys are there.
    fn count(&self, keys: &[PageKey]) -> usize;
}

/// The store's table, many keys at once.
struct Together(KeyTable);

impl Table for Together {
    const STEP: usize = 32;
    fn new() -> Self {
        Self(KeyTable::default())
    }
    fn insert(&mut self, entries: &[Entry]) {
        self.0.insert_many(entries.iter().copied());
    }
    fn count(&self, keys: &[PageKey]) -> usize {
        self.0.get_many(keys).flatten().count()
    }
}

/// The store's table, one key after the other.
struct OneByOne(KeyTable);

impl Table for OneByOne {
    const STEP: usize = 1;
    fn new() -> Self {
        Self(KeyTable::default())
    }
    fn insert(&mut self, entries: &[Entry]) {
        entries.iter().for_each(|entry| _ = self.0.insert(entry.key, entry.place));
    }
    fn count(&self, keys: &[PageKey]) -> usize {
        keys.iter().filter(|key| self.0.get(key).is_some()).count()
    }
}

impl Table for HashMap<PageKey, Place> {
    const STEP: usize = 1;
    fn new() -> Self {
        Self::new()
    }
    fn insert(&mut self, entries: &[Entry]) {
        entries.iter().for_each(|entry| _ = self.entry(entry.key).or_insert(entry.place));
    }
    fn count(&self, keys: &[PageKey]) -> usize {
        keys.iter().filter(|key| self.contains_key(key)).count()
    }
}

/// A key's own bytes as its hash: the first 8 of those it gives.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        if let Some((first, _)) = bytes.split_first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }
}

type Hashbrown = hashbrown::HashMap<PageKey, Place, BuildHasherDefault<AsItIs>>;

impl Table for Hashbrown {
    const STEP: usize = 1;
    fn new() -> Self {
        Self::default()
    }
    fn insert(&mut self, entries: &[Entry]) {
        entries.iter().for_each(|entry| _ = self.entry(entry.key).or_insert(entry.place));
    }
    fn count(&self, keys: &[PageKey]) -> usize {
        keys.iter().filter(|key| self.contains_key(*key)).count()
    }
}

/// The store's table of before: entries in a row, and hashbrown's table of their positions.
#[derive(Default)]
struct Positions {
    entries: Vec<Entry>,
    slots: hashbrown::HashTable<u32>,
}

fn hash(key: &PageKey) -> u64 {
    let mut hasher = AsItIs::default();
    std::hash::Hash::hash(key, &mut hasher);
    hasher.0
}

impl Table for Positions {
    const STEP: usize = 1;
    fn new() -> Self {
        Self::default()
    }
    fn insert(&mut self, entries: &[Entry]) {
        for entry in entries {
            let at = self.entries.len() as u32;
            let known = &self.entries;
            let is_it = |at: &u32| known[*at as usize].key == entry.key;
            let slot = self.slots.entry(hash(&entry.key), is_it, |at| hash(&known[*at as usize].key));
            if let hashbrown::hash_table::Entry::Vacant(vacant) = slot {
                vacant.insert(at);
                self.entries.push(*entry);
            }
        }
    }
    fn count(&self, keys: &[PageKey]) -> usize {
        let is_there =
            |key: &&PageKey| self.slots.find(hash(key), |at| self.entries[*at as usize].key == **key).is_some();
        keys.iter().filter(is_there).count()
    }
}

/// One table's figures: keys a second in millions, bytes an entry, pauses in microseconds.
const COLUMNS: &str =
    "insert M/s,find M/s,miss M/s,bytes an entry,peak bytes an entry,pause p50 us,pause p99.99 us,pause max us";
type Figures = [f64; 8];

fn measure<T: Table>(keys: &Keys) -> Figures {
    let before = USED.load(Relaxed);
    PEAK.store(before, Relaxed);
    let mut table = T::new();
    let count = keys.inserted.len() as f64;
    let micros = |begun: u64| (cpu_ns() - begun) as f64 / 1e3;
    let begun = cpu_ns();
    keys.inserted.chunks(CALL_KEYS).for_each(|entries| table.insert(entries));
    let insert = count / micros(begun);
    let bytes = |counter: &AtomicUsize| (counter.load(Relaxed) - before) as f64 / count;
    let (used, peak) = (bytes(&USED), bytes(&PEAK));
    let begun = cpu_ns();
    let found: usize = keys.wanted.chunks(CALL_KEYS).map(|keys| table.count(keys)).sum();
    let find = count / micros(begun);
    assert_eq!(found, keys.wanted.len());
    let begun = cpu_ns();
    let found: usize = keys.missing.chunks(CALL_KEYS).map(|keys| table.count(keys)).sum();
    let miss = count / micros(begun);
    assert_eq!(black_box(found), 0);
    drop(table);
    let [median, late, longest] = pauses::<T>(keys);
    [insert, find, miss, used, peak, median, late, longest]
}

/// Processor time of this thread, in nanoseconds: what others do on the machine meanwhile does not count.
fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Millions of random, independent reads a second from an array of so many bytes: what no table can be faster than that
/// has to look at one place of its memory for each key.
fn random_reads(bytes: usize) -> f64 {
    const READS: usize = 1 << 23;
    let words: Vec<u64> = (0..(bytes / 8) as u64).collect();
    let mut state = 1;
    let begun = cpu_ns();
    let sum = (0..READS).fold(0, |sum: u64, _| {
        sum.wrapping_add(words[(((random(&mut state) >> 32) * words.len() as u64) >> 32) as usize])
    });
    black_box(sum);
    READS as f64 * 1e3 / (cpu_ns() - begun) as f64
}

/// How long the table keeps its caller waiting.
fn pauses<T: Table>(keys: &Keys) -> [f64; 3] {
    let mut table = T::new();
    let pause = |entries: &[Entry]| {
        let begun = cpu_ns();
        table.insert(entries);
        cpu_ns() - begun
    };
    let mut pauses: Vec<u64> = keys.inserted.chunks(T::STEP).map(pause).collect();
    pauses.sort_unstable();
    let at = |share: f64| pauses[((pauses.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    [at(0.5), at(0.9999), at(1.0)]
}

type Measure = fn(&Keys) -> Figures;

struct Keys {
    inserted: Vec<Entry>,
    wanted: Vec<PageKey>,
    missing: Vec<PageKey>,
}

impl Keys {
    fn random(count: usize) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        let mut next = || random(&mut state);
        let mut key = || {
            let mut key = [0; 28];
            key.chunks_mut(8).for_each(|bytes| bytes.copy_from_slice(&next().to_le_bytes()[..bytes.len()]));
            PageKey::from_bytes(key)
        };
        let entry = |item| Entry { key: key(), place: Place { pack: 0, item } };
        let inserted: Vec<Entry> = (0..count as u32).map(entry).collect();
        let missing = (0..count).map(|_| key()).collect();
        let mut wanted: Vec<PageKey> = inserted.iter().map(|entry| entry.key).collect();
        let mut state = 1;
        (1..count).rev().for_each(|at| wanted.swap(at, random(&mut state) as usize % (at + 1)));
        Self { inserted, wanted, missing }
    }
}

/// xorshift64*.
fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| args.get(at).map_or(default, |arg| arg.parse::<usize>().unwrap());
    let (count, rounds) = (number(0, 1 << 24), number(1, 10));
    let asked_for = args.get(2).map_or("", String::as_str);
    machine::print(&format!("cargo run --release -p ckpt-store --example key_table {count} {rounds}"));
    for (what, bytes) in [("slots", count * 10), ("entries", count * 36)] {
        println!("# random reads from as much memory as the {what} take: {:.1} M/s", random_reads(bytes));
    }
    let keys = Keys::random(count);
    let every: [(&str, Measure); 5] = [
        ("KeyTable 32 at once", measure::<Together>),
        ("KeyTable", measure::<OneByOne>),
        ("entries + HashTable<u32>", measure::<Positions>),
        ("hashbrown::HashMap no hash", measure::<Hashbrown>),
        ("std HashMap SipHash", measure::<HashMap<PageKey, Place>>),
    ];
    let tables: Vec<_> = every.into_iter().filter(|(name, _)| name.contains(asked_for)).collect();
    println!("table,round,{COLUMNS}");
    let mut all = vec![Vec::new(); tables.len()];
    for round in 0..rounds {
        for ((name, measure), all) in tables.iter().zip(&mut all) {
            let figures = measure(&keys);
            print_line(name, &round.to_string(), &figures);
            all.push(figures);
        }
    }
    for ((name, _), all) in tables.iter().zip(&all) {
        print_line(name, "median", &std::array::from_fn(|column| median(all.iter().map(|figures| figures[column]))));
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

fn print_line(name: &str, round: &str, figures: &Figures) {
    println!("{name},{round},{}", figures.map(|figure| format!("{figure:.2}")).join(","));
}
