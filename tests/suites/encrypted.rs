//! Encrypted stores: a program is checkpointed into one and restarted from it, and without a key nothing is to be had of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ckpt_tests::exact::{Reference, assert_same, reference};
use ckpt_tests::{Answer, Ckpt, Launch, Life, Program, Restart, Scene, Stdout, checkpoint, code_of, processes};
use nix::sys::signal::Signal;
use serde_json::Value;

const KEY: &str = "CKPT_KEY";

/// 24 MiB, of which every page is another one in each step.
fn program() -> Program {
    Program::victim("rewrites").argument("40")
}

fn new_key(scene: &Scene, name: &str) -> PathBuf {
    let path = scene.path().join(name);
    let made = Ckpt::new(scene, [Path::new("key"), Path::new("new"), &path]).call().succeeded();
    assert!(made.stderr.contains("loses all checkpoints"), "{made:?}");
    path
}

fn with(scene: &Scene, key: impl AsRef<Path>, arguments: &[&str]) -> Answer {
    Ckpt::new(scene, arguments).variable(KEY, key.as_ref().as_os_str()).call()
}

fn json(answer: Answer) -> Value {
    serde_json::from_str(&answer.succeeded().stdout).expect("JSON")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The same, which does not end before there is the file of [`over`].
fn waiting(scene: &Scene) -> Program {
    program().waiting(30, &over(scene))
}

fn over(scene: &Scene) -> PathBuf {
    scene.path().join("over")
}

/// A dead life with as many checkpoints in an encrypted store.
fn checkpointed<'scene>(scene: &'scene Scene, key: &Path, launch: &Launch, count: usize) -> Life<'scene> {
    let program = waiting(scene).variable(KEY, key);
    let mut life = Life::start(scene, "life", &program, launch, Stdout::File);
    for _ in 0..count {
        life.output.wait_for_more_lines(2);
        checkpoint(scene, life.pid);
    }
    life.kill();
    life
}

#[track_caller]
fn goes_on_exactly(scene: &Scene, restart: &Restart, life: &Life<'_>, reference: &Reference) {
    std::fs::write(over(scene), "").expect("a file in the scene");
    let mut second = restart.begin(scene, &life.directory, life.pid);
    assert_eq!(code_of(second.wait()), reference.code, "{}", second.errors());
    assert_same(&second.output.bytes(), &reference.stdout, "the output of the restarted program");
}

/// Every file of the store that the store writes.
fn files(store: &Path) -> Vec<PathBuf> {
    let directories = ["packs", "manifests", "attempts"].map(|name| store.join(name));
    let entries = directories.iter().flat_map(|dir| std::fs::read_dir(dir).expect("it is there"));
    entries.map(|entry| entry.expect("it is there").path()).collect()
}

fn has(path: &Path, wanted: &[u8]) -> bool {
    std::fs::read(path).expect("it is there").windows(wanted.len()).any(|part| part == wanted)
}

#[test]
fn a_program_is_restarted_exactly_by_the_key_and_the_store_shows_nothing_of_it() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let (key, other) = (new_key(&scene, "key"), new_key(&scene, "other"));
    let reference = reference(&scene, &program());
    let life = checkpointed(&scene, &key, &Launch::Preload, 2);
    let (store, dir) = (life.store(), text(life.store().path()).to_owned());

    for file in files(store.path()) {
        assert!(!has(&file, b"rewrites") && !has(&file, b"[stack]") && !has(&file, b"CKPT_"), "{}", file.display());
    }
    for arguments in [&["list", &dir][..], &["verify", &dir], &["show", &dir, "1"], &["diff", &dir, "1", "2"]] {
        with(&scene, &key, arguments).succeeded();
        let missing = Ckpt::new(&scene, arguments).call().failed_with(5);
        assert!(missing.stderr.contains("is encrypted and no key was given; set CKPT_KEY"), "{missing:?}");
        let wrong = with(&scene, &other, arguments).failed_with(5);
        assert!(wrong.stderr.contains("not opened by the key given; set CKPT_KEY to its key"), "{wrong:?}");
    }
    Ckpt::new(&scene, ["restart", &dir]).call().failed_with(125);
    goes_on_exactly(&scene, &Restart::of(&store).variable(KEY, &key), &life, &reference);
}

#[test]
fn it_is_restarted_lazily_and_in_a_namespace_and_goes_on_taking_encrypted_checkpoints() {
    let scene = Scene::of_at_most(Duration::from_secs(180));
    let key = new_key(&scene, "key");
    let reference = reference(&scene, &program());
    let life = checkpointed(&scene, &key, &Launch::Run(Vec::new()), 1);
    let store = life.store();
    let dir = text(store.path()).to_owned();
    let mut second = Restart::of(&store).variable(KEY, &key).option("--lazy").begin(&scene, &life.directory, life.pid);
    second.output.wait_for_more_lines(2);
    checkpoint(&scene, second.pid);
    second.kill();
    assert_eq!(json(with(&scene, &key, &["list", &dir, "--json"])).as_array().map(Vec::len), Some(2));
    let apart = Restart::of(&store).variable(KEY, &key).option("--namespace").option("always");
    goes_on_exactly(&scene, &apart, &life, &reference);
}

