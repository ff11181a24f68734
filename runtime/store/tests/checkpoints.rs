//! What the store is for: checkpoints go in, share their pages, and come back.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::os::unix::fs::{PermissionsExt, symlink};

use ckpt_store::{Attempt, AttemptState, PAGE_BYTES, PageKey, PageList, Store, StoreError, StoreOptions};

mod story;
use story::{checkpoint, decode, encode, end, page, pages, read_back, start};

const PAGE: u64 = PAGE_BYTES as u64;

#[test]
fn a_sealed_checkpoint_reads_back_after_the_store_was_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let numbers = [1, 0, 2, 3, 3, 0, 5, 4];
    let row = checkpoint(&story::create_or_open(dir.path()).unwrap(), "a", &numbers).unwrap();
    let store = story::open(dir.path()).unwrap();
    assert!(read_back(&store, row.id, 8).unwrap() == pages(&numbers));
    assert_eq!(store.attempts().unwrap(), std::slice::from_ref(&row));
    assert_eq!((row.state, row.processes, row.reason.as_str()), (AttemptState::Sealed, 3, ""));
    let written = row.written;
    assert_eq!((written.zero_bytes, written.duplicate_bytes, written.new_bytes), (2 * PAGE, PAGE, 5 * PAGE));
}

#[test]
fn pages_of_other_jobs_and_earlier_times_are_not_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let numbers: Vec<u64> = (1..1000).collect();
    checkpoint(&story::create_or_open(dir.path()).unwrap(), "a", &numbers).unwrap();
    let store = story::open(dir.path()).unwrap();
    for job in ["a", "b"] {
        let row = checkpoint(&store, job, &numbers).unwrap();
        assert_eq!((row.written.new_bytes, row.written.duplicate_bytes), (0, 999 * PAGE));
        assert!(row.new_bytes < 1024, "an unchanged checkpoint took {} bytes", row.new_bytes);
    }
}

#[test]
fn the_bytes_a_row_says_it_added_are_the_bytes_in_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let store = story::create_or_open(dir.path()).unwrap();
    let rows = [&[1, 2, 3][..], &[3, 4], &[]].map(|numbers| checkpoint(&store, "a", numbers).unwrap());
    let in_files: u64 = ["packs", "manifests", "attempts"]
        .iter()
        .flat_map(|part| std::fs::read_dir(dir.path().join(part)).unwrap())
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert_eq!(rows.iter().map(|row| row.new_bytes).sum::<u64>(), in_files);
}

#[test]
fn a_huge_region_of_nothing_with_one_page_costs_a_few_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let store = story::create_or_open(dir.path()).unwrap();
    let mut attempt = store.begin(start("sparse")).unwrap();
    let keys = attempt.write_pages(&page(1)).unwrap();
    let mut list = PageList::new();
    list.set((128 << 30) / PAGE - 1, keys[0]);
    let root = attempt.write_page_list(&list).unwrap();
    let row = attempt.seal(end(), &encode(&root)).unwrap();
    assert!(row.new_bytes < 16 << 10, "{}", row.new_bytes);
    assert_eq!(store.page_list(&decode(&store.manifest(row.id).unwrap().state)).unwrap(), list);
}

#[test]
fn one_changed_page_in_a_gibibyte_costs_one_leaf_and_its_ancestors() {
    let dir = tempfile::tempdir().unwrap();
    let store = story::create_or_open(dir.path()).unwrap();
    let mut list = PageList::new();
    let mut attempt = store.begin(start("list")).unwrap();
    let keys = attempt.write_pages(&pages(&(1..=512).collect::<Vec<_>>())).unwrap();
    for window in 0..512 {
        list.set_run(window * 512, &keys);
        list.set(window * 512 + window, keys[0]);
    }
    attempt.write_page_list(&list).unwrap();
    attempt.seal(end(), b"").unwrap();
    let mut attempt = store.begin(start("list")).unwrap();
    list.set(77_777, keys[5]);
    let root = attempt.write_page_list(&list).unwrap();
    let row = attempt.seal(end(), b"").unwrap();
    assert!(row.new_bytes < 26 << 10, "{}", row.new_bytes);
    assert_eq!(story::open(dir.path()).unwrap().page_list(&root).unwrap(), list);
}

