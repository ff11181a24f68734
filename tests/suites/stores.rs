//! What becomes of the checkpoints of real programs: dropped, copied, flattened, and what happens on a full disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ckpt_tests::exact::{Reference, assert_same, reference};
use ckpt_tests::{Answer, Ckpt, Launch, Life, Program, Restart, Scene, Stdout, Store, checkpoint, code_of, processes};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::Value;

/// 24 MiB, of which every page is another one in each step.
fn program() -> Program {
    Program::victim("rewrites").argument("60")
}

fn ckpt(scene: &Scene, arguments: &[&str]) -> Answer {
    Ckpt::new(scene, arguments).call()
}

fn json(answer: Answer) -> Value {
    serde_json::from_str(&answer.succeeded().stdout).expect("JSON")
}

fn ids(scene: &Scene, store: &Store) -> Vec<u64> {
    store.rows(scene).iter().map(|row| row.id).collect()
}

/// A life that has left this many checkpoints, all different, and is dead.
fn checkpointed<'scene>(scene: &'scene Scene, name: &str, program: &Program, count: usize) -> Life<'scene> {
    let mut life = Life::preloaded(scene, name, program);
    for _ in 0..count {
        life.output.wait_for_more_lines(2);
        checkpoint(scene, life.pid);
    }
    life.kill();
    life
}

/// Restarts the newest checkpoint of `store` and compares all that the program prints.
#[track_caller]
fn goes_on_exactly(scene: &Scene, store: &Path, life: &Life<'_>, reference: &Reference) {
    let mut second = Restart::of(store).begin(scene, &life.directory, life.pid);
    assert_eq!(code_of(second.wait()), reference.code, "{}", second.errors());
    assert_same(&second.output.bytes(), &reference.stdout, "the output of the restarted program");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn prune_gives_back_what_only_old_checkpoints_have_and_the_newest_restarts_exactly() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let reference = reference(&scene, &program());
    let life = checkpointed(&scene, "life", &program(), 4);
    let (store, before) = (life.store(), life.store().bytes());
    let dir = text(store.path());

    let asked = ckpt(&scene, &["prune", dir, "--keep", "1", "--dry-run"]).succeeded();
    assert!(asked.stdout.contains("would drop 3 checkpoints"), "{asked:?}");
    assert_eq!((ids(&scene, &store).len(), store.bytes()), (4, before), "nothing has gone");

    let pruned = json(ckpt(&scene, &["prune", dir, "--keep", "1", "--json"]));
    assert_eq!(pruned["checkpoints"], serde_json::json!([1, 2, 3]));
    assert_eq!(pruned["waiting_bytes"], 0, "{pruned}");
    assert_eq!(ids(&scene, &store), [4]);
    assert!(store.bytes() < before / 2, "{before} bytes were four times 24 MiB, {} are left", store.bytes());

    let gone = ckpt(&scene, &["restart", dir, "--id", "2"]).failed_with(121);
    assert!(gone.stderr.contains("holds no checkpoint 2; the newest is 4"), "{gone:?}");
    ckpt(&scene, &["verify", dir]).succeeded();
    goes_on_exactly(&scene, store.path(), &life, &reference);
    let again = ckpt(&scene, &["prune", dir, "--keep", "1"]).succeeded();
    assert!(again.stdout.starts_with("dropped 0 checkpoints"), "{again:?}");
}

#[test]
fn prune_counts_for_each_job_and_asks_for_a_number_and_a_job_that_there_is() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let shared = scene.path().join("shared");
    for name in ["one", "other"] {
        let program = program().variable("CKPT_DIR", &shared).variable("CKPT_NAME", name);
        checkpointed(&scene, name, &program, 2);
    }
    let dir = text(&shared);
    for arguments in [&["prune", dir][..], &["prune", dir, "--keep", "0"], &["prune", dir, "--keep", "all"]] {
        ckpt(&scene, arguments).failed_with(2);
    }
    let unknown = ckpt(&scene, &["prune", dir, "--keep", "1", "--job", "third"]).failed_with(2);
    assert!(unknown.stderr.contains("one") && unknown.stderr.contains("other"), "it lists the jobs: {unknown:?}");
    assert_eq!(ids(&scene, &Store::at(&shared)), [1, 2, 3, 4]);
    ckpt(&scene, &["prune", dir, "--keep", "1", "--job", "one"]).succeeded();
    assert_eq!(ids(&scene, &Store::at(&shared)), [2, 3, 4]);
    ckpt(&scene, &["prune", dir, "--keep", "1"]).succeeded();
    assert_eq!(ids(&scene, &Store::at(&shared)), [2, 4]);
    ckpt(&scene, &["verify", dir]).succeeded();
}

