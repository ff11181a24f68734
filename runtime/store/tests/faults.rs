//! A refusal of the system at any operation is a clear error, and the earlier checkpoint stays as it was.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::sync::Arc;

use ckpt_store::{
    AttemptState, Store, StoreError, StoreOptions,
    backend::{Faults, Faulty, Memory, Operation},
};

mod story;
use story::{checkpoint, end, pages, read_back, start};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const EDQUOT: i32 = 122;
const EROFS: i32 = 30;

/// Fails the second checkpoint at its `at`-th operation; false when it has fewer.
fn second_checkpoint_fails_at(at: usize, goes_on: bool, errno: i32) -> bool {
    let memory = Memory::default();
    let plain = Store::create_or_open_on(Arc::new(memory.clone()), &story::options()).unwrap();
    let first = checkpoint(&plain, "a", &[1, 2, 3]).unwrap();
    let faults = Faults::default();
    let faulty = Faulty::new(memory.clone(), faults.clone());
    let store = Store::open_on(Arc::new(faulty), &story::options()).unwrap();
    faults.fail_at(at, goes_on, errno);
    let numbers = [1, 4, 5, 6];
    let second = checkpoint(&store, "a", &numbers);
    let reached = faults.done() > at;
    if reached {
        check_error(&second, errno, at);
    }
    faults.clear();
    let place = format!("operation {at}, on and on: {goes_on}");
    for store in [&store, &Store::open_on(Arc::new(memory.clone()), &story::options()).unwrap()] {
        assert!(read_back(store, first.id, 3).unwrap() == pages(&[1, 2, 3]), "{place}");
        let rows = store.attempts().unwrap();
        assert!(rows.iter().all(|row| row.state != AttemptState::Writing), "{place}: {rows:?}");
        for row in rows.iter().skip(1).filter(|row| row.state == AttemptState::Sealed && row.job == "a") {
            assert!(read_back(store, row.id, 4).unwrap() == pages(&numbers), "{place}");
        }
        let third = checkpoint(store, "b", &[1, 4, 9]).unwrap();
        assert!(read_back(store, third.id, 3).unwrap() == pages(&[1, 4, 9]), "{place}");
    }
    no_space_is_lost(&memory, &place);
    reached
}

fn check_error(result: &Result<ckpt_store::AttemptRow, StoreError>, errno: i32, at: usize) {
    match result {
        Err(StoreError::Io { source, .. }) => assert_eq!(source.raw_os_error(), Some(errno), "operation {at}"),
        other => panic!("operation {at}: {other:?}"),
    }
}

/// Every pack belongs to a sealed checkpoint, and nothing half-written is left.
fn no_space_is_lost(memory: &Memory, place: &str) {
    let files = memory.files();
    for name in files.keys() {
        let half_written = name.ends_with(".new") || name.ends_with(".failing");
        let pack = name.strip_prefix("packs/");
        let orphan = pack.is_some_and(|pack| !files.contains_key(&format!("manifests/{}.manifest", &pack[..10])));
        assert!(!half_written && !orphan, "{place}: {name} stayed");
    }
}

#[test]
fn a_full_or_failing_disk_at_every_operation_leaves_the_earlier_checkpoint() {
    for errno in [ENOSPC, EIO, EDQUOT, EROFS] {
        for goes_on in [false, true] {
            let failed = (0..).take_while(|at| second_checkpoint_fails_at(*at, goes_on, errno)).count();
            assert!(failed > 12, "only {failed} operations failed");
        }
    }
}

#[test]
fn an_attempt_after_a_failed_write_cannot_be_sealed_and_says_why() {
    let faults = Faults::default();
    let faulty = Faulty::new(Memory::default(), faults.clone());
    let store = Store::create_or_open_on(Arc::new(faulty), &story::options()).unwrap();
    let mut attempt = store.begin(start("a")).unwrap();
    faults.fail_at(0, true, ENOSPC);
    attempt.write_pages(&pages(&[1])).unwrap_err();
    faults.clear();
    assert!(matches!(attempt.write_pages(&pages(&[2])).unwrap_err(), StoreError::AttemptBroken { .. }));
    assert!(matches!(attempt.seal(end(), b"").unwrap_err(), StoreError::AttemptBroken { .. }));
    let row = &store.attempts().unwrap()[0];
    assert!(row.state == AttemptState::Failed && row.reason.contains("No space left"), "{row:?}");
}

