//! One small check for each promise of a back end.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::{
    collections::HashSet,
    io::{self, ErrorKind},
    sync::{Arc, Barrier},
};

use ckpt_store::backend::{Backend, ReadFile};

/// One place as two processes see it.
pub struct Place {
    pub first: Arc<dyn Backend>,
    pub second: Arc<dyn Backend>,
}

impl Place {
    pub fn of(first: impl Backend + 'static, second: impl Backend + 'static) -> Self {
        Self { first: Arc::new(first), second: Arc::new(second) }
    }

    /// Writes a whole file.
    fn write(&self, name: &str, bytes: &[u8]) {
        let mut file = self.first.create(name).unwrap();
        file.append(bytes).unwrap();
        file.sync().unwrap();
        self.first.sync_dir(name.rsplit_once('/').map_or("", |(dir, _)| dir)).unwrap();
    }

    fn names(&self, dir: &str) -> HashSet<String> {
        let names = self.second.list(dir).unwrap();
        let set: HashSet<String> = names.iter().cloned().collect();
        assert_eq!(set.len(), names.len(), "a name comes twice");
        set
    }
}

fn whole(file: &dyn ReadFile) -> Vec<u8> {
    let mut bytes = vec![0xee; file.length().unwrap() as usize];
    file.read_exact_at(0, &mut bytes).unwrap();
    bytes
}

