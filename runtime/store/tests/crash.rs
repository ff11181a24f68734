//! A power cut at any moment leaves the checkpoints that were sealed, whole, and a store that goes on.
//!
//! A small history (checkpoints of two jobs, a failed attempt, two attempts at once; in the second one also pruning and
//! flattening beside a running attempt) is run in memory, which keeps a journal of every change. For every prefix of the
//! journal, and for every way in which what was not synced may survive or not, the directory is opened again. Each
//! checkpoint whose seal had returned, and whose pruning had not begun, must be there; each that is there must read back
//! as it was; and a new one must be possible.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{collections::BTreeMap, sync::Arc};

use ckpt_store::{
    AttemptState, Completed, PageList, Store, StoreError,
    backend::{Memory, Step, Survives},
};

mod story;
use story::{checkpoint, encode, end, pages, read_back, start};

fn open(memory: &Memory) -> Store {
    Store::create_or_open_on(Arc::new(memory.clone()), &story::options()).unwrap()
}

/// A checkpoint that must be there after some steps of the journal and, when it was pruned, not after others.
struct Expected {
    numbers: Vec<u64>,
    durable_after: usize,
    /// When pruning began, and when it was done.
    pruned: Option<(usize, usize)>,
}

impl Expected {
    fn new(numbers: &[u64], durable_after: usize) -> Self {
        Self { numbers: numbers.to_vec(), durable_after, pruned: None }
    }

    fn may_be_there(&self, steps: usize) -> bool {
        self.pruned.is_none_or(|(_, done)| steps < done)
    }

    fn must_be_there(&self, steps: usize) -> bool {
        self.durable_after <= steps && self.pruned.is_none_or(|(begun, _)| steps <= begun)
    }
}

type Sealed = BTreeMap<u64, Expected>;

fn history(memory: &Memory) -> Sealed {
    let mut sealed = Sealed::new();
    let mut seal = |id, numbers: &[u64]| sealed.insert(id, Expected::new(numbers, memory.journal().len()));
    let (a, b) = (open(memory), open(memory));
    for (store, job, numbers) in [(&a, "a", &[1, 2, 0, 3][..]), (&b, "b", &[2, 3, 4, 5, 7])] {
        let row = checkpoint(store, job, numbers).unwrap();
        seal(row.id, numbers);
    }
    let mut failing = a.begin(start("a")).unwrap();
    failing.write_pages(&pages(&[11, 12])).unwrap();
    let mut slow = b.begin(start("b")).unwrap();
    slow.write_pages(&pages(&[13])).unwrap();
    let numbers = [1, 2, 6, 13];
    let row = checkpoint(&a, "a", &numbers).unwrap();
    seal(row.id, &numbers);
    failing.fail("for the test", 0.0).unwrap();
    // Begun before the third checkpoint was sealed, sealed after it: refers to pages of it.
    let numbers = [13, 6, 15];
    let keys = slow.write_pages(&pages(&numbers)).unwrap();
    let mut list = PageList::new();
    list.set_run(7, &keys);
    let root = slow.write_page_list(&list).unwrap();
    let row = slow.seal(end(), &encode(&root)).unwrap();
    seal(row.id, &numbers);
    sealed
}

/// Prunes all but the newest checkpoint of each job.
fn prune(memory: &Memory, store: &Store, sealed: &mut Sealed) -> ckpt_store::Reclaimed {
    let begun = memory.journal().len();
    let reclaimed = store.prune(1, None).unwrap();
    for row in &reclaimed.checkpoints {
        sealed.get_mut(&row.id).unwrap().pruned = Some((begun, memory.journal().len()));
    }
    reclaimed
}