#[test]
fn an_attempt_ends_before_the_file_system_is_full_and_counts_what_is_on_its_way_there() {
    let (memory, faults) = (Memory::default(), Faults::default());
    let faulty = Faulty::new(memory.clone(), faults.clone());
    let store = Store::create_or_open_on(Arc::new(faulty), &story::options()).unwrap();
    let first = checkpoint(&store, "a", &[1, 3]).unwrap();
    // Half of it is written as one call, and nothing of that need have reached the disk yet.
    faults.leave_room(4 << 20);
    faults.delay(std::time::Duration::from_millis(50));
    let noise = |first: u64| pages(&(first..first + 512).map(|n| 2 * n + 1).collect::<Vec<_>>());
    let mut attempt = store.begin(start("a")).unwrap();
    attempt.check_room().unwrap();
    attempt.write_pages(&noise(100)).unwrap();
    let error = attempt.write_pages(&noise(1000)).unwrap_err();
    assert!(matches!(error, StoreError::NoRoom { free_bytes, .. } if free_bytes == 4 << 20), "{error}");
    assert!(matches!(attempt.seal(end(), b"").unwrap_err(), StoreError::AttemptBroken { .. }));
    faults.clear();
    assert!(read_back(&store, first.id, 2).unwrap() == pages(&[1, 3]));
    no_space_is_lost(&memory, "after the attempt");
}

#[test]
fn an_attempt_that_was_taken_for_dead_is_not_published() {
    let (memory, faults) = (Memory::default(), Faults::default());
    let faulty = Faulty::new(memory.clone(), faults.clone());
    let store = Store::create_or_open_on(Arc::new(faulty), &story::options()).unwrap();
    faults.fail_every(Operation::CheckHold, EIO);
    let error = checkpoint(&store, "a", &[1, 3]).unwrap_err();
    assert!(error.to_string().starts_with("cannot keep the lock of"), "{error}");
    assert_eq!(store.newest_sealed(None).unwrap(), None);
    no_space_is_lost(&memory, "after the attempt");
    faults.clear();
    checkpoint(&store, "a", &[1, 3]).unwrap();
}

/// An attempt of three packs, whose bytes become durable behind the writer's back; false when no operation failed.
fn attempt_of_three_packs_fails_at(at: usize, goes_on: bool, errno: i32) -> bool {
    let (memory, faults) = (Memory::default(), Faults::default());
    let faulty = Faulty::new(memory.clone(), faults.clone());
    let options = StoreOptions { pack_bytes: 1, ..story::options() };
    let store = Store::create_or_open_on(Arc::new(faulty), &options).unwrap();
    let mut attempt = store.begin(start("a")).unwrap();
    faults.fail_at(at, goes_on, errno);
    let wrote = (1..=3).try_for_each(|number| attempt.write_pages(&pages(&[number])).map(drop));
    let sealed = attempt.seal(end(), b"");
    let reached = faults.done() > at;
    faults.clear();
    let state = Store::open_on(Arc::new(memory.clone()), &options).unwrap().attempts().unwrap()[0].state;
    if !reached {
        wrote.unwrap();
        assert_eq!((sealed.unwrap().id, state), (1, AttemptState::Sealed));
        return false;
    }
    match wrote {
        Err(error) => check_error(&Err(error), errno, at),
        Ok(()) => check_error(&sealed, errno, at),
    }
    let made_visible = memory.files().contains_key("manifests/0000000001.manifest");
    assert_eq!(state == AttemptState::Sealed, made_visible, "operation {at}");
    true
}

#[test]
fn a_write_or_an_fsync_that_fails_behind_the_writers_back_fails_the_attempt() {
    for goes_on in [false, true] {
        let failed = (0..).take_while(|at| attempt_of_three_packs_fails_at(*at, goes_on, EIO)).count();
        assert!(failed >= 3 * 3 + 4, "only {failed} operations failed");
    }
}
