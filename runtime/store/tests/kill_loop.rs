//! Writers that write, prune and die, two hundred times over, in one directory.
//!
//! Two processes write checkpoints and prune as fast as they can. Both are killed in the middle, at a moment that their
//! own output chooses, and others take their place. What was sealed is there, whole, and the directory does not grow.
//! The processes are this test binary again, told by the environment what to do.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use ckpt_store::{AttemptRow, AttemptState, PageList, Store};

mod story;
use story::{Random, encode, end, pages, read_back, start};

const DIR: &str = "CKPT_TEST_DIR";
const JOB: &str = "CKPT_TEST_JOB";
const SEED: &str = "CKPT_TEST_SEED";
const ROUNDS: u64 = 200;
const KEPT: usize = 2;

#[test]
#[ignore = "what the other test runs as a process of its own"]
fn a_writer_of_its_own() {
    let (dir, job) = (std::env::var_os(DIR).unwrap(), std::env::var(JOB).unwrap());
    let mut random = Random(std::env::var(SEED).unwrap().parse().unwrap());
    let store = story::create_or_open(Path::new(&dir)).unwrap();
    for round in 0.. {
        // The name says what must read back.
        let numbers: Vec<u64> = (0..4 + random.below(40)).map(|_| random.below(60)).collect();
        let name = numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let mut attempt = store.begin(ckpt_store::AttemptStart { name, ..start(&job) }).unwrap();
        let mut list = PageList::new();
        list.set_run(7, &attempt.write_pages(&pages(&numbers)).unwrap());
        let root = attempt.write_page_list(&list).unwrap();
        println!("sealed {}", attempt.seal(end(), &encode(&root)).unwrap().id);
        if round % 3 == 2 {
            store.prune(KEPT, Some(&job)).unwrap();
        }
    }
}

fn writer(dir: &Path, job: &str, seed: u64) -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--ignored",
        "--exact",
        &story::test(module_path!(), "a_writer_of_its_own"),
        "--nocapture",
        "--quiet",
    ]);
    command.env(DIR, dir).env(JOB, job).env(SEED, seed.to_string());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output)
}

/// The number in a line that says that a checkpoint was sealed.
fn sealed(line: &str) -> Option<u64> {
    line.split_once("sealed ")?.1.trim().parse().ok()
}

/// Two writers until they are killed; the newest checkpoint that each says it has sealed.
fn round(dir: &Path, random: &mut Random) -> BTreeMap<&'static str, u64> {
    let mut writers = ["a", "b"].map(|job| (job, writer(dir, job, random.0 | 1)));
    let mut newest = BTreeMap::new();
    let (_, (_, first)) = &mut writers[0];
    for _ in 0..1 + random.below(9) {
        let mut line = String::new();
        assert!(first.read_line(&mut line).unwrap() > 0, "the writer ended by itself");
        newest.extend(sealed(&line).map(|id| ("a", id)));
    }
    for _ in 0..random.below(40_000) {
        std::hint::spin_loop(); // up to a fraction of a millisecond, to die elsewhere than right after a line
    }
    writers.iter_mut().for_each(|(_, (child, _))| child.kill().unwrap());
    for (job, (child, output)) in &mut writers {
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        newest.extend(rest.lines().filter_map(sealed).map(|id| (*job, id)));
        assert!(child.wait().unwrap().code().is_none(), "the writer of {job} ended by itself");
    }
    newest
}

fn check(store: &Store, newest: &BTreeMap<&str, u64>, place: &str) {
    let rows = store.attempts().unwrap();
    assert!(rows.iter().all(|row| row.state != AttemptState::Writing), "{place}");
    let sealed: Vec<&AttemptRow> = rows.iter().filter(|row| row.state == AttemptState::Sealed).collect();
    for row in &sealed {
        let numbers: Vec<u64> = row.name.split(',').map(|number| number.parse().unwrap()).collect();
        let found = read_back(store, row.id, numbers.len()).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert!(found == pages(&numbers), "{place}: checkpoint {} has other pages", row.id);
    }
    for (job, id) in newest {
        assert!(sealed.iter().any(|row| row.job == *job && row.id >= *id), "{place}: checkpoint {id} of {job} is gone");
    }
}

#[test]
fn two_writers_killed_two_hundred_times_lose_nothing_that_was_sealed() {
    let scene = tempfile::tempdir().unwrap();
    let dir = scene.path().join("store");
    let random = &mut Random(0x5eed_1e55);
    for number in 1..=ROUNDS {
        let newest = round(&dir, random);
        check(&story::create_or_open(&dir).unwrap(), &newest, &format!("after round {number}"));
    }
    let store = story::open(&dir).unwrap();
    store.prune(1, None).unwrap();
    assert_eq!(store.sealed().unwrap().len(), 2);
    let bytes = |dir: &str| -> u64 {
        let files = std::fs::read_dir(store.dir().join(dir)).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    };
    // Two checkpoints of up to 44 pages, of which half is needed at least, with their lists.
    assert!(bytes("packs") < 1 << 20, "{} bytes of packs are left", bytes("packs"));
    assert!(bytes("manifests") < 1 << 20, "{} bytes of manifests are left", bytes("manifests"));
}
