//! What a store does, told once for every back end.
#![allow(dead_code, reason = "every test file uses a part of it")]

use ckpt_store::{
    AttemptState, Store, StoreError,
    backend::{Backend, Memory},
};
use std::sync::Arc;

use super::{
    checks::Place,
    story::{checkpoint, end, pages, read_back, start},
};

type Story = (&'static str, fn(&Place));

macro_rules! stories {
    ($($name:ident),* $(,)?) => { const STORIES: &[Story] = &[$((stringify!($name), $name)),*]; };
}

stories! {
    what_is_written_is_read_by_another_process_and_after_reopening,
    two_writers_at_once_share_pages_and_never_a_number,
    a_dropped_attempt_has_failed_and_leaves_no_pack,
    a_failed_attempt_says_why_and_leaves_no_pack,
    a_whole_checkpoint_is_verified_and_a_damaged_one_is_told_with_its_place,
    an_attempt_beside_another_that_lives_leaves_its_pack_alone,
    a_copy_writes_what_is_missing_and_is_not_made_twice,
    what_is_pruned_is_given_back_or_refused_where_locks_are_leases,
}

/// Runs every story, each in a place of its own that bears its name.
pub fn run_all(place: &dyn Fn(&str) -> Place) {
    for (name, story) in STORIES {
        println!("story: {name}");
        story(&place(name));
    }
}

fn open(backend: &Arc<dyn Backend>) -> Store {
    Store::create_or_open_on(backend.clone(), &super::story::options()).unwrap()
}

fn reopened(backend: &Arc<dyn Backend>) -> Store {
    Store::open_on(backend.clone(), &super::story::options()).unwrap()
}

fn what_is_written_is_read_by_another_process_and_after_reopening(place: &Place) {
    assert!(matches!(
        Store::open_on(place.second.clone(), &super::story::options()).unwrap_err(),
        StoreError::NotAStore { .. }
    ));
    let (first, second) = (open(&place.first), open(&place.second));
    let row = checkpoint(&first, "a", &[1, 2, 0, 3]).unwrap();
    assert!(read_back(&second, row.id, 4).unwrap() == pages(&[1, 2, 0, 3]));
    let shared = checkpoint(&second, "a", &[1, 3, 5]).unwrap();
    assert_eq!((shared.id, shared.written.duplicate_bytes), (2, 2 * 4096));
    let reopened = reopened(&place.first);
    assert!(read_back(&reopened, 2, 3).unwrap() == pages(&[1, 3, 5]));
    assert_eq!(reopened.newest_sealed(Some("a")).unwrap(), Some(2));
}

fn two_writers_at_once_share_pages_and_never_a_number(place: &Place) {
    let stores = [open(&place.first), open(&place.second)];
    let numbers: Vec<u64> = (1..40).collect();
    std::thread::scope(|threads| {
        for store in &stores {
            let numbers = &numbers;
            threads.spawn(move || (0..3).for_each(|_| drop(checkpoint(store, "shared", numbers).unwrap())));
        }
    });
    let rows = stores[0].attempts().unwrap();
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), (1..=6).collect::<Vec<_>>());
    assert!(rows.iter().all(|row| row.state == AttemptState::Sealed));
    for row in &rows {
        assert!(read_back(&stores[1], row.id, 39).unwrap() == pages(&numbers));
    }
    let shared = |row: &&ckpt_store::AttemptRow| row.written.duplicate_bytes == 39 * 4096;
    assert!(rows.iter().filter(shared).count() >= 4, "each writer's own first checkpoint is shared by its next two");
}

fn a_dropped_attempt_has_failed_and_leaves_no_pack(place: &Place) {
    let (first, second) = (open(&place.first), open(&place.second));
    let mut attempt = first.begin(start("a")).unwrap();
    attempt.write_pages(&pages(&[1, 3])).unwrap();
    assert_eq!(second.attempts().unwrap()[0].state, AttemptState::Writing);
    drop(attempt);
    let row = &second.attempts().unwrap()[0];
    assert_eq!(
        (row.state, row.reason.as_str()),
        (AttemptState::Failed, "the agent ended before the checkpoint was sealed")
    );
    let next = checkpoint(&second, "a", &[1, 3]).unwrap();
    assert_eq!((next.id, place.second.list("packs").unwrap().len()), (2, 1));
}

