//! The verifier reads everything that a checkpoint reaches, and what checkpoints share once.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{collections::BTreeMap, sync::Arc};

use ckpt_store::{Result, Store, StoreError, backend::Memory};

mod story;
use story::checkpoint;

/// Checkpoint 2 shares pages with 1, and 3 with none. No page compresses: damage to a compressed run is damage to all
/// of its pages.
const STORIES: [&[u64]; 3] = [&[1, 3, 0, 5], &[3, 7, 5], &[9, 11]];

fn store_of(files: &BTreeMap<String, Vec<u8>>) -> Result<Store> {
    Store::open_on(Arc::new(Memory::of_files(files)), &story::options())
}

fn small_store() -> BTreeMap<String, Vec<u8>> {
    let memory = Memory::default();
    let store = Store::create_or_open_on(Arc::new(memory.clone()), &story::options()).unwrap();
    for numbers in STORIES {
        checkpoint(&store, "a", numbers).unwrap();
    }
    memory.files()
}

/// Whether each checkpoint is whole; any error but damage is a failure.
fn verdicts(files: &BTreeMap<String, Vec<u8>>) -> Result<[bool; 3]> {
    let store = store_of(files)?;
    assert_eq!(store.sealed()?, [1, 2, 3]);
    let mut verifier = store.verifier();
    Ok([1, 2, 3].map(|id| match verifier.checkpoint(id, &mut |_| ()) {
        Ok(manifest) => manifest.id == id,
        Err(StoreError::Corrupt { .. }) => false,
        Err(error) => panic!("checkpoint {id}: {error}"),
    }))
}

#[test]
fn whole_checkpoints_are_whole_and_progress_counts_every_page_of_each() {
    let files = small_store();
    let store = store_of(&files).unwrap();
    let mut verifier = store.verifier();
    for (id, numbers) in (1..).zip(STORIES) {
        let mut pages = 0;
        assert_eq!(verifier.checkpoint(id, &mut |more| pages += more).unwrap().id, id);
        assert_eq!(pages, numbers.iter().filter(|number| **number != 0).count() as u64);
    }
    assert!(matches!(verifier.checkpoint(4, &mut |_| ()), Err(StoreError::NoSuchCheckpoint { id: 4, .. })));
}

#[test]
fn damage_is_charged_to_every_checkpoint_that_it_touches_and_to_no_other() {
    if story::is_encrypted() {
        return; // damage to a frame is damage to all pages in it
    }
    let files = small_store();
    assert_eq!(verdicts(&files).unwrap(), [true; 3]);
    let flipped = |name: &str, at: usize| {
        let mut files = files.clone();
        files.get_mut(name).unwrap()[at] ^= 1;
        verdicts(&files).unwrap()
    };
    // The middle of the page stored first, raw, right behind the pack's header page.
    let page = 4096 + 2000;
    assert_eq!(flipped("packs/0000000002-0000.pack", page), [true, false, true], "page 7");
    assert_eq!(flipped("packs/0000000003-0000.pack", page), [true, true, false], "page 9");
    assert_eq!(flipped("manifests/0000000001.manifest", 100), [false, true, true]);
    assert_eq!(flipped("packs/0000000001-0000.pack", page), [false, true, true], "page 1, which 2 does not have");
    let pack = &files["packs/0000000001-0000.pack"];
    let shared = (4096..pack.len()).find(|&at| pack[at..].starts_with(&story::page(5)[..64])).unwrap();
    assert_eq!(flipped("packs/0000000001-0000.pack", shared), [false, false, true], "page 5, which both have");
}

#[test]
fn every_flipped_byte_that_a_reader_could_notice_is_noticed() {
    let files = small_store();
    for name in files.keys().filter(|name| name.ends_with(".pack")) {
        for at in (4096..files[name].len()).step_by(31) {
            let mut damaged = files.clone();
            damaged.get_mut(name).unwrap()[at] ^= 0x40;
            let Ok(verdicts) = verdicts(&damaged) else { continue };
            if verdicts == [true; 3] {
                let store = store_of(&damaged).unwrap();
                for (id, numbers) in (1..).zip(STORIES) {
                    let read = story::read_back(&store, id, numbers.len()).unwrap();
                    assert_eq!(read, story::pages(numbers), "{name} byte {at}");
                }
            }
        }
    }
}