fn history_with_reclaiming(memory: &Memory) -> Sealed {
    let mut sealed = Sealed::new();
    let (a, b) = (open(memory), open(memory));
    let take = |sealed: &mut Sealed, job, numbers: &[u64]| {
        let row = checkpoint(&a, job, numbers).unwrap();
        sealed.insert(row.id, Expected::new(numbers, memory.journal().len()));
    };
    take(&mut sealed, "a", &[1, 3, 5, 7, 9, 11]);
    take(&mut sealed, "a", &[3, 4, 13]);
    // Shares a page with the checkpoint that is about to be pruned.
    let mut slow = b.begin(start("b")).unwrap();
    let numbers = [1, 3, 21];
    let mut list = PageList::new();
    list.set_run(7, &slow.write_pages(&pages(&numbers)).unwrap());
    let reclaimed = prune(memory, &a, &mut sealed);
    assert!(reclaimed.waiting_bytes > 0 && reclaimed.copied_bytes > 0, "{reclaimed:?}");
    let root = slow.write_page_list(&list).unwrap();
    let row = slow.seal(end(), &encode(&root)).unwrap();
    sealed.insert(row.id, Expected::new(&numbers, memory.journal().len()));
    take(&mut sealed, "a", &[4, 13, 15, 1]);
    let reclaimed = prune(memory, &b, &mut sealed);
    assert!(reclaimed.removed_bytes > 0, "{reclaimed:?}");
    b.flatten(row.id).unwrap();
    take(&mut sealed, "b", &[23, 25]);
    assert!(prune(memory, &a, &mut sealed).removed_bytes > 0);
    sealed
}

/// One that is sealed with two of four pages and completed, while another attempt writes and checkpoints are pruned.
fn history_with_completion(memory: &Memory) -> (usize, usize) {
    let (a, b) = (open(memory), open(memory));
    checkpoint(&a, "a", &[1, 3, 5]).unwrap();
    let mut completion = a.begin_completion("a").unwrap();
    let row = checkpoint(&a, "a", &[1, 9]).unwrap();
    let sealed_after = memory.journal().len();
    assert!(b.is_being_completed("a").unwrap() && !b.is_being_completed("b").unwrap());
    let keys = completion.write_pages(&pages(&[1, 9, 3, 15])).unwrap();
    // The pages of the first checkpoint, which the completion shares, lose what reached them.
    b.prune(1, None).unwrap();
    let mut list = PageList::new();
    list.set_run(7, &keys);
    let root = completion.write_page_list(&list).unwrap();
    let completed = Completed { id: row.id, memory_bytes: 16384, state: encode(&root), roots: vec![root] };
    let rows = completion.complete(&[completed]).unwrap();
    assert!(rows[0].behind_bytes > 4096 && rows[0].new_bytes > 4096, "{rows:?}");
    assert!(!b.is_being_completed("a").unwrap());
    (sealed_after, memory.journal().len())
}

#[test]
fn every_prefix_of_a_completion_reopens_to_what_was_sealed_or_to_all_of_it() {
    let memory = Memory::default();
    let (sealed_after, completed_after) = history_with_completion(&memory);
    let journal = memory.journal();
    let (mut partly, mut wholly) = (0, 0);
    for steps in sealed_after..=journal.len() {
        for survives in every_survival() {
            let place = format!("after step {steps} ({:?}), {survives:?}", journal[..steps].last());
            let crashed = Memory::after_crash(&journal[..steps], survives);
            let numbers = check_completion(&crashed, &place);
            assert!(steps < completed_after || numbers == 4, "{place}");
            *(if numbers == 2 { &mut partly } else { &mut wholly }) += 1;
        }
    }
    assert!(partly > 50 && wholly > 5, "{partly} {wholly}");
}

/// Gives how many pages the newest checkpoint of job a has; all must still be there when space has been given back.
fn check_completion(memory: &Memory, place: &str) -> usize {
    let store = open(memory);
    let newest = store.newest_sealed(Some("a")).unwrap().unwrap();
    let all = [1, 9, 3, 15];
    let list = store.page_list(&story::decode(&store.manifest(newest).unwrap().state)).unwrap();
    let numbers = list.page_count() as usize;
    let read = |store: &Store| {
        let found = read_back(store, newest, numbers).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert!(found == pages(&all[..numbers]), "{place}");
    };
    read(&store);
    // The next attempt cleans up, and the next prune too.
    checkpoint(&store, "c", &[1, 21]).unwrap_or_else(|error| panic!("{place}: {error}"));
    store.prune(1, None).unwrap_or_else(|error| panic!("{place}: {error}"));
    read(&open(memory));
    numbers
}