fn a_failed_attempt_says_why_and_leaves_no_pack(place: &Place) {
    let (first, second) = (open(&place.first), open(&place.second));
    let mut attempt = first.begin(start("a")).unwrap();
    attempt.write_pages(&pages(&[1, 3])).unwrap();
    attempt.fail("for the test", 0.0).unwrap();
    let row = &second.attempts().unwrap()[0];
    assert_eq!((row.state, row.reason.as_str()), (AttemptState::Failed, "for the test"));
    assert!(place.second.list("packs").unwrap().is_empty());
    let names = place.second.list("attempts").unwrap();
    assert_eq!(names, ["0000000001.failed"]);
}

fn a_whole_checkpoint_is_verified_and_a_damaged_one_is_told_with_its_place(place: &Place) {
    let store = open(&place.first);
    let numbers: Vec<u64> = (1..200).collect();
    let row = checkpoint(&store, "a", &numbers).unwrap();
    store.verifier().checkpoint(row.id, &mut |_| {}).unwrap();
    replace_with_damage(&*place.first, "packs/0000000001-0000.pack");
    let error = reopened(&place.second).verifier().checkpoint(row.id, &mut |_| {}).unwrap_err();
    assert!(error.is_corrupt() && error.to_string().contains("packs/0000000001-0000.pack"), "{error}");
}

/// Writes the file again with a changed byte in its first page.
fn replace_with_damage(backend: &dyn Backend, name: &str) {
    let file = backend.open(name).unwrap();
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_exact_at(0, &mut bytes).unwrap();
    drop(file);
    bytes[5000] ^= 1;
    backend.remove(name).unwrap();
    let mut file = backend.create(name).unwrap();
    file.append(&bytes).unwrap();
    file.sync().unwrap();
}

fn an_attempt_beside_another_that_lives_leaves_its_pack_alone(place: &Place) {
    let (first, second) = (open(&place.first), open(&place.second));
    let mut slow = first.begin(start("slow")).unwrap();
    let keys = slow.write_pages(&pages(&[1, 3])).unwrap();
    let quick = checkpoint(&second, "quick", &[5]).unwrap();
    assert_eq!(quick.id, 2);
    let row = slow.seal(end(), b"").unwrap();
    assert_eq!(row.id, 1);
    let mut read = vec![0; 8192];
    reopened(&place.second).read_pages(&keys, &mut read).unwrap();
    assert!(read == pages(&[1, 3]));
}

fn a_copy_writes_what_is_missing_and_is_not_made_twice(place: &Place) {
    let from = Store::create_or_open_on(Arc::new(Memory::default()), &super::story::options()).unwrap();
    checkpoint(&from, "a", &[1, 2, 3]).unwrap();
    checkpoint(&from, "a", &[1, 2, 4]).unwrap();
    let to = open(&place.first);
    let copy = |id| from.copy_checkpoint(id, &to, &mut |_| {}).unwrap();
    let (first, second) = (copy(1), copy(2));
    assert_eq!((first.row.id, first.row.written.new_bytes), (1, 3 * 4096));
    assert_eq!((second.row.id, second.row.written.new_bytes), (2, 4096));
    assert!(copy(1).was_there);
    let other = reopened(&place.second);
    assert!(read_back(&other, 2, 3).unwrap() == pages(&[1, 2, 4]));
    // And back, into a store that has nothing.
    let back = Store::create_or_open_on(Arc::new(Memory::default()), &super::story::options()).unwrap();
    other.copy_checkpoint(2, &back, &mut |_| {}).unwrap();
    assert!(read_back(&back, 1, 3).unwrap() == pages(&[1, 2, 4]));
}

fn what_is_pruned_is_given_back_or_refused_where_locks_are_leases(place: &Place) {
    let (first, second) = (open(&place.first), open(&place.second));
    for numbers in [[1, 2], [1, 3], [1, 4]] {
        checkpoint(&first, "a", &numbers).unwrap();
    }
    let pruned = second.prune(1, None);
    let kept: Vec<u64> = first.attempts().unwrap().iter().map(|row| row.id).collect();
    if place.second.locks_are_leases() {
        assert!(matches!(pruned.unwrap_err(), StoreError::NotReclaimable { .. }));
        assert_eq!(kept, [1, 2, 3]);
    } else {
        assert_eq!(pruned.unwrap().checkpoints.len(), 2);
        assert_eq!(kept, [3]);
    }
    assert!(read_back(&first, 3, 2).unwrap() == pages(&[1, 4]));
    second.verifier().checkpoint(3, &mut |_| {}).unwrap();
}
