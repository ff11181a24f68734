//! All that readers and writers do with a store, one after another, whatever comes of it.

use std::sync::Arc;

use super::{
    FileMap,
    small_store::{end, start},
};
use crate::{
    AttemptRow, Key, PAGE_BYTES, PageKey, PageList, PageListRef, Result, Store, StoreError, StoreOptions,
    backend::Memory,
};

/// Pages of a list that are read, at most: a sound list may have any number.
const PAGES_READ_MAX: usize = 1 << 11;

/// Memory of an attempt, the least there can be: a small store needs no more.
const MEMORY_BYTES: usize = 16 << 20;

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// Every attempt.
    pub rows: Result<Vec<AttemptRow>>,
    /// The newest checkpoint of all, and that of the job.
    pub newest: [Result<Option<u64>>; 2],
    /// For each sealed checkpoint the first pages of its lists.
    pub pages: Vec<(u64, Result<Vec<u8>>)>,
    /// For each sealed checkpoint what the verifier says.
    pub verified: Vec<(u64, Result<()>)>,
    /// The number of a checkpoint that is taken afterwards, and read back.
    pub next: Result<u64>,
    /// Whether what it does not need could be given back; it is read back again.
    pub reclaimed: Result<()>,
}

impl Found {
    /// Every error in it.
    pub fn errors(&self) -> impl Iterator<Item = &StoreError> {
        let newest = self.newest.iter().filter_map(|newest| newest.as_ref().err());
        let pages = self.pages.iter().filter_map(|(_, pages)| pages.as_ref().err());
        let verified = self.verified.iter().filter_map(|(_, verified)| verified.as_ref().err());
        self.rows
            .as_ref()
            .err()
            .into_iter()
            .chain(newest)
            .chain(pages)
            .chain(verified)
            .chain(self.next.as_ref().err())
            .chain(self.reclaimed.as_ref().err())
    }
}

/// Opens the store of these files and uses it.
///
/// # Errors
///
/// Those of opening it. What fails later is in [`Found`].
pub fn use_all(files: &FileMap) -> Result<Found> {
    use_store(files, None, true)
}

/// [`use_all`], of a store that is encrypted where there is a key.
///
/// # Errors
///
/// Those of opening it.
pub fn use_all_for(files: &FileMap, key: Option<Key>) -> Result<Found> {
    use_store(files, key, true)
}

/// [`use_all`], but nothing is given back.
///
/// # Errors
///
/// Those of opening it.
pub fn use_all_but_reclaim(files: &FileMap, key: Option<Key>) -> Result<Found> {
    use_store(files, key, false)
}

fn use_store(files: &FileMap, key: Option<Key>, reclaims: bool) -> Result<Found> {
    let memory = Arc::new(Memory::of_files(files));
    let options = StoreOptions { memory_bytes: MEMORY_BYTES, key, ..StoreOptions::default() };
    let store = Store::open_on(memory, &options)?;
    let sealed = store.sealed()?;
    let (rows, newest) = (store.attempts(), [store.newest_sealed(None), store.newest_sealed(Some("small"))]);
    let pages = sealed.iter().map(|id| (*id, read(&store, *id))).collect();
    let verified = verify(&store, &sealed);
    let taken = take(&store);
    let reclaimed = if reclaims { reclaim(&store, taken.as_ref().ok()) } else { Ok(()) };
    Ok(Found { rows, newest, pages, verified, next: taken.map(|(id, _)| id), reclaimed })
}

fn verify(store: &Store, sealed: &[u64]) -> Vec<(u64, Result<()>)> {
    let mut verifier = store.verifier();
    sealed.iter().map(|id| (*id, verifier.checkpoint(*id, &mut |_| ()).map(drop))).collect()
}

/// The first pages of every list of checkpoint `id`, with their numbers.
fn read(store: &Store, id: u64) -> Result<Vec<u8>> {
    let state = store.manifest(id)?.state;
    let roots: Vec<PageListRef> = ciborium::from_reader(&state[..]).unwrap_or_default();
    let mut read = Vec::new();
    for root in &roots {
        let list = store.page_list(root)?;
        let (numbers, keys): (Vec<_>, Vec<_>) = list.iter().take(PAGES_READ_MAX).unzip();
        let mut pages = vec![0; keys.len() * PAGE_BYTES];
        store.read_pages(&keys, &mut pages)?;
        numbers.iter().for_each(|number| read.extend(number.to_le_bytes()));
        read.append(&mut pages);
    }
    Ok(read)
}

/// Takes a checkpoint of a page that the store may have and of one that it has not: its number and its pages.
fn take(store: &Store) -> Result<(u64, Vec<PageKey>)> {
    let mut attempt = store.begin(start("small"))?;
    let mut list = PageList::new();
    list.set_run(0, &attempt.write_pages(&taken_pages())?);
    let root = attempt.write_page_list(&list)?;
    let id = attempt.seal(end(), b"")?.id;
    let keys: Vec<_> = store.page_list(&root)?.iter().map(|(_, key)| key).collect();
    read_back(store, &keys)?;
    Ok((id, keys))
}

fn taken_pages() -> Vec<u8> {
    let mut pages = vec![1; 2 * PAGE_BYTES];
    pages[PAGE_BYTES..].fill(2);
    pages
}

fn read_back(store: &Store, keys: &[PageKey]) -> Result<()> {
    let mut back = vec![0; keys.len() * PAGE_BYTES];
    store.read_pages(keys, &mut back)?;
    assert!(back == taken_pages(), "a page was written and another came back");
    Ok(())
}

/// Drops all but the newest checkpoint and gives that one packs of its own, if it is the one that was taken last.
fn reclaim(store: &Store, taken: Option<&(u64, Vec<PageKey>)>) -> Result<()> {
    store.prune(1, None)?;
    let Some((id, keys)) = taken else { return Ok(()) };
    read_back(store, keys)?;
    store.flatten(*id)?;
    read_back(store, keys)
}
