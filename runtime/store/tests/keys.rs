//! Encrypted stores: who opens them, and what is refused that somebody without a key has done to their files.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use ckpt_store::{
    Key, PAGE_BYTES, PageList, Result, Store, StoreError, StoreOptions,
    backend::{Memory, Survives},
};

mod story;
use story::{Random, checkpoint, encode, end, page, pages, read_back, start};

type FileMap = BTreeMap<String, Vec<u8>>;

fn key(number: u8) -> Key {
    Key::from_bytes([number; 32])
}

fn options(key: Key) -> StoreOptions {
    StoreOptions { key: Some(key), ..StoreOptions::default() }
}

fn opened(files: &FileMap, key: Option<Key>) -> Result<Store> {
    Store::open_on(Arc::new(Memory::of_files(files)), &StoreOptions { key, ..StoreOptions::default() })
}

fn made(memory: &Memory, key: Key) -> Store {
    Store::create_or_open_on(Arc::new(memory.clone()), &options(key)).unwrap()
}

/// An encrypted store of two checkpoints, a failed attempt, and a list of condemned packs.
fn store_files() -> FileMap {
    let memory = Memory::default();
    let store = made(&memory, key(1));
    checkpoint(&store, "a", &[1, 2, 3]).unwrap();
    checkpoint(&store, "a", &[1, 4, 5]).unwrap();
    store.begin(start("b")).unwrap().fail("for the test", 0.0).unwrap();
    store.begin(start("c")).unwrap().fail("for another reason", 0.0).unwrap();
    memory.files()
}

fn exchanged(files: &FileMap, one: &str, other: &str) -> FileMap {
    let mut exchanged = files.clone();
    exchanged.insert(one.into(), files[other].clone());
    exchanged.insert(other.into(), files[one].clone());
    exchanged
}

/// The error says that a frame is another's.
#[track_caller]
fn refused_by_name(error: &StoreError, name: &str) {
    let text = error.to_string();
    assert!(
        error.is_corrupt() && text.contains(name) && text.contains("that of this store, this file and this place"),
        "{text}"
    );
}

#[test]
fn a_store_is_opened_by_its_key_alone_and_a_plain_one_by_none() {
    let files = store_files();
    assert!(read_back(&opened(&files, Some(key(1))).unwrap(), 2, 3).unwrap() == pages(&[1, 4, 5]));
    assert!(matches!(opened(&files, None).unwrap_err(), StoreError::KeyNeeded { .. }));
    assert!(matches!(opened(&files, Some(key(2))).unwrap_err(), StoreError::WrongKey { keys: 1, .. }));
    let plain = Memory::default();
    Store::create_or_open_on(Arc::new(plain.clone()), &StoreOptions::default()).unwrap();
    let refused = Store::create_or_open_on(Arc::new(plain.clone()), &options(key(1))).unwrap_err();
    assert!(matches!(refused, StoreError::NotEncrypted { .. }), "{refused}");
    let accepting = StoreOptions { accept_plain: true, ..options(key(1)) };
    assert!(!Store::open_on(Arc::new(plain), &accepting).unwrap().is_encrypted());
}

#[test]
fn keys_are_added_and_removed_but_the_last_one() {
    let memory = Memory::default();
    let store = made(&memory, key(1));
    checkpoint(&store, "a", &[1, 3]).unwrap();
    let (first, second) = (store.key_id(&key(1)), store.add_key(&key(2)).unwrap());
    assert_eq!(store.add_key(&key(2)).unwrap(), second, "it is there already");
    let ids: HashSet<_> = store.keys().unwrap().iter().map(|key| key.id).collect();
    assert_eq!(ids, HashSet::from([first, second]));
    let by = |number| opened(&memory.files(), Some(key(number)));
    assert!(read_back(&by(2).unwrap(), 1, 2).unwrap() == pages(&[1, 3]));
    made(&memory, key(2)).remove_key(first).unwrap();
    assert!(matches!(by(1).unwrap_err(), StoreError::WrongKey { keys: 1, .. }));
    let refused = by(2).unwrap().remove_key(second).unwrap_err();
    assert!(matches!(refused, StoreError::LastKey { key, .. } if key == second), "{refused}");
    assert!(matches!(by(2).unwrap().remove_key(first).unwrap_err(), StoreError::NoSuchKey { .. }));
    let plain = Store::create_or_open_on(Arc::new(Memory::default()), &StoreOptions::default()).unwrap();
    assert!(matches!(plain.add_key(&key(1)).unwrap_err(), StoreError::NotEncrypted { .. }));
}