fn every_survival() -> impl Iterator<Item = Survives> {
    let names = [(false, false), (false, true), (true, false)];
    let bytes = [(false, false), (true, false), (true, true)];
    names.into_iter().flat_map(move |(names, last_name)| {
        bytes.map(|(bytes, last_append_torn)| Survives { names, last_name, bytes, last_append_torn })
    })
}

#[test]
fn every_prefix_of_the_writes_reopens_to_the_sealed_checkpoints() {
    check_every_prefix(history, 60, 4);
}

#[test]
fn every_prefix_of_reclaiming_reopens_to_what_was_kept() {
    check_every_prefix(history_with_reclaiming, 120, 5);
}

fn check_every_prefix(history: fn(&Memory) -> Sealed, least_steps: usize, checkpoints: usize) {
    let memory = Memory::default();
    let sealed = history(&memory);
    let journal = memory.journal();
    assert!(journal.len() > least_steps && sealed.len() == checkpoints, "{} steps", journal.len());
    for steps in 0..=journal.len() {
        for survives in every_survival() {
            let place = format!("after step {steps} ({:?}), {survives:?}", journal[..steps].last());
            check_after_crash(&Memory::after_crash(&journal[..steps], survives), &sealed, steps, &place);
        }
    }
}

fn check_after_crash(memory: &Memory, sealed: &Sealed, steps: usize, place: &str) {
    let opened = Store::create_or_open_on(Arc::new(memory.clone()), &story::options());
    let store = opened.unwrap_or_else(|error| panic!("{place}: {error}"));
    check_sealed(&store, sealed, steps, None, place);
    let rows = store.attempts().unwrap_or_else(|error| panic!("{place}: {error}"));
    assert!(rows.iter().all(|row| row.state != AttemptState::Writing), "{place}: {rows:?}");
    let before = rows.last().map_or(0, |row| row.id);
    // The next attempt cleans up behind the dead ones; all must still be there afterwards.
    let numbers = [1, 3, 13, 21];
    let row = checkpoint(&store, "c", &numbers).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert!(row.id > before, "{place}");
    let again = open(memory);
    assert!(read_back(&again, row.id, numbers.len()).unwrap() == pages(&numbers), "{place}");
    check_sealed(&again, sealed, steps, Some(row.id), place);
}

/// `new` is the test's own checkpoint; it may have the number of an attempt that left no trace.
fn check_sealed(store: &Store, sealed: &Sealed, steps: usize, new: Option<u64>, place: &str) {
    for (id, expected) in sealed.iter().filter(|(id, _)| Some(**id) != new) {
        match read_back(store, *id, expected.numbers.len()) {
            Ok(found) => {
                assert!(found == pages(&expected.numbers), "{place}: checkpoint {id} has other pages");
                assert!(expected.may_be_there(steps), "{place}: checkpoint {id} is back");
            }
            Err(StoreError::NoSuchCheckpoint { .. }) if !expected.must_be_there(steps) => {}
            Err(error) => panic!("{place}: checkpoint {id}: {error}"),
        }
    }
    assert!(new.is_none_or(|new| sealed.get(&new).is_none_or(|other| !other.must_be_there(steps))), "{place}");
}

#[test]
fn a_checkpoint_makes_the_names_it_depends_on_durable_before_its_own() {
    let memory = Memory::default();
    checkpoint(&open(&memory), "a", &[1, 3]).unwrap();
    let first_sealed_after = memory.journal().len();
    // Another process, which finds the pages of the first.
    let row = checkpoint(&open(&memory), "b", &[1, 3, 5]).unwrap();
    assert_eq!(row.written.duplicate_bytes, 8192);
    let sealed = Sealed::from([(row.id, Expected::new(&[1, 3, 5], usize::MAX))]);
    // As if the first had died right before it made its name durable.
    let mut journal = memory.journal();
    let is_names_sync = |step: &Step| matches!(step, Step::SyncDir { dir } if dir == "manifests");
    let lost = journal[..first_sealed_after].iter().rposition(is_names_sync).unwrap();
    journal.remove(lost);
    for steps in lost..=journal.len() {
        for survives in every_survival() {
            let place = format!("after step {steps} ({:?}), {survives:?}", journal[..steps].last());
            check_after_crash(&Memory::after_crash(&journal[..steps], survives), &sealed, steps, &place);
        }
    }
}