#[test]
fn programs_are_checkpointed_and_restarted_while_their_store_is_pruned() {
    let scene = Scene::of_at_most(Duration::from_secs(180));
    let program = Program::victim("rewrites").argument("200").variable("CKPT_INTERVAL", "1s");
    let reference = reference(&scene, &program);
    // However busy the machine is, it does not end before.
    let sign = scene.path().join("may-end");
    let mut life = Life::preloaded(&scene, "life", &program.waiting(190, &sign));
    let store = life.store();
    let dir = text(store.path()).to_owned();
    store.wait_for_sealed(&scene, 1);
    for round in 0..4 {
        let mut newest = 0;
        for _ in 0..3 {
            newest = checkpoint(&scene, life.pid);
            ckpt(&scene, &["prune", &dir, "--keep", "1"]).succeeded();
        }
        ckpt(&scene, &["verify", &dir]).succeeded();
        // And those that the interval has added since.
        let are_newer = store.sealed(&scene).iter().all(|row| row.id >= newest);
        assert!(are_newer, "round {round}, {newest}: {:?}", store.rows(&scene));
        life.kill();
        let (directory, pid) = (life.directory.clone(), life.pid);
        // It would kill whoever has its pid.
        drop(life);
        life = Restart::of(&store).begin(&scene, &directory, pid);
    }
    std::fs::write(sign, "").expect("a file in the scene");
    assert_eq!(code_of(life.wait()), reference.code, "{}", life.errors());
    assert_same(&life.output.bytes(), &reference.stdout, "the output of five lives");
}

#[test]
fn a_program_keeps_as_many_checkpoints_as_it_was_told() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let of_the_variable = program().variable("CKPT_KEEP", "2");
    let options = vec!["--keep".to_owned(), "1".to_owned()];
    for (name, program, launch, kept) in
        [("variable", of_the_variable, Launch::Preload, 2), ("option", program(), Launch::Run(options), 1)]
    {
        let reference = reference(&scene, &program);
        // However busy the machine is, it does not end before.
        let sign = scene.path().join(format!("{name}-may-end"));
        let mut life = Life::start(&scene, name, &program.clone().waiting(50, &sign), &launch, Stdout::File);
        life.output.wait_for_lines(1);
        let mut last = 0;
        for _ in 0..5 {
            last = checkpoint(&scene, life.pid);
        }
        std::fs::write(sign, "").expect("a file in the scene");
        // The agent drops them after it has answered, and ends when that is done.
        let pid = life.pid;
        life.kill();
        processes::wait_until("the agent is gone", Duration::from_secs(10), || processes::agents_of(pid).is_empty());
        let left = ids(&scene, &life.store());
        assert!(left.len() <= kept + 1 && left.last() == Some(&last), "{name}: {left:?}");
        ckpt(&scene, &["prune", text(life.store().path()), "--keep", &kept.to_string()]).succeeded();
        assert_eq!(ids(&scene, &life.store()).len(), kept, "{name}");
        goes_on_exactly(&scene, life.store().path(), &life, &reference);
    }
}

#[test]
fn a_copy_restarts_without_the_original_and_only_what_is_missing_travels() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let program = Program::victim("threads8").argument("150");
    let reference = reference(&scene, &program);
    let life = checkpointed(&scene, "life", &program, 3);
    let (from, to) = (life.store(), scene.path().join("copy"));
    let copy = |arguments: &[&str]| json(ckpt(&scene, &[&["copy"], arguments, &["--json"]].concat()));
    let dir = text(from.path());

    let first = copy(&[&format!("{dir}:1"), text(&to)]);
    assert_eq!((&first[0]["from"], &first[0]["to"], &first[0]["was_there"]), (&1.into(), &1.into(), &false.into()));
    let all = copy(&[dir, text(&to)]);
    let flags: Vec<_> = all.as_array().expect("rows").iter().map(|row| row["was_there"] == true).collect();
    assert_eq!(flags, [true, false, false]);
    let new = |row: &Value| row["new_bytes"].as_u64().expect("bytes");
    assert!(new(&all[1]) < new(&first[0]) / 4, "{first} {all}");
    assert!(copy(&[dir, text(&to)]).as_array().expect("rows").iter().all(|row| row["was_there"] == true));
    ckpt(&scene, &["copy", &format!("{dir}:9"), text(&to)]).failed_with(1);
    ckpt(&scene, &["copy", dir, text(&to), "--job", "nobody"]).failed_with(2);
    ckpt(&scene, &["copy", dir, text(&scene.folder("life"))]).failed_with(1);

    std::fs::remove_dir_all(from.path()).expect("it is there");
    goes_on_exactly(&scene, &to, &life, &reference);
}

