//! Pages of large mapped files are stored behind the seal of a checkpoint, which is a promise all the same: whatever becomes of the files, of
//! the program and of its agent.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ckpt_tests::exact::{Reference, assert_same, reference};
use ckpt_tests::{
    Ckpt, Launch, Life, Program, Restart, Row, Scene, Stdout, Store, checkpoint, code_of, fault, processes,
};
use nix::sys::signal::Signal;

const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 80 * MIB;
/// When a file is that old, a change of it shows in its times.
const SETTLED: Duration = Duration::from_secs(3);
/// The fault point behind each part of a file that is stored.
const STORED: &str = "mapped_file.stored";

/// Noise.
fn content() -> Vec<u8> {
    let mut state = 7_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..FILE_BYTES / 8).flat_map(|_| next()).collect()
}

/// A program that maps a file, with the file in `folder`, and what it prints by itself.
struct Work {
    program: Program,
    whole: Reference,
    goes_on: PathBuf,
}

impl Work {
    fn new(scene: &Scene, kind: &str) -> Work {
        let program = Program::victim("mapped_file").argument("60").argument(kind).input("data", content());
        let whole = reference(scene, &program);
        let goes_on = scene.path().join("goes-on");
        Work { program: program.waiting(20, &goes_on), whole, goes_on }
    }

    /// The program, when its file has settled.
    fn begun<'scene>(&self, scene: &'scene Scene) -> Life<'scene> {
        let life = Life::preloaded(scene, "life", &self.program);
        self.settle(&life);
        life
    }

    fn settle(&self, life: &Life<'_>) {
        life.output.wait_for_lines(21);
        let changed = fs::metadata(data_of(life)).expect("the file").modified().expect("a time");
        processes::wait_until("the file is old", Duration::from_secs(30), || {
            changed.elapsed().is_ok_and(|age| age > SETTLED)
        });
    }

    /// Restarts, and compares all that is printed with what is printed without a restart.
    #[track_caller]
    fn comes_back(&self, scene: &Scene, life: &Life<'_>, restart: Restart) {
        let mut second = restart.begin(scene, &life.directory, life.pid);
        fs::write(&self.goes_on, "").expect("a file");
        assert_eq!(code_of(second.wait()), self.whole.code, "{}{}", second.output.text(), second.errors());
        assert_same(&second.output.bytes(), &self.whole.stdout, "the output of both lives");
        fs::remove_file(&self.goes_on).expect("a file");
    }
}

fn data_of(life: &Life<'_>) -> PathBuf {
    life.directory.join("data")
}

fn row(scene: &Scene, store: &Store, id: u64) -> Row {
    store.sealed(scene).into_iter().find(|row| row.id == id).expect("it is sealed")
}

#[track_caller]
fn wait_until_complete(scene: &Scene, store: &Store, id: u64) -> Row {
    processes::wait_until("the checkpoint is complete", Duration::from_secs(60), || {
        row(scene, store, id).pending_bytes == 0
    });
    row(scene, store, id)
}

/// What a package manager does: another file gets its name.
fn replace(path: &Path) {
    let new = path.with_extension("new");
    fs::write(&new, vec![1; FILE_BYTES as usize]).expect("a file");
    fs::rename(new, path).expect("a rename");
}

/// What somebody does who does not know that it is mapped.
fn overwrite(path: &Path) {
    let file = fs::OpenOptions::new().write(true).open(path).expect("the file");
    file.write_all_at(&[1; 64 << 10], 8 << 20).expect("a write");
}

/// Takes a checkpoint by an agent that is killed when it has stored a part of the file.
fn checkpoint_by_agent_that_dies(scene: &Scene, life: &Life<'_>) -> u64 {
    processes::end_agents(life.pid);
    let taken =
        Ckpt::new(scene, ["checkpoint", &life.pid.to_string()]).variable(fault::KILL, format!("{STORED}:3")).call();
    processes::wait_until("the agent is gone", Duration::from_secs(30), || processes::agents_of(life.pid).is_empty());
    taken.succeeded().number()
}

