//! Damage anywhere is found: the same data or `Corrupt`, never other data and never a panic.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use ckpt_store::{
    AttemptRow, AttemptState, Result, Store, StoreError,
    backend::Memory,
    fuzzing::{self, Found},
};

mod measured;
mod story;
use story::{checkpoint, read_back, start};

const FIRST: [u64; 4] = [1, 2, 0, 3];
const SECOND: [u64; 3] = [2, 5, 3];

fn small_store() -> BTreeMap<String, Vec<u8>> {
    let memory = Memory::default();
    let store = Store::create_or_open_on(Arc::new(memory.clone()), &story::options()).unwrap();
    checkpoint(&store, "a", &FIRST).unwrap();
    checkpoint(&store, "b", &SECOND).unwrap();
    store.begin(start("c")).unwrap().fail("for the test", 0.0).unwrap();
    memory.files()
}

type Everything = (Vec<AttemptRow>, Vec<u8>, Vec<u8>);

fn read_everything(files: &BTreeMap<String, Vec<u8>>) -> Result<Everything> {
    let store = Store::open_on(Arc::new(Memory::of_files(files)), &story::options())?;
    let first = read_back(&store, 1, FIRST.len());
    let second = read_back(&store, 2, SECOND.len());
    Ok((store.attempts()?, first?, second?))
}

fn check(files: &BTreeMap<String, Vec<u8>>, whole: &Everything, place: &str) {
    match read_everything(files) {
        Ok(found) => {
            assert!((&found.1, &found.2) == (&whole.1, &whole.2), "{place}: other pages");
            let damaged = |row: &AttemptRow| row.reason.contains("corrupt");
            assert!(found.0.iter().zip(&whole.0).all(|(a, b)| a == b || damaged(a)), "{place}: {:?}", found.0);
        }
        Err(StoreError::Corrupt { .. }) => {}
        Err(error) => panic!("{place}: {error}"),
    }
}

/// The pages of every checkpoint, or that they are damaged.
fn check_found(found: &Found, whole: &Found, place: &str) {
    for ((id, pages), (_, before)) in found.pages.iter().zip(&whole.pages) {
        match pages {
            Ok(pages) => assert!(pages == before.as_ref().unwrap(), "{place}: other pages in checkpoint {id}"),
            Err(_) => {
                assert!(found.verified.iter().any(|(other, verified)| other == id && verified.is_err()), "{place}")
            }
        }
    }
    let damaged = |row: &AttemptRow| row.state == AttemptState::Failed && row.reason.contains("corrupt");
    let (rows, before) = (found.rows.as_ref().unwrap(), whole.rows.as_ref().unwrap());
    assert_eq!(rows.len(), before.len(), "{place}");
    assert!(rows.iter().zip(before).all(|(a, b)| a == b || damaged(a)), "{place}: {rows:?}");
    found.errors().for_each(|error| assert!(error.is_corrupt(), "{place}: {error}"));
}

/// What is done to the byte at `at` of a file: one bit or all, each of them somewhere, and in records three of them.
fn flips(at: usize, bytes: &[u8]) -> Vec<u8> {
    let one = [1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0xff][at % 9];
    if is_record(at, bytes) { vec![one, one ^ 0xff, 0x80 >> (at % 8)] } else { vec![one] }
}

fn is_record(at: usize, bytes: &[u8]) -> bool {
    bytes.len() < 4096 || at + 700 > bytes.len()
}

#[test]
fn every_fourth_byte_flipped_gives_the_same_data_or_corrupt_in_bounded_time_and_memory() {
    // Of a frame that is encrypted every byte is like any other.
    flip_each(if story::is_encrypted() { 23 } else { 4 });
}

#[test]
#[ignore = "two minutes; the one above does a quarter of it"]
fn every_byte_flipped_gives_the_same_data_or_corrupt_in_bounded_time_and_memory() {
    flip_each(1);
}

/// Flips bits in one of `step` bytes of every file, one byte after another, and uses all that is there.
fn flip_each(step: usize) {
    let alone = measured::alone();
    let files = fuzzing::small_store_for(story::key()).unwrap();
    let whole = fuzzing::use_all_for(&files, story::key()).unwrap();
    assert_eq!((whole.errors().count(), whole.pages.len()), (0, 3));
    for (name, bytes) in &files {
        for (at, flip) in
            (0..bytes.len()).step_by(step).flat_map(|at| flips(at, bytes).into_iter().map(move |flip| (at, flip)))
        {
            let place = format!("{name} byte {at} ^ {flip:#x}");
            let mut damaged = files.clone();
            damaged.get_mut(name).unwrap()[at] ^= flip;
            let begun = Instant::now();
            // What is given back depends on records, and pages are most of the bytes.
            let use_it = if is_record(at, bytes) { fuzzing::use_all_for } else { fuzzing::use_all_but_reclaim };
            match measured::within_bounds(&alone, &place, || use_it(&damaged, story::key())) {
                Ok(found) => check_found(&found, &whole, &place),
                Err(StoreError::Corrupt { .. } | StoreError::NotAStore { .. }) => {
                    assert!(name == "header" || name.starts_with("keys/"), "{place}")
                }
                Err(error) => panic!("{place}: {error}"),
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "{place} took {:?}", begun.elapsed());
        }
    }
}

#[test]
fn every_shorter_file_gives_the_same_data_or_corrupt() {
    let _alone = measured::alone();
    let files = small_store();
    let whole = read_everything(&files).unwrap();
    for (name, bytes) in &files {
        for length in (0..bytes.len()).filter(|length| length % 7 == 0 || length + 200 > bytes.len()) {
            let mut damaged = files.clone();
            damaged.get_mut(name).unwrap().truncate(length);
            check(&damaged, &whole, &format!("{name} cut to {length}"));
        }
    }
}

#[test]
fn a_missing_pack_is_corrupt_and_the_other_checkpoint_reads_on() {
    let _alone = measured::alone();
    let mut files = small_store();
    files.remove("packs/0000000002-0000.pack").unwrap();
    let store = Store::open_on(Arc::new(Memory::of_files(&files)), &story::options()).unwrap();
    assert!(read_back(&store, 1, 4).unwrap() == story::pages(&FIRST));
    assert!(read_back(&store, 2, 3).unwrap_err().is_corrupt());
}

#[test]
fn files_exchanged_for_each_other_are_corrupt() {
    let _alone = measured::alone();
    let files = small_store();
    for (a, b) in [
        ("packs/0000000001-0000.pack", "packs/0000000002-0000.pack"),
        ("manifests/0000000001.manifest", "manifests/0000000002.manifest"),
    ] {
        let mut exchanged = files.clone();
        exchanged.insert(a.into(), files[b].clone());
        exchanged.insert(b.into(), files[a].clone());
        let store = Store::open_on(Arc::new(Memory::of_files(&exchanged)), &story::options()).unwrap();
        assert!(read_back(&store, 1, 4).unwrap_err().is_corrupt(), "{a}");
    }
}

#[test]
fn a_newer_format_and_unknown_features_are_refused_by_name() {
    let _alone = measured::alone();
    let files = small_store();
    for (at, bit) in [(8, 1), (24, 4)] {
        let mut newer = files.clone();
        let header = newer.get_mut("header").unwrap();
        header[at] |= bit;
        let crc = crc32fast::hash(&header[..508]).to_le_bytes();
        header[508..].copy_from_slice(&crc);
        let error = read_everything(&newer).unwrap_err();
        assert!(matches!(error, StoreError::UnsupportedFeature { found, .. } if found == u64::from(bit)), "{error}");
    }
}