#[test]
fn a_flattened_checkpoint_needs_no_older_file() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let program = Program::victim("threads8").argument("150");
    let reference = reference(&scene, &program);
    let life = checkpointed(&scene, "life", &program, 3);
    let store = life.store();
    let packs = store.path().join("packs");
    let names = || -> Vec<PathBuf> {
        std::fs::read_dir(&packs).expect("packs").map(|entry| entry.expect("readable").path()).collect()
    };
    let old = names();
    ckpt(&scene, &["flatten", text(store.path()), "3"]).succeeded();
    let flat: Vec<_> = names().into_iter().filter(|name| !old.contains(name)).collect();
    assert!(!flat.is_empty());
    for name in names().iter().filter(|name| !flat.contains(name)) {
        std::fs::remove_file(name).expect("it is there");
    }
    ckpt(&scene, &["verify", text(store.path()), "3"]).succeeded();
    ckpt(&scene, &["flatten", text(store.path()), "9"]).failed_with(1);
    goes_on_exactly(&scene, store.path(), &life, &reference);
}

/// A file system of its own, of so many bytes.
struct Disk(PathBuf);

impl Disk {
    fn new(scene: &Scene, mib: usize) -> Disk {
        let path = scene.folder("disk");
        let disk = Disk(path);
        disk.mount(MsFlags::empty(), mib);
        disk
    }

    fn mount(&self, flags: MsFlags, mib: usize) {
        let size = format!("size={mib}m,mode=700");
        mount(Some("ckpt-test"), &self.0, Some("tmpfs"), flags, Some(size.as_str())).expect("root may mount a tmpfs");
    }

    /// A store on it, and a program whose checkpoints go there.
    fn store_and_program(&self) -> (Store, Program) {
        let store = Store::at(self.0.join("store"));
        let program = program().variable("CKPT_DIR", store.path());
        (store, program)
    }

    fn grow(&self, mib: usize) {
        self.mount(MsFlags::MS_REMOUNT, mib);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

#[test]
fn on_a_full_disk_the_program_goes_on_and_the_checkpoint_before_stays() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let disk = Disk::new(&scene, 48);
    let (store, program) = disk.store_and_program();
    let reference = reference(&scene, &program);
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_more_lines(1);
    checkpoint(&scene, life.pid);
    let before = store.bytes();
    // Two: the first may have been on its way, with a part of the memory filled before the checkpoint.
    life.output.wait_for_more_lines(2);
    let refused = ckpt(&scene, &["checkpoint", &life.pid.to_string()]).failed_with(5);
    for word in [text(store.path()), "of room left", "ckpt prune"] {
        assert!(refused.stderr.contains(word), "no {word:?} in {refused:?}");
    }
    life.output.wait_for_more_lines(2);
    let rows = store.rows(&scene);
    assert_eq!(rows.iter().map(|row| row.state.as_str()).collect::<Vec<_>>(), ["sealed", "failed"], "{rows:?}");
    assert!(store.bytes() < before + 65536, "the failed attempt has given its room back");
    ckpt(&scene, &["verify", text(store.path())]).succeeded();

    disk.grow(96);
    checkpoint(&scene, life.pid);
    life.kill();
    // Full again: what is read needs no room.
    disk.grow(64);
    goes_on_exactly(&scene, store.path(), &life, &reference);
}

#[test]
fn prune_works_on_a_full_disk() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let disk = Disk::new(&scene, 96);
    let (store, program) = disk.store_and_program();
    let reference = reference(&scene, &program);
    let life = checkpointed(&scene, "life", &program, 2);
    let filler = disk.0.join("filler");
    // As dd does: until nothing more fits.
    let mut file = std::fs::File::create(&filler).expect("there is room");
    while std::io::Write::write(&mut file, &[1; 4096]).is_ok() {}
    drop(file);
    ckpt(&scene, &["prune", text(store.path()), "--keep", "1"]).succeeded();
    assert_eq!(ids(&scene, &store), [2]);
    std::fs::remove_file(&filler).expect("it is there");
    ckpt(&scene, &["prune", text(store.path()), "--keep", "1"]).succeeded();
    goes_on_exactly(&scene, store.path(), &life, &reference);
}
