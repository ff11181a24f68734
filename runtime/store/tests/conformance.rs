//! Every back end keeps the promises that the store relies on, and the store's stories come true on every one.
//!
//! The promises are written down in backend/mod.rs; each check here tries one. A check gets the same place twice, as two
//! processes see it.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use ckpt_store::backend::{Faults, Faulty, Local, Memory};

mod checks;
mod stories;
mod story;

use checks::Place;

#[test]
fn a_local_directory_keeps_every_promise() {
    let dir = tempfile::tempdir().unwrap();
    checks::run_all(&|check| {
        let path = dir.path().join(check);
        let first = Local::create(&path, false).unwrap();
        Place::of(first, Local::open(&path, false).unwrap())
    });
}

#[test]
fn a_local_directory_follows_no_link() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("outside"), b"x").unwrap();
    std::os::unix::fs::symlink("outside", dir.path().join("link")).unwrap();
    let place = Place::of(Local::open(dir.path(), false).unwrap(), Local::open(dir.path(), false).unwrap());
    place.first.open("outside").unwrap();
    assert!(place.first.open("link").is_err());
    assert!(place.first.try_lock("link").is_err());
}

#[test]
fn memory_keeps_every_promise() {
    checks::run_all(&|_| {
        let memory = Memory::default();
        Place::of(memory.clone(), memory)
    });
}

#[test]
fn a_faulty_back_end_without_faults_keeps_every_promise() {
    checks::run_all(&|_| {
        let memory = Memory::default();
        Place::of(Faulty::new(memory.clone(), Faults::default()), Faulty::new(memory, Faults::default()))
    });
}

#[test]
fn every_story_comes_true_in_a_local_directory() {
    let dir = tempfile::tempdir().unwrap();
    stories::run_all(&|story| {
        let path = dir.path().join(story);
        Place::of(Local::create(&path, false).unwrap(), Local::open(&path, false).unwrap())
    });
}

#[test]
fn every_story_comes_true_in_memory_and_through_a_faulty_back_end_that_is_merely_slow() {
    stories::run_all(&|_| {
        let (memory, faults) = (Memory::default(), Faults::default());
        faults.delay(std::time::Duration::from_micros(200));
        Place::of(Faulty::new(memory.clone(), faults), memory)
    });
}

#[cfg(feature = "object-store")]
mod objects {
    use std::{sync::Arc, time::Duration};

    use ckpt_store::backend::object::Object;
    use object_store::memory::InMemory;

    use super::*;

    const LEASE: Option<Duration> = Some(Duration::from_secs(5));

    fn in_memory() -> Place {
        let store = Arc::new(InMemory::new());
        let object = || Object::on(store.clone(), "objects:", "some/prefix", LEASE).unwrap();
        Place::of(object(), object())
    }

    #[test]
    fn an_object_store_in_memory_keeps_every_promise() {
        checks::run_all(&|_| in_memory());
    }

    #[test]
    fn every_story_comes_true_in_an_object_store_in_memory() {
        stories::run_all(&|_| in_memory());
    }
}
