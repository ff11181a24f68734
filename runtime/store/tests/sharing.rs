//! Attempts that share less than they could: what they write, and that their checkpoints are like any other.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::sync::Arc;

use ckpt_store::{AttemptRow, PageList, Sharing, Store, StoreOptions, backend::Memory};

mod story;
use story::{encode, end, pages, read_back, start};

const PAGE: u64 = 4096;

fn open(memory: &Memory, pack_bytes: u64) -> Store {
    let options = StoreOptions { pack_bytes, ..story::options() };
    Store::create_or_open_on(Arc::new(memory.clone()), &options).unwrap()
}

fn store() -> (Memory, Store) {
    let memory = Memory::default();
    let store = open(&memory, 1 << 30);
    (memory, store)
}

/// Takes a checkpoint of the pages with these numbers, given in calls of two.
fn take(store: &Store, sharing: Sharing, numbers: &[u64]) -> AttemptRow {
    let mut attempt = store.begin(start("a")).unwrap();
    attempt.share(sharing);
    let mut list = PageList::new();
    for (numbers, at) in numbers.chunks(2).zip((7..).step_by(2)) {
        list.set_run(at, &attempt.write_pages(&pages(numbers)).unwrap());
    }
    let root = attempt.write_page_list(&list).unwrap();
    attempt.seal(end(), &encode(&root)).unwrap()
}

fn new_and_duplicate_pages(row: &AttemptRow) -> (u64, u64) {
    (row.written.new_bytes / PAGE, row.written.duplicate_bytes / PAGE)
}

/// The packs that an attempt has written.
fn packs_of(memory: &Memory, id: u64) -> Vec<String> {
    let prefix = format!("packs/{id:010}-");
    memory.files().into_keys().filter(|name| name.starts_with(&prefix)).collect()
}

#[test]
fn each_writes_what_it_does_not_share() {
    let numbers = [1, 3, 0, 3, 5, 1, 1, 0];
    for (sharing, first, second, has_packs) in [
        (Sharing::WithAll, (3, 3), (0, 6), false),
        (Sharing::WithItself, (3, 3), (3, 3), true),
        (Sharing::OnlyLists, (6, 0), (6, 0), true),
        (Sharing::WithNothing, (6, 0), (6, 0), true),
    ] {
        let (memory, store) = store();
        let one = take(&store, sharing, &numbers);
        let other = take(&store, sharing, &numbers);
        assert_eq!((new_and_duplicate_pages(&one), new_and_duplicate_pages(&other)), (first, second), "{sharing:?}");
        assert_eq!(one.written.zero_bytes, 2 * PAGE, "pages of zeros are never written");
        assert_eq!(packs_of(&memory, other.id).is_empty(), !has_packs, "{sharing:?}");
        for store in [&store, &open(&memory, 1 << 30)] {
            for id in [one.id, other.id] {
                assert!(read_back(store, id, numbers.len()).unwrap() == pages(&numbers), "{sharing:?}");
                store.verifier().checkpoint(id, &mut |_| ()).unwrap();
            }
        }
    }
}

#[test]
fn a_list_that_the_store_has_is_written_once_more_only_by_who_shares_no_lists() {
    for (sharing, is_written) in [
        (Sharing::WithAll, false),
        (Sharing::OnlyLists, false),
        (Sharing::WithItself, true),
        (Sharing::WithNothing, true),
    ] {
        let (memory, store) = store();
        let mut attempt = store.begin(start("a")).unwrap();
        let mut list = PageList::new();
        list.set_run(0, &attempt.write_pages(&pages(&[1, 3])).unwrap());
        attempt.write_page_list(&list).unwrap();
        attempt.seal(end(), b"").unwrap();
        let mut again = store.begin(start("a")).unwrap();
        again.share(sharing);
        let root = again.write_page_list(&list).unwrap();
        let row = again.seal(end(), &encode(&root)).unwrap();
        assert_eq!(!packs_of(&memory, row.id).is_empty(), is_written, "{sharing:?}");
        assert_eq!(row.written.new_bytes, 0, "its pages are those that are there");
    }
}

#[test]
fn pages_that_are_there_several_times_are_found_in_the_same_place_by_all_and_none_is_lost() {
    // Packs of a few pages: copies of a page are in different packs of one attempt, too.
    let memory = Memory::default();
    let open = || open(&memory, 2 * PAGE);
    let (store, other) = (open(), open());
    let histories: [(Sharing, &[u64]); 6] = [
        (Sharing::WithNothing, &[1, 3, 1, 5, 7, 1, 3, 9]),
        (Sharing::WithNothing, &[1, 3, 1, 5, 7, 1, 3, 11]),
        (Sharing::OnlyLists, &[3, 1, 13, 3]),
        (Sharing::WithItself, &[5, 5, 1, 15]),
        (Sharing::WithAll, &[1, 3, 5, 7, 9, 11, 13, 15]),
        (Sharing::WithNothing, &[9, 9, 9, 17]),
    ];
    for (number, (sharing, numbers)) in (1..).zip(histories) {
        let writer = if number % 2 == 0 { &store } else { &other };
        assert_eq!(take(writer, sharing, numbers).id, number);
    }
    let bytes = || memory.files().values().map(Vec::len).sum::<usize>();
    let before = bytes();
    for keep in (1..=5).rev() {
        let pruner = if keep % 2 == 0 { &store } else { &other };
        assert!(pruner.prune(keep, None).unwrap().problems.is_empty());
        let sealed = store.sealed().unwrap();
        assert_eq!(sealed.len(), keep);
        for store in [&store, &other, &open()] {
            for id in &sealed {
                let numbers = histories[*id as usize - 1].1;
                assert!(read_back(store, *id, numbers.len()).unwrap() == pages(numbers), "{id} of {sealed:?}");
                store.verifier().checkpoint(*id, &mut |_| ()).unwrap();
            }
        }
    }
    assert!(bytes() * 3 < before, "what nobody needs is gone: {} of {before} bytes are left", bytes());
}

#[test]
fn copied_and_flattened_ones_are_whole_and_take_no_more_than_they_have() {
    let (_, store) = store();
    let numbers = [1, 3, 1, 3, 5, 0];
    take(&store, Sharing::WithNothing, &numbers);
    let second = take(&store, Sharing::WithNothing, &numbers);
    let (_, to) = self::store();
    let copied = store.copy_checkpoint(second.id, &to, &mut |_| ()).unwrap();
    assert_eq!(copied.row.written.new_bytes, 3 * PAGE, "each page once");
    assert!(read_back(&to, copied.row.id, numbers.len()).unwrap() == pages(&numbers));
    store.flatten(second.id).unwrap();
    store.prune(1, None).unwrap();
    assert!(read_back(&store, second.id, numbers.len()).unwrap() == pages(&numbers));
}
