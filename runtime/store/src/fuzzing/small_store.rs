//! A store of 40 KiB with one of everything: raw, LZ4 and Zstandard runs, an attempt of two packs, page lists of two
//! levels, pages and nodes that checkpoints share, a failed attempt, one that was dropped, and a condemned pack.

use std::sync::Arc;

use super::{FileMap, STORE_ID};
use crate::{
    AttemptEnd, AttemptStart, Compression, Key, PAGE_BYTES, PageList, PageListRef, Result, Store, StoreOptions,
    backend::{Backend, Memory},
    files::HEADER,
    format::{header::Header, node::LEAF_PAGES},
};

/// Page numbers of each checkpoint, and how they are compressed.
const CHECKPOINTS: [(Compression, &[u64]); 4] = [
    (Compression::Lz4, &[14, 15]),
    (Compression::None, &[1, 2]),
    (Compression::Lz4, &[1, 0, 4, 6]),
    (Compression::Zstd, &[8, 2, 10, 12]),
];
/// How many of them stay.
const KEPT: usize = 3;
/// The last page of each checkpoint lies here, under another leaf.
const FAR_PAGE: u64 = 3 * LEAF_PAGES + 5;

/// The files of the store: the same each time, but for the time in the manifests.
///
/// # Errors
///
/// Those of a store in memory: none.
pub fn small_store() -> Result<FileMap> {
    small_store_for(None)
}

/// [`small_store`], encrypted where there is a key.
///
/// # Errors
///
/// Those of a store in memory: none.
pub fn small_store_for(key: Option<Key>) -> Result<FileMap> {
    let header = Header { store_id: STORE_ID, created_unix_s: 0, digest: crate::Digest::Sha1, proof: None };
    let memory = match key {
        None => Memory::of_files(&[(HEADER.into(), header.encode().to_vec())].into()),
        Some(_) => Memory::default(),
    };
    if key.is_some() {
        Store::create_or_open_on(Arc::new(memory.clone()), &StoreOptions { key, ..StoreOptions::default() })?;
    }
    let open = |compression| {
        let pack_bytes = if compression == Compression::None { 1 } else { 1 << 20 };
        let options = StoreOptions { compression, pack_bytes, key, ..StoreOptions::default() };
        Store::open_on(Arc::new(memory.clone()) as Arc<dyn Backend>, &options)
    };
    open(Compression::None)?.begin(start("failed"))?.fail("it was to fail", 1.0)?;
    for (compression, numbers) in CHECKPOINTS {
        checkpoint(&open(compression)?, numbers)?;
    }
    let store = open(Compression::None)?;
    // While it lives, packs that nobody needs are condemned and not removed.
    let living = store.begin(start("living"))?;
    store.prune(KEPT, None)?;
    living.fail("it was to fail, too", 1.0)?;
    Ok(memory.files())
}

/// What an attempt of `job` begins with.
pub(super) fn start(job: &str) -> AttemptStart {
    let (job, name) = (job.into(), "small".into());
    AttemptStart { job, name, trigger: "test".into(), started_unix_ms: 1, processes: 1, depth: crate::Depth::Full }
}

/// What an attempt ends with.
pub(super) fn end() -> AttemptEnd {
    AttemptEnd { memory_bytes: 16384, stop_ms: 1.0, total_ms: 2.0, processes: 1, ..AttemptEnd::default() }
}

/// A checkpoint of two page lists: all pages but the last, and all.
fn checkpoint(store: &Store, numbers: &[u64]) -> Result<()> {
    let mut attempt = store.begin(start("small"))?;
    let mut list = PageList::new();
    let mut roots = Vec::new();
    let (last, others) = numbers.split_at(numbers.len() - 1);
    for (place, numbers) in [(7, last), (FAR_PAGE, others)] {
        let pages: Vec<u8> = numbers.iter().flat_map(|number| page(*number)).collect();
        list.set_run(place, &attempt.write_pages(&pages)?);
        roots.push(attempt.write_page_list(&list)?);
    }
    attempt.seal(end(), &encode_roots(&roots)).map(drop)
}

/// A page of noise for an odd number, one that compresses for an even one, and zeros for 0.
fn page(number: u64) -> [u8; PAGE_BYTES] {
    let mut state = number;
    let mut page = [0; PAGE_BYTES];
    for word in page.chunks_exact_mut(8) {
        if number % 2 == 1 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        }
        word.copy_from_slice(&state.to_be_bytes());
    }
    page
}

/// The state of a checkpoint here: the roots of its page lists.
pub(super) fn encode_roots(roots: &[PageListRef]) -> Vec<u8> {
    let mut state = Vec::new();
    ciborium::into_writer(roots, &mut state).expect("writing to memory does not fail");
    state
}
