//! A store works the same whatever it names its pages by, and remembers what that is.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{collections::BTreeMap, sync::Arc};

use ckpt_store::{Digest, PAGE_BYTES, PageList, Store, StoreError, StoreOptions, backend::Memory};

mod story;
use story::{checkpoint, end, page, pages, read_back, start};

const FIRST: [u64; 4] = [1, 3, 0, 5];
const SECOND: [u64; 3] = [3, 7, 5];

fn made_with(digest: Digest) -> (Memory, Store) {
    let memory = Memory::default();
    let options = StoreOptions { digest, ..StoreOptions::default() };
    let store = Store::create_or_open_on(Arc::new(memory.clone()), &options).unwrap();
    (memory, store)
}

fn opened(files: &BTreeMap<String, Vec<u8>>) -> Store {
    Store::open_on(Arc::new(Memory::of_files(files)), &StoreOptions::default()).unwrap()
}

#[test]
fn pages_are_written_once_read_back_and_verified_by_either_digest() {
    for digest in Digest::ALL {
        let (memory, store) = made_with(digest);
        checkpoint(&store, "a", &FIRST).unwrap();
        let second = checkpoint(&store, "b", &SECOND).unwrap();
        assert_eq!(second.written.duplicate_bytes, 2 * PAGE_BYTES as u64, "{digest}: pages 3 and 5");
        assert_eq!(second.written.new_bytes, PAGE_BYTES as u64, "{digest}: page 7");
        let store = opened(&memory.files());
        assert_eq!(store.digest(), digest);
        assert_eq!(read_back(&store, 1, FIRST.len()).unwrap(), pages(&FIRST));
        assert_eq!(read_back(&store, 2, SECOND.len()).unwrap(), pages(&SECOND));
        let mut verifier = store.verifier();
        assert!([1, 2].into_iter().all(|id| verifier.checkpoint(id, &mut |_| ()).is_ok()), "{digest}");
    }
}

#[test]
fn a_store_keeps_the_digest_it_was_made_with_whatever_is_asked_for_later() {
    let (memory, store) = made_with(Digest::Blake3);
    checkpoint(&store, "a", &FIRST).unwrap();
    let asked = StoreOptions { digest: Digest::Sha1, ..StoreOptions::default() };
    let again = Store::create_or_open_on(Arc::new(memory), &asked).unwrap();
    assert_eq!(again.digest(), Digest::Blake3);
    let row = checkpoint(&again, "a", &FIRST).unwrap();
    assert_eq!(row.written.new_bytes, 0, "its pages are found by the same keys");
}

#[test]
fn keys_are_made_from_the_digest_of_the_store() {
    // Byte i is i % 251: an input of the published test vectors of BLAKE3.
    let page: Vec<u8> = (0..PAGE_BYTES).map(|at| (at % 251) as u8).collect();
    let key = |digest| {
        let (_, store) = made_with(digest);
        let keys = store.begin(start("a")).unwrap().write_pages(&page).unwrap();
        assert_eq!(keys, [store.digest().key_of(&page)]);
        keys[0].to_bytes().map(|byte| format!("{byte:02x}")).concat()
    };
    assert_eq!(key(Digest::Blake3), "015094013f57a5277b59d8475c0501042c0b642e531b0a1c8f58d216");
    assert_ne!(key(Digest::Sha1), key(Digest::Blake3));
}

#[test]
fn every_flipped_byte_of_a_blake3_store_gives_the_same_data_or_corrupt() {
    let (memory, store) = made_with(Digest::Blake3);
    checkpoint(&store, "a", &FIRST).unwrap();
    let files = memory.files();
    let pack = &files["packs/0000000001-0000.pack"];
    // All pages are raw, right behind the header page: a flip there can only be noticed by the digest.
    let in_a_page = 4096..4096 + 3 * PAGE_BYTES;
    for at in (4096..pack.len()).filter(|at| at % 61 == 0 || !in_a_page.contains(at)) {
        let mut damaged = files.clone();
        damaged.get_mut("packs/0000000001-0000.pack").unwrap()[at] ^= 1 << (at % 8);
        match read_back(&opened(&damaged), 1, FIRST.len()) {
            Ok(read) => assert!(!in_a_page.contains(&at) && read == pages(&FIRST), "byte {at}"),
            Err(error) => assert!(error.is_corrupt(), "byte {at}: {error}"),
        }
    }
}

#[test]
fn a_store_that_is_read_by_the_other_digest_is_corrupt_and_not_other_data() {
    for digest in Digest::ALL {
        let (memory, store) = made_with(digest);
        checkpoint(&store, "a", &FIRST).unwrap();
        let mut files = memory.files();
        let header = files.get_mut("header").unwrap();
        header[24] ^= 1;
        let crc = crc32fast::hash(&header[..508]).to_le_bytes();
        header[508..].copy_from_slice(&crc);
        let store = opened(&files);
        assert_ne!(store.digest(), digest);
        assert!(read_back(&store, 1, FIRST.len()).unwrap_err().is_corrupt());
    }
}

#[test]
fn a_list_of_a_store_with_the_other_digest_is_refused() {
    let (_, sha1) = made_with(Digest::Sha1);
    let (_, blake3) = made_with(Digest::Blake3);
    for (from, to) in [(&sha1, &blake3), (&blake3, &sha1)] {
        let mut attempt = from.begin(start("a")).unwrap();
        let mut list = PageList::new();
        list.set_run(0, &attempt.write_pages(&page(1)).unwrap());
        let root = attempt.write_page_list(&list).unwrap();
        attempt.seal(end(), b"").unwrap();
        // Read back, so that its leaf remembers the key of its node.
        let list = from.page_list(&root).unwrap();
        let mut attempt = to.begin(start("b")).unwrap();
        attempt.write_pages(&page(1)).unwrap();
        assert!(matches!(attempt.write_page_list(&list).unwrap_err(), StoreError::UnknownPage { .. }));
    }
}