fn kind<T>(result: io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

type Check = (&'static str, fn(&Place));

macro_rules! checks {
    ($($name:ident),* $(,)?) => { const CHECKS: &[Check] = &[$((stringify!($name), $name)),*]; };
}

checks! {
    create_is_exclusive,
    of_two_that_create_one_name_at_once_one_does,
    what_was_appended_is_read_after_sync,
    reading_beyond_the_end_is_an_unexpected_eof,
    an_empty_file_is_a_file,
    what_is_not_there_is_not_found,
    names_of_one_and_two_parts_are_apart,
    a_renamed_file_has_its_bytes_under_the_new_name_alone,
    a_rename_to_a_name_that_is_taken_replaces_it_or_is_refused,
    a_removed_name_is_gone_and_its_readers_read_on_or_are_told,
    the_stamp_changes_whenever_a_name_does,
    a_lock_excludes_others_until_it_is_dropped,
    a_hold_is_seen_until_its_file_is_dropped,
    a_hold_goes_along_with_a_rename,
    a_large_file_is_read_back_at_any_offset,
    many_files_are_all_listed,
}

/// Runs every check, each in a place of its own that bears its name.
pub fn run_all(place: &dyn Fn(&str) -> Place) {
    for (name, check) in CHECKS {
        println!("check: {name}");
        let place = place(name);
        for dir in ["packs", "attempts"] {
            place.first.create_dir(dir).unwrap();
            place.second.create_dir(dir).unwrap();
        }
        check(&place);
    }
}

fn create_is_exclusive(place: &Place) {
    place.write("packs/a", b"first");
    assert_eq!(kind(place.first.create("packs/a")), Some(ErrorKind::AlreadyExists));
    assert_eq!(kind(place.second.create("packs/a")), Some(ErrorKind::AlreadyExists));
    assert_eq!(whole(&*place.second.open("packs/a").unwrap()), b"first");
    let _unsynced = place.first.create("packs/b").unwrap();
    assert_eq!(kind(place.second.create("packs/b")), Some(ErrorKind::AlreadyExists));
}

fn of_two_that_create_one_name_at_once_one_does(place: &Place) {
    for round in 0..5 {
        let (name, both) = (format!("packs/{round}"), Barrier::new(2));
        let create = |backend: &Arc<dyn Backend>| {
            both.wait();
            backend.create(&name).is_ok()
        };
        let (first, second) = std::thread::scope(|threads| {
            let first = threads.spawn(|| create(&place.first));
            (create(&place.second), first.join().unwrap())
        });
        assert!(first != second, "{first} and {second}");
    }
}

fn what_was_appended_is_read_after_sync(place: &Place) {
    let mut file = place.first.create("packs/a").unwrap();
    for bytes in [&b"one"[..], b"", b"two and more"] {
        file.append(bytes).unwrap();
    }
    file.sync().unwrap();
    let read = place.second.open("packs/a").unwrap();
    assert_eq!(whole(&*read), b"onetwo and more");
    let mut middle = [0; 5];
    read.read_exact_at(2, &mut middle).unwrap();
    assert_eq!(&middle, b"etwo ");
}

fn reading_beyond_the_end_is_an_unexpected_eof(place: &Place) {
    place.write("packs/a", &[7; 100]);
    let file = place.second.open("packs/a").unwrap();
    for (offset, length) in [(0, 101), (99, 2), (100, 1), (101, 1), (u64::MAX / 4, 1)] {
        let read = file.read_exact_at(offset, &mut vec![0; length]);
        assert_eq!(kind(read), Some(ErrorKind::UnexpectedEof), "{length} bytes at {offset}");
    }
    file.read_exact_at(100, &mut []).unwrap();
}

fn an_empty_file_is_a_file(place: &Place) {
    place.write("packs/a", b"");
    let file = place.second.open("packs/a").unwrap();
    assert_eq!(file.length().unwrap(), 0);
    assert_eq!(kind(file.read_exact_at(0, &mut [0])), Some(ErrorKind::UnexpectedEof));
    assert!(place.names("packs").contains("a"));
}

fn what_is_not_there_is_not_found(place: &Place) {
    assert_eq!(kind(place.first.open("packs/a")), Some(ErrorKind::NotFound));
    assert_eq!(kind(place.first.rename("packs/a", "packs/b")), Some(ErrorKind::NotFound));
    assert_eq!(kind(place.first.is_held("attempts/a")), Some(ErrorKind::NotFound));
    assert!(matches!(kind(place.first.remove("packs/a")), None | Some(ErrorKind::NotFound)));
    assert!(place.names("packs").is_empty());
}

fn names_of_one_and_two_parts_are_apart(place: &Place) {
    place.write("a", b"root");
    place.write("packs/a", b"pack");
    assert_eq!(whole(&*place.second.open("a").unwrap()), b"root");
    assert_eq!(whole(&*place.second.open("packs/a").unwrap()), b"pack");
    assert_eq!(place.names("packs"), HashSet::from(["a".to_owned()]));
    let root = place.names("");
    assert!(root.contains("a") && !root.contains("packs/a"), "{root:?}");
}

fn a_renamed_file_has_its_bytes_under_the_new_name_alone(place: &Place) {
    place.write("packs/a.new", b"whole");
    place.first.rename("packs/a.new", "packs/a").unwrap();
    assert_eq!(place.names("packs"), HashSet::from(["a".to_owned()]));
    assert_eq!(whole(&*place.second.open("packs/a").unwrap()), b"whole");
    assert_eq!(kind(place.second.open("packs/a.new")), Some(ErrorKind::NotFound));
}

fn a_rename_to_a_name_that_is_taken_replaces_it_or_is_refused(place: &Place) {
    place.write("packs/a", b"old");
    place.write("packs/a.new", b"new");
    let expected = match place.first.rename("packs/a.new", "packs/a") {
        Ok(()) => &b"new"[..],
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
            b"old"
        }
    };
    assert_eq!(whole(&*place.second.open("packs/a").unwrap()), expected);
}

fn a_removed_name_is_gone_and_its_readers_read_on_or_are_told(place: &Place) {
    place.write("packs/a", &[9; 100_000]);
    let open = place.second.open("packs/a").unwrap();
    place.first.remove("packs/a").unwrap();
    assert!(place.names("packs").is_empty());
    assert_eq!(kind(place.second.open("packs/a")), Some(ErrorKind::NotFound));
    let mut end = [0; 10];
    match open.read_exact_at(99_990, &mut end) {
        Ok(()) => assert_eq!(end, [9; 10]),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
    }
    place.write("packs/a", b"again");
}

fn the_stamp_changes_whenever_a_name_does(place: &Place) {
    let mut seen = HashSet::new();
    let mut look = |done: &str| {
        if let Some(stamp) = place.second.stamp("packs").unwrap() {
            assert!(seen.insert(stamp), "the same stamp after {done}");
        }
    };
    look("nothing");
    place.write("packs/a.new", b"x");
    look("a creation");
    place.first.rename("packs/a.new", "packs/a").unwrap();
    look("a rename");
    place.write("packs/b", b"x");
    look("another creation");
    place.first.remove("packs/a").unwrap();
    look("a removal");
}

fn a_lock_excludes_others_until_it_is_dropped(place: &Place) {
    let lock = place.first.try_lock("lock").unwrap().expect("nobody has it");
    assert!(place.first.try_lock("lock").unwrap().is_none(), "the same process got it twice");
    assert!(place.second.try_lock("lock").unwrap().is_none(), "two processes got it");
    drop(lock);
    let lock = place.second.try_lock("lock").unwrap().expect("it was given back");
    assert!(place.first.try_lock("lock").unwrap().is_none());
    drop(lock);
    assert!(place.first.try_lock("lock").unwrap().is_some());
}

fn a_hold_is_seen_until_its_file_is_dropped(place: &Place) {
    let mut file = place.first.create("attempts/a").unwrap();
    file.append(b"row").unwrap();
    assert!(!place.second.is_held("attempts/a").unwrap(), "held by nobody yet");
    file.hold().unwrap();
    assert!(place.second.is_held("attempts/a").unwrap());
    assert!(place.first.is_held("attempts/a").unwrap());
    assert_eq!(whole(&*place.second.open("attempts/a").unwrap()), b"row");
    file.check_hold().unwrap();
    drop(file);
    assert!(!place.second.is_held("attempts/a").unwrap());
    assert!(!place.first.is_held("attempts/a").unwrap());
}

fn a_hold_goes_along_with_a_rename(place: &Place) {
    let mut file = place.first.create("attempts/a.new").unwrap();
    file.append(b"row").unwrap();
    file.hold().unwrap();
    place.first.rename("attempts/a.new", "attempts/a.writing").unwrap();
    assert!(place.second.is_held("attempts/a.writing").unwrap());
    file.check_hold().unwrap();
    drop(file);
    assert!(!place.second.is_held("attempts/a.writing").unwrap());
}

fn a_large_file_is_read_back_at_any_offset(place: &Place) {
    let bytes: Vec<u8> = (0..21 << 20).map(|at: u32| ((at / 3) ^ (at >> 13)) as u8).collect();
    let mut file = place.first.create("packs/a").unwrap();
    let (start, rest) = bytes.split_at(5000);
    file.append(start).unwrap();
    for piece in rest.chunks(5 << 20) {
        file.append(piece).unwrap();
    }
    file.sync().unwrap();
    let file = place.second.open("packs/a").unwrap();
    assert!(whole(&*file) == bytes);
    for offset in [1, 4999, (8 << 20) - 7, (16 << 20) - 1] {
        let mut piece = vec![0; 100_000];
        file.read_exact_at(offset as u64, &mut piece).unwrap();
        assert!(piece == bytes[offset..offset + 100_000], "at {offset}");
    }
}

fn many_files_are_all_listed(place: &Place) {
    let expected: HashSet<String> = (0..120).map(|number| format!("{number:010}.pack")).collect();
    for name in &expected {
        place.first.create(&format!("packs/{name}")).unwrap();
    }
    assert_eq!(place.names("packs"), expected);
}
