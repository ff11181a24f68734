//! What the store's tests share: pages made from numbers, and checkpoints that know what they must read back as.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::path::Path;

use ckpt_store::{
    AttemptEnd, AttemptRow, AttemptStart, Key, PAGE_BYTES, PageList, PageListRef, Result, Store, StoreOptions,
};

/// Whether every store is encrypted: tests/encrypted.rs has the tests of other files run over such stores.
pub fn is_encrypted() -> bool {
    env!("CARGO_CRATE_NAME") == "encrypted"
}

/// The key of every store that is encrypted here.
pub fn key() -> Option<Key> {
    is_encrypted().then(|| Key::from_bytes([7; 32]))
}

/// How stores are opened and made.
pub fn options() -> StoreOptions {
    StoreOptions { key: key(), ..StoreOptions::default() }
}

/// [`Store::create_or_open`], with a key where there is to be one.
pub fn create_or_open(dir: &Path) -> Result<Store> {
    Store::create_or_open_with(dir, &options())
}

/// [`Store::open`], with a key where there is to be one.
pub fn open(dir: &Path) -> Result<Store> {
    Store::open_with(dir, &options())
}

/// What the test harness calls test `name` of a module: the path without the crate.
pub fn test(module: &str, name: &str) -> String {
    let path = format!("{module}::{name}");
    path.split_once("::").map_or(name, |(_, test)| test).into()
}

pub fn start(job: &str) -> AttemptStart {
    AttemptStart {
        job: job.into(),
        name: format!("{job}-name"),
        trigger: "test".into(),
        started_unix_ms: 1,
        processes: 2,
        depth: ckpt_store::Depth::Full,
    }
}

pub fn end() -> AttemptEnd {
    AttemptEnd { memory_bytes: 4096, stop_ms: 1.5, total_ms: 2.5, processes: 3, ..AttemptEnd::default() }
}

/// The page of a number: 0 is the page of zeros, odd ones are noise, even ones compress.
pub fn page(number: u64) -> Vec<u8> {
    if number == 0 {
        return vec![0; PAGE_BYTES];
    }
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    if number.is_multiple_of(2) {
        return next().repeat(PAGE_BYTES / 8);
    }
    (0..PAGE_BYTES / 8).flat_map(|_| next()).collect()
}

pub fn pages(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| page(*number)).collect()
}

/// Takes a checkpoint of the pages with these numbers; its state is the root of their list.
pub fn checkpoint(store: &Store, job: &str, numbers: &[u64]) -> Result<AttemptRow> {
    let mut attempt = store.begin(start(job))?;
    let keys = attempt.write_pages(&pages(numbers))?;
    let mut list = PageList::new();
    list.set_run(7, &keys);
    let root = attempt.write_page_list(&list)?;
    attempt.seal(end(), &encode(&root))
}

/// The pages of a checkpoint taken by [`checkpoint`] with `count` pages.
pub fn read_back(store: &Store, id: u64, count: usize) -> Result<Vec<u8>> {
    let root = decode(&store.manifest(id)?.state);
    let list = store.page_list(&root)?;
    let keys: Vec<_> = (0..count as u64).map(|page| list.get(7 + page)).collect();
    let mut read = vec![0xee; count * PAGE_BYTES];
    store.read_pages(&keys, &mut read)?;
    Ok(read)
}

pub fn encode(root: &PageListRef) -> Vec<u8> {
    let mut state = Vec::new();
    ciborium::into_writer(root, &mut state).unwrap();
    state
}

pub fn decode(state: &[u8]) -> PageListRef {
    ciborium::from_reader(state).unwrap()
}

/// Numbers from a seed other than 0 (xorshift64).
pub struct Random(pub u64);

impl Random {
    /// The next one, less than `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