#[test]
fn space_is_given_back_and_copies_have_keys_of_their_own_or_none() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let (key, other) = (new_key(&scene, "key"), new_key(&scene, "other"));
    let reference = reference(&scene, &program());
    let life = checkpointed(&scene, &key, &Launch::Preload, 3);
    let (store, dir) = (life.store(), text(life.store().path()).to_owned());
    let before = store.bytes();
    with(&scene, &key, &["prune", &dir, "--keep", "1"]).succeeded();
    with(&scene, &key, &["flatten", &dir, "3"]).succeeded();
    with(&scene, &key, &["verify", &dir]).succeeded();
    assert!(store.bytes() < before / 2, "{} of {before} bytes are left", store.bytes());

    with(&scene, &key, &["copy", &dir, "second", "--key", text(&other)]).succeeded();
    with(&scene, &key, &["copy", &dir, "plain", "--key", "none"]).succeeded();
    with(&scene, &other, &["copy", "plain", "third"]).succeeded();
    for (copy, key) in [("second", Some(&other)), ("plain", None), ("third", Some(&other))] {
        let restart = Restart::of(scene.path().join(copy));
        let restart = key.into_iter().fold(restart, |restart, key| restart.variable(KEY, key));
        goes_on_exactly(&scene, &restart, &life, &reference);
    }
    let refused = with(&scene, &key, &["list", "plain"]).failed_with(5);
    assert!(refused.stderr.contains("plain is not encrypted"), "{refused:?}");
    with(&scene, &key, &["list", "second"]).failed_with(5);
}

#[test]
fn a_plain_store_is_not_written_to_where_a_key_is_set_and_the_program_runs_on() {
    let scene = Scene::of_at_most(Duration::from_secs(60));
    let key = new_key(&scene, "key");
    let code = reference(&scene, &program()).code;
    let shared = scene.path().join("shared");
    let plain = waiting(&scene).variable("CKPT_DIR", &shared);
    let mut first = Life::preloaded(&scene, "first", &plain);
    first.output.wait_for_more_lines(2);
    checkpoint(&scene, first.pid);
    first.kill();
    let mut second = Life::preloaded(&scene, "second", &plain.variable(KEY, &key));
    second.output.wait_for_more_lines(2);
    let pid = second.pid.to_string();
    let refused = with(&scene, &key, &["checkpoint", &pid]).failed_with(5);
    assert!(refused.stderr.contains("shared is not encrypted"), "{refused:?}");
    processes::send(second.pid, Signal::SIGUSR1);
    processes::wait_until("the log says why there is no checkpoint", Duration::from_secs(30), || {
        let said = std::fs::read_to_string(shared.join("log")).unwrap_or_default();
        said.lines().filter(|line| line.contains("can have no checkpoint") && line.contains("is not encrypted")).count()
            >= 2
    });
    std::fs::write(over(&scene), "").expect("a file in the scene");
    assert_eq!(code_of(second.wait()), code, "it runs on");
    assert_eq!(json(Ckpt::new(&scene, ["list", text(&shared), "--json"]).call()).as_array().map(Vec::len), Some(1));
}

#[test]
fn run_starts_no_program_whose_key_does_not_open_its_store() {
    let scene = Scene::of_at_most(Duration::from_secs(60));
    let (key, other) = (new_key(&scene, "key"), new_key(&scene, "other"));
    let store = checkpointed(&scene, &key, &Launch::Preload, 1).store();
    let ran = scene.path().join("ran");
    let run = ["run", "--dir", text(store.path()), "--", "touch", text(&ran)];
    let without = Ckpt::new(&scene, run).call().failed_with(125);
    assert!(without.stderr.contains("is encrypted and no key was given"), "{without:?}");
    let wrong = with(&scene, &other, &run).failed_with(125);
    assert!(wrong.stderr.contains("not opened by the key given"), "{wrong:?}");
    assert!(!ran.exists(), "it ran");
    with(&scene, &key, &run).succeeded();
    assert!(ran.exists());
}

#[test]
fn two_keys_open_a_store_and_the_last_one_is_not_removed() {
    let scene = Scene::of_at_most(Duration::from_secs(60));
    let (key, other) = (new_key(&scene, "key"), new_key(&scene, "other"));
    let life = checkpointed(&scene, &key, &Launch::Preload, 1);
    let dir = text(life.store().path()).to_owned();
    let last = with(&scene, &key, &["key", "remove", &dir, text(&key)]).failed_with(1);
    assert!(
        last.stderr.contains("is the last key") && last.stderr.contains("all checkpoints in there are lost"),
        "{last:?}"
    );
    with(&scene, &other, &["list", &dir]).failed_with(5);
    with(&scene, &key, &["key", "add", &dir, text(&other)]).succeeded();
    with(&scene, &key, &["key", "add", &dir, text(&other)]).succeeded();
    let said = format!("command:cat {}", other.display());
    with(&scene, &said, &["verify", &dir]).succeeded();
    let keys = json(with(&scene, &other, &["key", "list", &dir, "--json"]));
    assert_eq!(keys.as_array().map(Vec::len), Some(2), "{keys}");
    with(&scene, &other, &["key", "remove", &dir, text(&key)]).succeeded();
    with(&scene, &key, &["list", &dir]).failed_with(5);
    with(&scene, &other, &["verify", &dir]).succeeded();
    let name = keys[0]["key"].as_str().expect("a name").to_owned();
    with(&scene, &other, &["key", "remove", &dir, &name]).failed_with(1);
}
