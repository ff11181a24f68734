//! Checkpoints are dropped and space comes back; what others need stays, whoever reads and writes meanwhile.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{collections::BTreeMap, sync::Arc};

use ckpt_store::{AttemptEnd, AttemptState, Completed, Depth, PageList, Store, StoreError, backend::Memory};

mod story;
use story::{checkpoint, encode, end, pages, read_back, start};

fn open(memory: &Memory) -> Store {
    Store::create_or_open_on(Arc::new(memory.clone()), &story::options()).unwrap()
}

fn store() -> (Memory, Store) {
    let memory = Memory::default();
    let store = open(&memory);
    (memory, store)
}

fn packs(memory: &Memory) -> Vec<String> {
    memory.files().into_keys().filter_map(|name| name.strip_prefix("packs/").map(str::to_owned)).collect()
}

fn sealed(store: &Store) -> Vec<u64> {
    let rows = store.attempts().unwrap().into_iter();
    rows.filter(|row| row.state == AttemptState::Sealed).map(|row| row.id).collect()
}

fn list(keys: &[ckpt_store::PageKey]) -> PageList {
    let mut list = PageList::new();
    list.set_run(7, keys);
    list
}

#[test]
fn one_that_is_not_complete_drives_out_none() {
    let (_, store) = store();
    let seal = |pending_bytes| {
        let end = AttemptEnd { pending_bytes, ..end() };
        store.begin(start("a")).unwrap().seal(end, b"state").unwrap().id
    };
    let (first, second) = (seal(0), seal(0));
    let completion = store.begin_completion("a").unwrap();
    let pending = seal(4096);
    store.prune(1, None).unwrap();
    assert_eq!(store.sealed().unwrap(), [second, pending], "and not {first}");
    let completed = Completed { id: pending, memory_bytes: 4096, state: b"other".to_vec(), roots: Vec::new() };
    completion.complete(&[completed]).unwrap();
    store.prune(1, None).unwrap();
    assert_eq!(store.sealed().unwrap(), [pending]);
    assert_eq!(store.manifest(pending).unwrap().state, b"other");
}