#[test]
fn an_attempt_of_several_packs_reads_back_and_leaves_none_when_it_fails() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions { pack_bytes: 64 << 10, ..story::options() };
    let store = Store::create_or_open_with(dir.path(), &options).unwrap();
    let write = |attempt: &mut Attempt, first: u64| -> (Vec<u8>, Vec<PageKey>) {
        let numbers: Vec<u64> = (first..first + 100).collect();
        let keys = numbers.chunks(20).flat_map(|numbers| attempt.write_pages(&pages(numbers)).unwrap()).collect();
        (pages(&numbers), keys)
    };
    let packs = || std::fs::read_dir(dir.path().join("packs")).unwrap().count();
    let mut attempt = store.begin(start("a")).unwrap();
    let (written, keys) = write(&mut attempt, 1);
    let mut list = PageList::new();
    list.set_run(0, &keys);
    attempt.write_page_list(&list).unwrap();
    attempt.seal(end(), b"").unwrap();
    assert!(packs() >= 3, "{}", packs());
    for store in [&store, &story::open(dir.path()).unwrap()] {
        let mut read = vec![0; written.len()];
        store.read_pages(&keys, &mut read).unwrap();
        assert!(read == written);
    }
    let sealed = packs();
    let mut attempt = store.begin(start("a")).unwrap();
    write(&mut attempt, 1001);
    assert!(packs() >= sealed + 2);
    attempt.fail("for the test", 0.0).unwrap();
    assert_eq!(packs(), sealed);
}

#[test]
fn names_that_no_row_can_hold_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = story::create_or_open(dir.path()).unwrap();
    let error = store.begin(start(&"x".repeat(100_000))).unwrap_err();
    assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
    store.begin(start("a")).unwrap().fail(&"y".repeat(100_000), 0.0).unwrap();
    assert_eq!(store.attempts().unwrap()[0].reason.len(), 2000);
}

#[test]
fn a_failed_attempt_leaves_a_row_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let store = story::create_or_open(dir.path()).unwrap();
    let mut attempt = store.begin(start("a")).unwrap();
    let keys = attempt.write_pages(&pages(&[1, 2, 3])).unwrap();
    assert_eq!(store.attempts().unwrap()[0].state, AttemptState::Writing);
    attempt.fail("the program holds a socket", 3.5).unwrap();
    let rows = store.attempts().unwrap();
    assert_eq!((rows[0].state, rows[0].stop_ms), (AttemptState::Failed, 3.5));
    assert_eq!(rows[0].reason, "the program holds a socket");
    assert_eq!(std::fs::read_dir(dir.path().join("packs")).unwrap().count(), 0);
    assert!(store.read_pages(&keys, &mut [0; 3 * PAGE_BYTES]).unwrap_err().is_corrupt());
    assert_eq!(checkpoint(&store, "a", &[1]).unwrap().id, 2);
}

#[test]
fn a_dropped_attempt_reads_as_failed() {
    let dir = tempfile::tempdir().unwrap();
    let store = story::create_or_open(dir.path()).unwrap();
    drop(store.begin(start("a")).unwrap());
    let row = &store.attempts().unwrap()[0];
    assert_eq!((row.state, row.job.as_str()), (AttemptState::Failed, "a"));
    assert_eq!(row.reason, "the agent ended before the checkpoint was sealed");
}

#[test]
fn the_newest_checkpoint_is_found_by_job_and_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let store = story::create_or_open(dir.path()).unwrap();
    assert_eq!(store.newest_sealed(None).unwrap(), None);
    for job in ["a", "b", "a", "b"] {
        checkpoint(&store, job, &[1]).unwrap();
    }
    let _unfinished = store.begin(start("a")).unwrap();
    let newest = |job| store.newest_sealed(job).unwrap();
    assert_eq!((newest(None), newest(Some("a")), newest(Some("a-name"))), (Some(4), Some(3), Some(3)));
    assert_eq!(newest(Some("c")), None);
    let error = store.manifest(5).unwrap_err();
    assert!(matches!(error, StoreError::NoSuchCheckpoint { id: 5, newest: Some(4), .. }), "{error}");
}

