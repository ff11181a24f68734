//! Several processes in one store: they write at once, and they die at every fault point.
//!
//! The processes are this test binary again, told by the environment what to do. A killed process loses nothing that
//! it wrote (that is the crash test's subject); here locks, liveness and the clean-up behind the dead are real.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{
    collections::HashSet,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use ckpt_store::{AttemptState, FAULT_POINTS, Store, StoreError, fault};
use rustix::process::{Signal, getpid, kill_process};

mod story;
use story::{checkpoint, end, pages, read_back, start};

const DIR: &str = "CKPT_TEST_DIR";
const ROLE: &str = "CKPT_TEST_ROLE";
const KILL_AT: &str = "CKPT_TEST_KILL_AT";
const KILL_COUNT: &str = "CKPT_TEST_KILL_COUNT";

fn process(dir: &Path, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--ignored",
        "--exact",
        &story::test(module_path!(), "a_process_of_its_own"),
        "--nocapture",
        "--quiet",
    ]);
    command.env(DIR, dir).env(ROLE, role).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn killed_at(dir: &Path, point: &str, count: usize) -> ExitStatus {
    process(dir, "killed").env(KILL_AT, point).env(KILL_COUNT, count.to_string()).status().unwrap()
}

#[test]
#[ignore = "what the other tests run as a process of its own"]
fn a_process_of_its_own() {
    let dir = std::env::var_os(DIR).expect("started by one of the other tests");
    let dir = Path::new(&dir);
    match std::env::var(ROLE).unwrap().as_str() {
        "writer" => write_many(dir),
        "killed" => write_until_killed(dir),
        _ => hold_an_attempt(dir),
    }
}

fn write_many(dir: &Path) {
    let store = story::create_or_open(dir).unwrap();
    for round in 0..10 {
        checkpoint(&store, "shared", &numbers(round)).unwrap();
    }
}

fn numbers(round: u64) -> Vec<u64> {
    (round * 3 + 1..round * 3 + 12).collect()
}

fn hold_an_attempt(dir: &Path) {
    let mut attempt = story::open(dir).unwrap().begin(start("held")).unwrap();
    attempt.write_pages(&pages(&[41, 43])).unwrap();
    println!("begun");
    std::thread::sleep(std::time::Duration::from_secs(600)); // the test kills this process
}

static PASSED: AtomicUsize = AtomicUsize::new(0);

fn kill_at_the_point(point: &'static str) {
    let count: usize = std::env::var(KILL_COUNT).unwrap().parse().unwrap();
    if std::env::var(KILL_AT).unwrap() == point && PASSED.fetch_add(1, SeqCst) + 1 == count {
        kill_process(getpid(), Signal::KILL).unwrap();
    }
}

/// The pages of the checkpoints that are taken by a process that is going to be killed.
const KILLED: [&[u64]; 4] = [&[1, 3, 4, 21], &[1, 3, 5, 25], &[3, 27, 29, 31], &[29, 31, 33, 35]];

fn write_until_killed(dir: &Path) {
    fault::set_hook(kill_at_the_point);
    let store = story::create_or_open(dir).unwrap();
    checkpoint(&store, "killed", KILLED[0]).unwrap();
    let mut failing = store.begin(start("killed")).unwrap();
    failing.write_pages(&pages(&[23])).unwrap();
    failing.fail("for the test", 0.0).unwrap();
    checkpoint(&store, "killed", KILLED[1]).unwrap();
    reclaim_until_killed(&store);
}

/// Passes every operation of pruning: with and without a running attempt, with something to copy, and with rows and
/// records to remove.
fn reclaim_until_killed(store: &Store) {
    let running = store.begin(start("killed")).unwrap();
    store.prune(1, None).unwrap();
    drop(running);
    store.prune(1, None).unwrap();
    checkpoint(store, "killed", KILLED[2]).unwrap();
    checkpoint(store, "killed", KILLED[3]).unwrap();
    store.prune(1, None).unwrap();
}

#[test]
fn processes_that_write_at_once_share_pages_and_never_a_number() {
    let dir = tempfile::tempdir().unwrap();
    let writers: Vec<Child> = (0..3).map(|_| process(dir.path(), "writer").spawn().unwrap()).collect();
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    let store = story::open(dir.path()).unwrap();
    let rows = store.attempts().unwrap();
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), (1..=30).collect::<Vec<_>>());
    assert!(rows.iter().all(|row| row.state == AttemptState::Sealed));
    let all: HashSet<Vec<u8>> = (0..10).map(|round| pages(&numbers(round))).collect();
    for row in &rows {
        assert!(all.contains(&read_back(&store, row.id, 11).unwrap()), "checkpoint {}", row.id);
    }
    // How often those that write at once store a page twice is a matter of time; whoever comes later finds all of them.
    assert!(process(dir.path(), "writer").status().unwrap().success());
    let later = store.attempts().unwrap().split_off(30);
    assert_eq!(later.len(), 10);
    assert!(later.iter().all(|row| row.written.duplicate_bytes == 11 * 4096), "{later:?}");
}