#[test]
fn the_newest_of_each_job_stay_and_the_space_of_the_others_comes_back() {
    let (memory, store) = store();
    for (job, first) in [("a", 1), ("a", 3), ("b", 5), ("a", 7), ("b", 9)] {
        checkpoint(&store, job, &[first, first + 20]).unwrap();
    }
    assert_eq!(store.prunable(1, None).unwrap().iter().map(|row| row.id).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(store.prunable(1, Some("b")).unwrap().len(), 1);
    let before = memory.files().values().map(Vec::len).sum::<usize>();
    let reclaimed = store.prune(1, None).unwrap();
    assert_eq!(reclaimed.checkpoints.iter().map(|row| row.id).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(store.sealed().unwrap(), [4, 5]);
    assert_eq!(packs(&memory), ["0000000004-0000.pack", "0000000005-0000.pack"]);
    let after = memory.files().values().map(Vec::len).sum::<usize>();
    assert!(before as u64 - after as u64 >= reclaimed.removed_bytes && reclaimed.removed_bytes > 3 * 4096);
    for store in [&store, &open(&memory)] {
        assert!(read_back(store, 4, 2).unwrap() == pages(&[7, 27]));
        assert!(read_back(store, 5, 2).unwrap() == pages(&[9, 29]));
        assert!(matches!(read_back(store, 1, 2), Err(StoreError::NoSuchCheckpoint { .. })));
    }
    assert!(!memory.files().keys().any(|name| name.contains("retired")), "{:?}", memory.files().keys());
    assert_eq!(checkpoint(&store, "a", &[1]).unwrap().id, 6, "no number is given twice");
}

#[test]
fn checkpoints_of_data_do_not_drive_out_full_ones() {
    let (_, store) = store();
    let take = |depth, first| {
        let mut attempt = store.begin(ckpt_store::AttemptStart { depth, ..start("a") }).unwrap();
        let keys = attempt.write_pages(&pages(&[first])).unwrap();
        let root = attempt.write_page_list(&list(&keys)).unwrap();
        attempt.seal(end(), &encode(&root)).unwrap()
    };
    let depths = [Depth::Full, Depth::Data, Depth::Full, Depth::Data, Depth::Data, Depth::Data];
    for (first, depth) in (1..).zip(depths) {
        assert_eq!(take(depth, first).depth, depth);
    }
    assert_eq!(store.prune(2, None).unwrap().checkpoints.iter().map(|row| row.id).collect::<Vec<_>>(), [2, 4]);
    assert_eq!(store.prune(1, Some("a")).unwrap().checkpoints.iter().map(|row| row.id).collect::<Vec<_>>(), [1, 5]);
    let left: Vec<_> = store.attempts().unwrap().iter().map(|row| (row.id, row.depth)).collect();
    assert_eq!(left, [(3, Depth::Full), (6, Depth::Data)]);
}

#[test]
fn at_least_one_checkpoint_of_a_job_stays() {
    let (_, store) = store();
    checkpoint(&store, "a", &[1]).unwrap();
    assert_eq!(store.prune(0, None).unwrap().checkpoints.len(), 0);
    assert_eq!(store.sealed().unwrap(), [1]);
}

#[test]
fn pages_that_a_kept_checkpoint_shares_survive_and_mostly_unneeded_packs_are_copied() {
    let (memory, store) = store();
    checkpoint(&store, "a", &[1, 3, 5, 7, 9, 11, 13]).unwrap();
    checkpoint(&store, "a", &[3, 4, 13]).unwrap();
    let reader = open(&memory);
    assert!(read_back(&reader, 2, 3).unwrap() == pages(&[3, 4, 13]), "it knows the old places now");
    let reclaimed = store.prune(1, None).unwrap();
    assert!(reclaimed.copied_bytes > 2 * 4096 && reclaimed.problems.is_empty(), "{reclaimed:?}");
    assert_eq!(packs(&memory), ["0000000002-0000.pack", "0000000003-0000.pack"]);
    for store in [&store, &reader, &open(&memory)] {
        assert!(read_back(store, 2, 3).unwrap() == pages(&[3, 4, 13]));
        assert!(store.verifier().checkpoint(2, &mut |_| ()).is_ok());
    }
    // The copies are shared like others.
    assert_eq!(checkpoint(&reader, "b", &[3, 13, 4]).unwrap().written.duplicate_bytes, 3 * 4096);
    assert!(store.attempts().unwrap().iter().all(|row| row.job == "a" || row.job == "b"), "no row of its own");
}

#[test]
fn packs_that_are_mostly_needed_stay_where_they_are() {
    let (memory, store) = store();
    checkpoint(&store, "a", &[1, 3, 5, 7]).unwrap();
    checkpoint(&store, "a", &[3, 5, 7, 9]).unwrap();
    let reclaimed = store.prune(1, None).unwrap();
    assert_eq!((reclaimed.copied_bytes, reclaimed.removed_bytes, packs(&memory).len()), (0, 0, 2));
    assert!(read_back(&open(&memory), 2, 4).unwrap() == pages(&[3, 5, 7, 9]));
    // Once nobody needs it, it goes, with its record.
    checkpoint(&store, "a", &[9, 11]).unwrap();
    checkpoint(&store, "a", &[11, 13]).unwrap();
    store.prune(1, None).unwrap();
    assert!(packs(&memory).iter().all(|name| !name.starts_with("0000000001")), "{:?}", packs(&memory));
    assert!(read_back(&open(&memory), 4, 2).unwrap() == pages(&[11, 13]));
}

/// An attempt in another process, which shares pages of the first checkpoint.
fn running_attempt(memory: &Memory) -> (Store, ckpt_store::Attempt, PageList) {
    let store = open(memory);
    let mut attempt = store.begin(start("b")).unwrap();
    let keys = attempt.write_pages(&pages(&[1, 3, 21])).unwrap();
    assert_eq!(attempt.counts().duplicate_bytes, 2 * 4096);
    (store, attempt, list(&keys))
}

#[test]
fn an_attempt_that_is_running_keeps_what_it_shares() {
    let (memory, store) = store();
    checkpoint(&store, "a", &[1, 3]).unwrap();
    checkpoint(&store, "a", &[5]).unwrap();
    let (_other, mut attempt, pages_of_b) = running_attempt(&memory);
    let reclaimed = store.prune(1, None).unwrap();
    assert_eq!(reclaimed.removed_bytes, 0);
    assert!(reclaimed.waiting_bytes > 2 * 4096, "{reclaimed:?}");
    // One that begins now does not rely on what is about to go.
    let later = checkpoint(&store, "c", &[1]).unwrap();
    assert_eq!((later.written.duplicate_bytes, later.written.new_bytes), (0, 4096));
    let root = attempt.write_page_list(&pages_of_b).unwrap();
    let row = attempt.seal(end(), &encode(&root)).unwrap();
    store.prune(1, None).unwrap();
    for store in [&store, &open(&memory)] {
        assert!(read_back(store, row.id, 3).unwrap() == pages(&[1, 3, 21]));
        assert!(read_back(store, later.id, 1).unwrap() == pages(&[1]));
    }
    assert!(!memory.files().keys().any(|name| name.contains("condemned")));
}

#[test]
fn what_a_running_attempt_did_not_need_in_the_end_goes_the_next_time() {
    let (memory, store) = store();
    checkpoint(&store, "a", &[1, 3]).unwrap();
    checkpoint(&store, "a", &[5]).unwrap();
    let (_other, attempt, _) = running_attempt(&memory);
    store.prune(1, None).unwrap();
    drop(attempt);
    let reclaimed = store.prune(1, None).unwrap();
    assert!(reclaimed.removed_bytes > 2 * 4096, "{reclaimed:?}");
    assert!(packs(&memory).iter().all(|name| !name.starts_with("0000000001")));
}

#[test]
fn a_checkpoint_sealed_across_a_prune_is_a_base_for_the_next() {
    let (memory, store) = store();
    checkpoint(&store, "a", &[1, 3]).unwrap();
    checkpoint(&store, "a", &[5]).unwrap();
    let (other, mut attempt, pages_of_b) = running_attempt(&memory);
    store.prune(1, None).unwrap();
    attempt.write_page_list(&pages_of_b).unwrap();
    attempt.seal(end(), b"").unwrap();
    // The same program again: nothing has changed, so no page is written, and the list names condemned packs.
    let mut next = other.begin(start("b")).unwrap();
    let root = next.write_page_list(&pages_of_b).unwrap();
    let row = next.seal(end(), &encode(&root)).unwrap();
    store.prune(1, None).unwrap();
    store.prune(1, None).unwrap();
    assert!(read_back(&open(&memory), row.id, 3).unwrap() == pages(&[1, 3, 21]));
}

#[test]
fn a_list_of_pages_that_were_given_back_is_refused() {
    let (memory, store) = store();
    let other = open(&memory);
    let mut attempt = other.begin(start("b")).unwrap();
    let old = list(&attempt.write_pages(&pages(&[1, 3])).unwrap());
    attempt.write_page_list(&old).unwrap();
    attempt.seal(end(), b"").unwrap();
    checkpoint(&store, "b", &[5]).unwrap();
    store.prune(1, None).unwrap();
    for store in [&store, &other] {
        let mut attempt = store.begin(start("b")).unwrap();
        assert!(matches!(attempt.write_page_list(&old), Err(StoreError::UnknownPage { .. })));
    }
    for store in [&store, &other] {
        let mut attempt = store.begin(start("b")).unwrap();
        let keys = attempt.write_pages(&pages(&[1, 3])).unwrap();
        let root = attempt.write_page_list(&list(&keys)).unwrap();
        let row = attempt.seal(end(), &encode(&root)).unwrap();
        assert!(read_back(&open(&memory), row.id, 2).unwrap() == pages(&[1, 3]));
    }
}

#[test]
fn nodes_that_outlive_their_pages_are_not_taken_for_their_pages() {
    let (memory, store) = store();
    // The list of checkpoint 1 lies in a pack that stays: most of that pack is needed by checkpoint 2.
    let mut attempt = store.begin(start("a")).unwrap();
    let keys = attempt.write_pages(&pages(&[1, 3, 5])).unwrap();
    attempt.write_page_list(&list(&keys)).unwrap();
    attempt.seal(end(), b"").unwrap();
    let mut attempt = store.begin(start("a")).unwrap();
    let more = attempt.write_pages(&pages(&[11, 13, 15])).unwrap();
    let mixed = list(&[keys[0], more[0], more[1], more[2]]);
    attempt.write_page_list(&mixed).unwrap();
    attempt.write_page_list(&list(&more)).unwrap();
    attempt.seal(end(), b"").unwrap();
    let row = checkpoint(&store, "a", &[11, 13, 15]).unwrap();
    store.prune(1, None).unwrap();
    let mut attempt = store.begin(start("a")).unwrap();
    assert!(matches!(attempt.write_page_list(&mixed), Err(StoreError::UnknownPage { .. })));
    drop(attempt);
    assert!(read_back(&open(&memory), row.id, 3).unwrap() == pages(&[11, 13, 15]));
}

#[test]
fn rows_of_failed_attempts_go_with_what_is_older_than_the_kept() {
    let (_, store) = store();
    store.begin(start("a")).unwrap().fail("for the test", 0.0).unwrap();
    drop(store.begin(start("a")).unwrap());
    checkpoint(&store, "a", &[1]).unwrap();
    store.begin(start("a")).unwrap().fail("for the test", 0.0).unwrap();
    store.begin(start("b")).unwrap().fail("for the test", 0.0).unwrap();
    store.prune(1, None).unwrap();
    let rows = store.attempts().unwrap();
    let left: Vec<_> = rows.iter().map(|row| (row.id, row.state)).collect();
    use AttemptState::{Failed, Sealed};
    assert_eq!(left, [(3, Sealed), (4, Failed), (5, Failed)]);
}

#[test]
fn a_flattened_checkpoint_lies_in_packs_of_its_own_in_the_order_of_memory() {
    let (memory, store) = store();
    checkpoint(&store, "a", &[1, 3, 5]).unwrap();
    checkpoint(&store, "a", &[7, 3, 9, 1]).unwrap();
    let reclaimed = store.flatten(2).unwrap();
    assert!(reclaimed.copied_bytes > 4 * 4096 && reclaimed.checkpoints.is_empty(), "{reclaimed:?}");
    let numbers = [7, 3, 9, 1];
    for store in [&store, &open(&memory)] {
        assert!(read_back(store, 2, 4).unwrap() == pages(&numbers));
        assert!(read_back(store, 1, 3).unwrap() == pages(&[1, 3, 5]));
    }
    let files = memory.files();
    let flat = &files["packs/0000000003-0000.pack"];
    assert_eq!(flat[4096..].starts_with(&pages(&numbers)), !story::is_encrypted());
    // It needs no other pack.
    let alone: BTreeMap<String, Vec<u8>> = files
        .iter()
        .filter(|(name, _)| !name.starts_with("packs/") || name.contains("03-0"))
        .map(|(name, bytes)| (name.clone(), bytes.clone()))
        .collect();
    assert!(read_back(&open(&Memory::of_files(&alone)), 2, 4).unwrap() == pages(&numbers));
    assert!(matches!(store.flatten(9), Err(StoreError::NoSuchCheckpoint { .. })));
}

#[test]
fn a_damaged_checkpoint_that_is_kept_keeps_everything() {
    let (memory, store) = store();
    checkpoint(&store, "a", &[1, 3]).unwrap();
    let second = checkpoint(&store, "a", &[5, 7]).unwrap();
    checkpoint(&store, "b", &[9]).unwrap();
    let mut files = memory.files();
    let pack = files.get_mut(&format!("packs/{:010}-0000.pack", second.id)).unwrap();
    let node_at = 4096 + 2 * 4096;
    pack[node_at + 20] ^= 1;
    let damaged = Memory::of_files(&files);
    let error = open(&damaged).prune(1, None).unwrap_err();
    assert!(error.is_corrupt(), "{error}");
    assert_eq!(packs(&damaged).len(), 3);
    assert_eq!(sealed(&open(&damaged)), [1, 2, 3]);
}

#[test]
fn a_damaged_manifest_keeps_all_other_checkpoints() {
    let (memory, store) = store();
    for page in 1..=5 {
        checkpoint(&store, "a", &[page]).unwrap();
    }
    let name = format!("manifests/{:010}.manifest", 5);
    let whole = memory.files()[&name].clone();
    let changed = |at: usize| whole.iter().enumerate().map(|(i, &byte)| byte ^ u8::from(i == at)).collect();
    for manifest in [changed(40), changed(whole.len() - 20), whole[..100].to_vec(), Vec::new()] {
        let mut files = memory.files();
        files.insert(name.clone(), manifest);
        let damaged = Memory::of_files(&files);
        let error = open(&damaged).prune(2, None).unwrap_err();
        assert!(error.is_corrupt(), "{error}");
        let error = open(&damaged).remove(&[1]).unwrap_err();
        assert!(error.is_corrupt(), "{error}");
        assert!((1..5).all(|page| read_back(&open(&damaged), page, 1).unwrap() == pages(&[page])));
        // It can be dropped itself, and the others then.
        open(&damaged).remove(&[5]).unwrap();
        assert_eq!(open(&damaged).prune(2, None).unwrap().checkpoints.len(), 2);
        assert_eq!(sealed(&open(&damaged)), [3, 4]);
    }
}