#[test]
fn an_older_manifest_in_the_place_of_a_newer_one_and_packs_exchanged_are_refused() {
    let files = store_files();
    for (one, other) in [
        ("manifests/0000000002.manifest", "manifests/0000000001.manifest"),
        ("packs/0000000002-0000.pack", "packs/0000000001-0000.pack"),
    ] {
        let store = opened(&exchanged(&files, one, other), Some(key(1))).unwrap();
        refused_by_name(
            &read_back(&store, 2, 3).unwrap_err(),
            one.rsplit('/').next().unwrap().split_once('2').unwrap().0,
        );
        refused_by_name(&store.verifier().checkpoint(2, &mut |_| ()).unwrap_err(), &one[..9]);
    }
    let mut older = files.clone();
    older.insert("manifests/0000000005.manifest".into(), files["manifests/0000000001.manifest"].clone());
    refused_by_name(&opened(&older, Some(key(1))).unwrap().manifest(5).unwrap_err(), "0000000005.manifest");
}

#[test]
fn renamed_rows_are_listed_as_damaged() {
    let files = store_files();
    let renamed = exchanged(&files, "attempts/0000000003.failed", "attempts/0000000004.failed");
    let rows = opened(&renamed, Some(key(1))).unwrap().attempts().unwrap();
    for row in &rows[2..4] {
        assert!(row.reason.contains("this store, this file and this place"), "{}", row.reason);
    }
    // A row of another kind is another file.
    let mut begun = files.clone();
    begun.insert("attempts/0000000003.writing".into(), begun["attempts/0000000003.failed"].clone());
    begun.remove("attempts/0000000003.failed");
    let rows = opened(&begun, Some(key(1))).unwrap().attempts().unwrap();
    assert!(rows[2].reason.contains("this store") || rows[2].name.is_empty(), "{:?}", rows[2]);
}

#[test]
fn files_of_another_store_of_the_same_key_are_refused() {
    let (files, others) = (store_files(), store_files());
    for name in ["manifests/0000000002.manifest", "packs/0000000002-0000.pack"] {
        let mut mixed = files.clone();
        mixed.insert(name.into(), others[name].clone());
        let store = opened(&mixed, Some(key(1))).unwrap();
        refused_by_name(&read_back(&store, 2, 3).unwrap_err(), name);
    }
    let mut mixed = files.clone();
    mixed.insert("header".into(), others["header"].clone());
    assert!(matches!(opened(&mixed, Some(key(1))).unwrap_err(), StoreError::WrongKey { .. }));
    // Even with the files of its keys: the store's number is what all else hangs on.
    mixed.extend(
        others.iter().filter(|(name, _)| name.starts_with("keys/")).map(|(name, file)| (name.clone(), file.clone())),
    );
    refused_by_name(&opened(&mixed, Some(key(1))).unwrap().manifest(2).unwrap_err(), "0000000002.manifest");
}

#[test]
fn a_header_that_was_changed_is_refused() {
    let files = store_files();
    for (at, bit) in [(24, 1), (48, 1), (60, 1)] {
        let mut changed = files.clone();
        let header = changed.get_mut("header").unwrap();
        header[at] ^= bit;
        let crc = crc32fast::hash(&header[..508]).to_le_bytes();
        header[508..].copy_from_slice(&crc);
        let refused = opened(&changed, Some(key(1))).unwrap_err();
        assert!(refused.to_string().contains("what proves the header"), "{refused}");
    }
    // That it is encrypted cannot be taken away: whoever has a key does not take it for a plain store.
    let mut plain = files.clone();
    let header = plain.get_mut("header").unwrap();
    header[24] ^= 2;
    let crc = crc32fast::hash(&header[..508]).to_le_bytes();
    header[508..].copy_from_slice(&crc);
    assert!(matches!(opened(&plain, Some(key(1))).unwrap_err(), StoreError::NotEncrypted { .. }));
    assert!(opened(&plain, None).unwrap().manifest(1).unwrap_err().is_corrupt());
}

#[test]
fn a_cut_file_is_refused_at_every_frame() {
    let memory = Memory::default();
    let numbers: Vec<u64> = (0..40).map(|n| 2 * n + 1).collect();
    let row = checkpoint(&made(&memory, key(1)), "a", &numbers).unwrap();
    let files = memory.files();
    let pack = &files["packs/0000000001-0000.pack"];
    assert!(pack.len() > 9 * 16384);
    for frames in 1..=pack.len() / 16384 {
        let mut cut = files.clone();
        cut.get_mut("packs/0000000001-0000.pack").unwrap().truncate(frames * 16384);
        let error = read_back(&opened(&cut, Some(key(1))).unwrap(), row.id, numbers.len()).unwrap_err();
        assert!(error.is_corrupt(), "{frames} frames: {error}");
    }
    for at in [1, 3] {
        let mut moved = files.clone();
        let pack = moved.get_mut("packs/0000000001-0000.pack").unwrap();
        let frame = pack[at * 16384..(at + 1) * 16384].to_vec();
        pack[(at + 1) * 16384..(at + 2) * 16384].copy_from_slice(&frame);
        let error = read_back(&opened(&moved, Some(key(1))).unwrap(), row.id, numbers.len()).unwrap_err();
        refused_by_name(&error, "0000000001-0000.pack");
    }
}