#[test]
fn an_attempt_is_writing_while_its_process_lives_and_failed_when_it_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let store = story::create_or_open(dir.path()).unwrap();
    let mut child = process(dir.path(), "hold").stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("begun")));
    assert_eq!(store.attempts().unwrap()[0].state, AttemptState::Writing);
    // A living attempt's pack is left alone by others that begin.
    let beside = checkpoint(&store, "other", &[1]).unwrap();
    assert_eq!((beside.id, packs(dir.path())), (2, 2));
    child.kill().unwrap();
    child.wait().unwrap();
    let row = &store.attempts().unwrap()[0];
    assert_eq!(
        (row.state, row.reason.as_str()),
        (AttemptState::Failed, "the agent ended before the checkpoint was sealed")
    );
    checkpoint(&store, "other", &[3]).unwrap();
    assert_eq!(packs(dir.path()), 2, "the dead attempt's pack is gone");
}

fn packs(dir: &Path) -> usize {
    std::fs::read_dir(dir.join("packs")).unwrap().count()
}

#[test]
fn a_process_killed_at_any_fault_point_leaves_a_store_that_goes_on() {
    let mut reached = HashSet::new();
    for point in FAULT_POINTS {
        for count in 1..=3 {
            let fresh = tempfile::tempdir().unwrap();
            if killed_at(&fresh.path().join("store"), point, count).signal().is_some() {
                reached.insert(*point);
                check_goes_on(&fresh.path().join("store"), 0, point);
            }
            let used = tempfile::tempdir().unwrap();
            checkpoint(&story::create_or_open(used.path()).unwrap(), "first", &[1, 2]).unwrap();
            // Leaves a pack of a dead attempt behind, to be removed.
            killed_at(used.path(), "store.pack.write", 1);
            if killed_at(used.path(), point, count).signal().is_some() {
                reached.insert(*point);
                check_goes_on(used.path(), 1, point);
            }
        }
    }
    let missed: Vec<_> = FAULT_POINTS.iter().filter(|point| !reached.contains(*point)).collect();
    assert!(missed.is_empty(), "no process passed {missed:?}");
}

fn check_goes_on(dir: &Path, sealed_before: u64, point: &str) {
    let store = story::create_or_open(dir).unwrap();
    if sealed_before == 1 {
        assert!(read_back(&store, 1, 2).unwrap() == pages(&[1, 2]), "{point}");
    }
    for row in store.attempts().unwrap() {
        assert_ne!(row.state, AttemptState::Writing, "{point}");
        let count = if row.job == "first" { 2 } else { 4 };
        match read_back(&store, row.id, count) {
            Ok(found) => {
                assert_eq!(row.state, AttemptState::Sealed, "{point}");
                assert!(KILLED.iter().any(|numbers| found == pages(numbers)) || count == 2, "{point}");
            }
            Err(StoreError::NoSuchCheckpoint { .. }) => assert_eq!(row.state, AttemptState::Failed, "{point}"),
            Err(error) => panic!("{point}: {error}"),
        }
    }
    let row = checkpoint(&store, "after", &[1, 21, 31]).unwrap();
    // Whatever was left half done is done by the next one who prunes.
    let kept = store.newest_sealed(Some("killed")).unwrap();
    store.prune(1, None).unwrap();
    for id in kept.into_iter().chain([row.id]) {
        store.verifier().checkpoint(id, &mut |_| ()).unwrap_or_else(|error| panic!("{point}: {error}"));
    }
    let leftover = |dir: &str| {
        std::fs::read_dir(store.dir().join(dir)).unwrap().any(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            ["new", "condemned", "condemning", "failing"].iter().any(|end| name.ends_with(end))
        })
    };
    assert!(!leftover("manifests") && !leftover("attempts"), "{point}");
    assert!(read_back(&story::open(dir).unwrap(), row.id, 3).unwrap() == pages(&[1, 21, 31]), "{point}");
}

#[test]
fn threads_share_one_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = story::create_or_open(dir.path()).unwrap();
    std::thread::scope(|threads| {
        for job in ["a", "b", "c", "d"] {
            let store = &store;
            threads.spawn(move || {
                for round in 0..5 {
                    let row = checkpoint(store, job, &numbers(round)).unwrap();
                    assert!(read_back(store, row.id, 11).unwrap() == pages(&numbers(round)));
                }
            });
        }
    });
    assert_eq!(store.newest_sealed(None).unwrap(), Some(20));
}

#[test]
fn two_attempts_of_one_store_at_once_do_not_see_each_others_pages() {
    let dir = tempfile::tempdir().unwrap();
    let store = story::create_or_open(dir.path()).unwrap();
    let (mut kept, mut given_up) = (store.begin(start("a")).unwrap(), store.begin(start("b")).unwrap());
    given_up.write_pages(&pages(&[1, 3])).unwrap();
    let keys = kept.write_pages(&pages(&[1, 3])).unwrap();
    given_up.fail("for the test", 0.0).unwrap();
    let row = kept.seal(end(), b"").unwrap();
    assert_eq!(row.written.new_bytes, 8192);
    let mut read = vec![0; 8192];
    story::open(dir.path()).unwrap().read_pages(&keys, &mut read).unwrap();
    assert!(read == pages(&[1, 3]));
}