#[test]
fn a_large_file_is_stored_behind_the_seal_and_once() {
    let scene = Scene::new();
    let work = Work::new(&scene, "");
    let mut life = work.begun(&scene);
    let first = checkpoint(&scene, life.pid);
    let complete = wait_until_complete(&scene, &life.store(), first);
    assert!(complete.new_bytes < 20 * MIB, "{complete:?}");
    assert!((FILE_BYTES..FILE_BYTES + 20 * MIB).contains(&complete.behind_bytes), "{complete:?}");
    assert!((2 * FILE_BYTES..2 * FILE_BYTES + 60 * MIB).contains(&complete.memory_bytes), "{complete:?}");
    let second = checkpoint(&scene, life.pid);
    let later = row(&scene, &life.store(), second);
    assert!(later.new_bytes < MIB && later.behind_bytes + later.pending_bytes == 0, "{later:?}");
    life.kill();
    fs::remove_file(data_of(&life)).expect("the file");
    Ckpt::new(&scene, ["verify", &life.store().path().to_string_lossy()]).call().succeeded();
    work.comes_back(&scene, &life, Restart::of(life.store()).id(first));
    work.comes_back(&scene, &life, Restart::of(life.store()).id(second));
}

#[test]
fn a_file_that_is_replaced_at_once_is_restored_as_it_was() {
    let scene = Scene::new();
    let work = Work::new(&scene, "");
    let mut life = work.begun(&scene);
    let taken = checkpoint(&scene, life.pid);
    replace(&data_of(&life));
    life.kill();
    work.comes_back(&scene, &life, Restart::of(life.store()).id(taken));
}

#[test]
fn a_file_that_is_overwritten_later_is_restored_as_it_was() {
    let scene = Scene::new();
    let work = Work::new(&scene, "");
    let mut life = work.begun(&scene);
    let taken = checkpoint(&scene, life.pid);
    wait_until_complete(&scene, &life.store(), taken);
    life.kill();
    overwrite(&data_of(&life));
    work.comes_back(&scene, &life, Restart::of(life.store()).id(taken));
}

#[test]
fn a_restart_completes_what_an_agent_that_was_killed_has_left() {
    let scene = Scene::new();
    let work = Work::new(&scene, "");
    let mut life = work.begun(&scene);
    let taken = checkpoint_by_agent_that_dies(&scene, &life);
    let incomplete = row(&scene, &life.store(), taken);
    assert!(incomplete.pending_bytes > 2 * FILE_BYTES - MIB, "{incomplete:?}");
    let store = life.store().path().to_string_lossy().into_owned();
    let listed = Ckpt::new(&scene, ["list", &store]).call().succeeded().stdout;
    assert!(listed.contains("sealed, files pending"), "{listed}");
    let shown = Ckpt::new(&scene, ["show", &store, &taken.to_string()]).call().succeeded().stdout;
    assert!(shown.contains("of mapped files, not stored yet"), "{shown}");
    let verified = Ckpt::new(&scene, ["verify", &store]).call().succeeded().stdout;
    assert!(verified.contains("of its files are not stored: it needs them unchanged"), "{verified}");
    life.kill();
    work.comes_back(&scene, &life, Restart::of(life.store()));
    let complete = row(&scene, &life.store(), taken);
    assert!(complete.pending_bytes == 0 && complete.behind_bytes > FILE_BYTES, "{complete:?}");
    fs::remove_file(data_of(&life)).expect("the file");
    work.comes_back(&scene, &life, Restart::of(life.store()));
}

#[test]
fn a_file_that_changes_when_its_agent_was_killed_is_named_and_an_older_checkpoint_too() {
    for change in [replace, overwrite] {
        let scene = Scene::new();
        let work = Work::new(&scene, "");
        let mut life = work.begun(&scene);
        let dir = life.store().path().to_string_lossy().into_owned();
        let old = checkpoint(&scene, life.pid);
        wait_until_complete(&scene, &life.store(), old);
        // Another agent knows nothing of what is stored.
        let taken = checkpoint_by_agent_that_dies(&scene, &life);
        life.kill();
        change(&data_of(&life));
        let number = taken.to_string();
        for (code, words) in [
            (125, &["restart", &dir][..]),
            (5, &["extract", &dir, &number, "--region", "m0", "-o", "-"]),
            (5, &["diff", &dir, &old.to_string(), &number]),
            (5, &["copy", &dir, "other"]),
            (5, &["flatten", &dir, &number]),
        ] {
            let refused = Ckpt::new(&scene, words).call().failed_with(code);
            let names = [format!("checkpoint {taken}"), data_of(&life).to_string_lossy().into_owned()];
            assert!(names.iter().all(|name| refused.stderr.contains(name)), "{refused:?}");
            assert!(refused.stderr.contains(&format!("use checkpoint {old}, ")), "{refused:?}");
        }
        work.comes_back(&scene, &life, Restart::of(life.store()).id(old));
    }
}