#[test]
fn nothing_that_was_written_and_no_two_equal_pages_show() {
    let (memory, other) = (Memory::default(), Memory::default());
    for memory in [&memory, &other] {
        let store = made(memory, key(1));
        checkpoint(&store, "a-job", &[1, 3, 5]).unwrap();
        let mut attempt = store.begin(start("a-job")).unwrap();
        attempt.share(ckpt_store::Sharing::WithNothing);
        let mut list = PageList::new();
        list.set_run(0, &attempt.write_pages(&pages(&[1, 1, 3])).unwrap());
        let root = attempt.write_page_list(&list).unwrap();
        attempt.seal(end(), &encode(&root)).unwrap();
    }
    let digest = ckpt_store::Digest::Sha1;
    let secret =
        [page(1)[..16].to_vec(), page(5)[4000..4016].to_vec(), digest.key_of(&page(1)).to_bytes()[..16].to_vec()];
    let mut windows = HashSet::new();
    let records = |name: &str| ["packs/", "manifests/", "attempts/"].iter().any(|dir| name.starts_with(dir));
    for (name, bytes) in memory.files().iter().chain(&other.files()).filter(|(name, _)| records(name)) {
        assert!(secret.iter().all(|secret| !bytes.windows(16).any(|found| found == &secret[..])), "{name}");
        assert!(!bytes.windows(5).any(|found| found == b"a-job"), "{name}");
        let repeated = bytes[16..].chunks_exact(16).find(|window| !windows.insert(window.to_vec()));
        assert!(repeated.is_none_or(|window| window == [0; 16]), "{name} has bytes that are elsewhere, too");
    }
}

#[test]
fn a_crash_while_a_store_is_made_leaves_one_that_another_key_can_make() {
    let memory = Memory::default();
    made(&memory, key(1)).add_key(&key(2)).unwrap();
    let journal = memory.journal();
    for steps in 0..=journal.len() {
        for (names, bytes) in [(false, false), (true, false), (true, true)] {
            let survives = Survives { names, last_name: false, bytes, last_append_torn: false };
            let left = Memory::after_crash(&journal[..steps], survives);
            let place = format!("after step {steps}, {survives:?}");
            match Store::create_or_open_on(Arc::new(left.clone()), &options(key(3))) {
                Ok(store) => {
                    checkpoint(&store, "a", &[1]).unwrap();
                    assert_eq!(store.keys().unwrap().len(), 1, "{place}");
                }
                // It was made.
                Err(StoreError::WrongKey { .. }) => {
                    checkpoint(&made(&left, key(1)), "a", &[1]).unwrap();
                }
                Err(error) => panic!("{place}: {error}"),
            }
        }
    }
}

#[test]
fn a_copy_goes_from_any_kind_of_store_to_any_other() {
    let kinds = [None, Some(key(1)), Some(key(2))];
    let store = |key: Option<Key>| {
        let options = StoreOptions { key, ..StoreOptions::default() };
        Store::create_or_open_on(Arc::new(Memory::default()), &options).unwrap()
    };
    for (from, to) in kinds.iter().flat_map(|from| kinds.map(|to| (*from, to))) {
        let (from, to) = (store(from), store(to));
        let row = checkpoint(&from, "a", &[1, 2, 3]).unwrap();
        from.copy_checkpoint(row.id, &to, &mut |_| ()).unwrap();
        assert!(read_back(&to, 1, 3).unwrap() == pages(&[1, 2, 3]));
        assert!(from.copy_checkpoint(row.id, &to, &mut |_| ()).unwrap().was_there);
    }
}

#[test]
fn pages_are_read_from_any_place_of_packs_of_any_length() {
    let mut random = Random(7);
    for round in 0..20 {
        let memory = Memory::default();
        let pack_bytes = 1 << (10 + random.below(12));
        let memory_bytes = (1 << 20) * (1 + random.below(64)) as usize;
        let store = Store::create_or_open_on(
            Arc::new(memory.clone()),
            &StoreOptions { pack_bytes, memory_bytes, ..options(key(1)) },
        )
        .unwrap();
        let numbers: Vec<u64> = (0..1 + random.below(300)).map(|_| random.below(200)).collect();
        let mut attempt = store.begin(start("a")).unwrap();
        let mut keys = Vec::new();
        let mut rest = &numbers[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at((1 + random.below(70) as usize).min(rest.len()));
            keys.extend(attempt.write_pages(&pages(now)).unwrap());
            rest = later;
        }
        attempt.seal(end(), b"").unwrap();
        let again = opened(&memory.files(), Some(key(1))).unwrap();
        for _ in 0..20 {
            let some: Vec<usize> =
                (0..1 + random.below(30)).map(|_| random.below(numbers.len() as u64) as usize).collect();
            let wanted: Vec<_> = some.iter().map(|at| keys[*at]).collect();
            let mut read = vec![0xee; wanted.len() * PAGE_BYTES];
            again.read_pages(&wanted, &mut read).unwrap();
            let expected = pages(&some.iter().map(|at| numbers[*at]).collect::<Vec<_>>());
            assert!(read == expected, "round {round}");
        }
    }
}