#[test]
fn a_page_list_with_a_page_nobody_wrote_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = story::create_or_open(dir.path()).unwrap();
    let mut attempt = store.begin(start("a")).unwrap();
    let keys = attempt.write_pages(&page(1)).unwrap();
    let mut list = PageList::new();
    list.set_run(0, &[keys[0], store.digest().key_of(&page(2))]);
    assert!(matches!(attempt.write_page_list(&list).unwrap_err(), StoreError::UnknownPage { .. }));
    attempt.write_pages(&page(2)).unwrap();
    attempt.write_page_list(&list).unwrap();
    attempt.seal(end(), b"").unwrap();
}

#[test]
fn lengths_that_are_not_whole_pages_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = story::create_or_open(dir.path()).unwrap();
    let mut attempt = store.begin(start("a")).unwrap();
    assert!(matches!(attempt.write_pages(&[1; 100]).unwrap_err(), StoreError::WrongLength { found: 100, .. }));
    let keys = attempt.write_pages(&page(1)).unwrap();
    attempt.seal(end(), b"").unwrap();
    assert!(matches!(store.read_pages(&keys, &mut [0; 8192]).unwrap_err(), StoreError::WrongLength { .. }));
}

#[test]
fn a_directory_with_other_files_does_not_become_a_store() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(story::open(dir.path()).unwrap_err(), StoreError::NotAStore { .. }));
    assert!(matches!(story::open(&dir.path().join("missing")).unwrap_err(), StoreError::NotAStore { .. }));
    std::fs::write(dir.path().join("thesis.tex"), "x").unwrap();
    let error = story::create_or_open(dir.path()).unwrap_err();
    assert!(error.to_string().contains("thesis.tex"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn files_are_for_their_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    std::fs::create_dir(&root).unwrap();
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o777)).unwrap();
    checkpoint(&story::create_or_open(&root).unwrap(), "a", &[1]).unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&root), 0o700);
    for entry in std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            assert_eq!(mode(&entry), 0o700, "{entry:?}");
            std::fs::read_dir(&entry).unwrap().for_each(|file| assert_eq!(mode(&file.unwrap().path()), 0o600));
        } else {
            assert_eq!(mode(&entry), 0o600, "{entry:?}");
        }
    }
}

#[test]
fn links_in_the_place_of_files_and_directories_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    checkpoint(&story::create_or_open(dir.path()).unwrap(), "a", &[1]).unwrap();
    let manifest = dir.path().join("manifests/0000000001.manifest");
    std::fs::rename(&manifest, dir.path().join("moved")).unwrap();
    symlink(dir.path().join("moved"), &manifest).unwrap();
    assert!(matches!(story::open(dir.path()).unwrap().manifest(1).unwrap_err(), StoreError::Io { .. }));
    std::fs::rename(dir.path().join("packs"), dir.path().join("elsewhere")).unwrap();
    symlink(dir.path().join("elsewhere"), dir.path().join("packs")).unwrap();
    assert!(matches!(story::open(dir.path()).unwrap_err(), StoreError::NotAStore { .. }));
}

#[test]
fn a_store_of_another_user_is_refused_unless_its_owner_is_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let row = checkpoint(&story::create_or_open(&root).unwrap(), "a", &[1]).unwrap();
    if std::os::unix::fs::chown(&root, Some(12_345), None).is_err() {
        eprintln!("SKIPPED: only root can give a directory away");
        return;
    }
    let error = story::open(&root).unwrap_err();
    assert!(matches!(error, StoreError::ForeignOwner { owner: 12_345, .. }), "{error}");
    let trusting = ckpt_store::StoreOptions { trust_owner: true, ..story::options() };
    let store = Store::open_with(&root, &trusting).unwrap();
    assert!(read_back(&store, row.id, 1).unwrap() == page(1));
}

#[test]
fn an_attempt_and_a_store_can_go_to_other_threads() {
    fn is_send<T: Send>() {}
    fn is_sync<T: Sync>() {}
    is_send::<Store>();
    is_sync::<Store>();
    is_send::<ckpt_store::Attempt>();
}