#[test]
fn checkpoints_that_follow_at_once_are_complete_too() {
    let scene = Scene::new();
    let work = Work::new(&scene, "");
    let mut life = work.begun(&scene);
    let taken: Vec<u64> = (0..4).map(|_| checkpoint(&scene, life.pid)).collect();
    life.kill();
    let store = life.store();
    let rows: Vec<Row> = taken.iter().map(|&id| wait_until_complete(&scene, &store, id)).collect();
    let behind: u64 = rows.iter().map(|row| row.behind_bytes + row.new_bytes).sum();
    assert!(behind < FILE_BYTES + 40 * MIB, "a page is stored once: {rows:?}");
    Ckpt::new(&scene, ["verify", &store.path().to_string_lossy()]).call().succeeded();
    replace(&data_of(&life));
    for id in [taken[0], taken[3]] {
        work.comes_back(&scene, &life, Restart::of(&store).id(id));
    }
}

#[test]
fn a_copy_has_the_files_that_were_still_on_their_way() {
    let scene = Scene::new();
    let work = Work::new(&scene, "");
    let mut life = work.begun(&scene);
    checkpoint(&scene, life.pid);
    let (from, to) = (life.store().path().to_owned(), scene.path().join("copy"));
    Ckpt::new(&scene, [Path::new("copy"), &from, &to]).call().succeeded();
    life.kill();
    fs::remove_dir_all(from).expect("the store");
    fs::remove_file(data_of(&life)).expect("the file");
    work.comes_back(&scene, &life, Restart::of(Store::at(to)));
}

#[test]
fn a_run_ends_when_its_last_checkpoint_is_complete() {
    let scene = Scene::new();
    let work = Work::new(&scene, "");
    let mut life = Life::start(&scene, "life", &work.program, &Launch::Run(Vec::new()), Stdout::File);
    work.settle(&life);
    let taken = checkpoint(&scene, life.pid);
    processes::send(life.pid, Signal::SIGKILL);
    life.wait();
    let row = row(&scene, &life.store(), taken);
    assert!(row.pending_bytes == 0 && row.behind_bytes > FILE_BYTES, "{row:?}");
}

#[test]
fn what_is_the_last_of_a_program_or_changes_all_the_time_is_stored_at_once() {
    for (kind, option) in [("", "--kill"), ("open", "--no-wait")] {
        let scene = Scene::new();
        let work = Work::new(&scene, kind);
        let life = work.begun(&scene);
        Ckpt::new(&scene, ["checkpoint", option, &life.pid.to_string()]).call().succeeded();
        let row = life.store().wait_for_sealed(&scene, 1);
        // Libraries may have waited.
        let behind = row.pending_bytes + row.behind_bytes;
        assert!(behind < 8 * MIB && row.new_bytes > FILE_BYTES, "{kind} {row:?}");
    }
}

/// Bytes of a process that are private and written, and those that are resident of files and no copies of its own.
fn dirty_and_of_files(pid: i32) -> (u64, u64) {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).expect("the program lives");
    let (mut dirty, mut of_files, mut resident, mut is_file) = (0, 0, 0, false);
    for line in smaps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let bytes = || words[1].parse::<u64>().expect("KiB") << 10;
        match words[0] {
            "Private_Dirty:" => dirty += bytes(),
            "Rss:" => resident = bytes(),
            "Anonymous:" if is_file => of_files += resident - bytes(),
            range if range.contains('-') => is_file = words[4] != "0",
            _ => {}
        }
    }
    (dirty, of_files)
}

#[test]
#[ignore = "needs torch and all that it depends on; scripts/test --all installs it"]
fn pytorch_stores_until_the_seal_what_it_has_changed() {
    let scene = Scene::of_at_most(Duration::from_secs(300));
    let mut life = Life::preloaded(&scene, "life", &Program::python("training.py").argument("100000"));
    life.output.wait_for_lines(2);
    let (dirty, of_files) = dirty_and_of_files(life.pid);
    let taken = checkpoint(&scene, life.pid);
    let row = wait_until_complete(&scene, &life.store(), taken);
    let story = format!("{dirty} dirty, {of_files} of files: {row:?}");
    assert!(row.new_bytes * 10 <= (dirty + of_files) * 13 && row.behind_bytes > 100 * MIB, "{story}");
    life.kill();
}
