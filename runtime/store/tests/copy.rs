//! Checkpoints travel to other stores, and only what is missing there.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::sync::Arc;

use ckpt_store::{AttemptState, Digest, Store, StoreError, StoreOptions, backend::Memory};

mod story;
use story::{checkpoint, pages, read_back};

fn store() -> (Memory, Store) {
    let memory = Memory::default();
    let store = Store::create_or_open_on(Arc::new(memory.clone()), &story::options()).unwrap();
    (memory, store)
}

#[test]
fn a_copy_reads_back_keeps_its_row_and_costs_what_is_new() {
    let (_, from) = store();
    let (_, to) = store();
    let first = checkpoint(&from, "a", &[1, 3, 0, 3, 2]).unwrap();
    let second = checkpoint(&from, "a", &[1, 3, 7, 2]).unwrap();
    checkpoint(&to, "c", &[9]).unwrap();
    let mut done = 0;
    let copied = from.copy_checkpoint(first.id, &to, &mut |pages| done += pages).unwrap();
    assert_eq!((copied.row.id, copied.was_there, done), (2, false, 4));
    assert_eq!(copied.row.written.new_bytes, 3 * 4096, "each page once");
    let same = |row: &ckpt_store::AttemptRow| {
        (row.job.clone(), row.name.clone(), row.sealed_unix_s, row.memory_bytes, row.stop_ms.to_bits(), row.processes)
    };
    assert_eq!(same(&copied.row), same(&first));
    let copied = from.copy_checkpoint(second.id, &to, &mut |_| ()).unwrap();
    assert_eq!(copied.row.written.new_bytes, 4096, "the others are there");
    assert!(read_back(&to, 2, 5).unwrap() == pages(&[1, 3, 0, 3, 2]));
    assert!(read_back(&to, 3, 4).unwrap() == pages(&[1, 3, 7, 2]));
    assert_eq!(to.manifest(3).unwrap().state, from.manifest(second.id).unwrap().state);
}

#[test]
fn what_is_there_already_is_not_copied_again() {
    let (_, from) = store();
    let (memory, to) = store();
    let row = checkpoint(&from, "a", &[1, 3]).unwrap();
    from.copy_checkpoint(row.id, &to, &mut |_| ()).unwrap();
    let before = memory.files();
    let again = from.copy_checkpoint(row.id, &to, &mut |_| ()).unwrap();
    assert!(again.was_there && again.row.id == 1);
    assert!(memory.files() == before);
}

#[test]
fn damage_does_not_travel() {
    let (memory, from) = store();
    let row = checkpoint(&from, "a", &[1, 3]).unwrap();
    let mut files = memory.files();
    files.get_mut("packs/0000000001-0000.pack").unwrap()[4096 + 9] ^= 1;
    let damaged = Store::open_on(Arc::new(Memory::of_files(&files)), &story::options()).unwrap();
    let (_, to) = store();
    let error = damaged.copy_checkpoint(row.id, &to, &mut |_| ()).unwrap_err();
    assert!(
        matches!(error, StoreError::Corrupt { offset: 4096, .. }) || story::is_encrypted() && error.is_corrupt(),
        "{error}"
    );
    assert!(to.attempts().unwrap().iter().all(|row| row.state == AttemptState::Failed));
    let missing = from.copy_checkpoint(5, &to, &mut |_| ()).unwrap_err();
    assert!(matches!(missing, StoreError::NoSuchCheckpoint { id: 5, newest: Some(1), .. }), "{missing}");
}

#[test]
fn stores_of_different_digests_do_not_mix() {
    let (_, from) = store();
    let row = checkpoint(&from, "a", &[1]).unwrap();
    let options = StoreOptions { digest: Digest::Blake3, ..story::options() };
    let to = Store::create_or_open_on(Arc::new(Memory::default()), &options).unwrap();
    let error = from.copy_checkpoint(row.id, &to, &mut |_| ()).unwrap_err();
    assert!(matches!(error, StoreError::OtherDigest { found: Digest::Blake3, needed: Digest::Sha1, .. }), "{error}");
    assert_eq!(to.attempts().unwrap().len(), 0);
}
