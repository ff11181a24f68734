//! Many lives: again from one checkpoint, from a checkpoint of a restart, from a copy of the store.

use std::path::Path;
use std::time::Duration;

use ckpt_tests::exact::{Reference, assert_same, reference};
use ckpt_tests::{Life, Program, Restart, Scene, checkpoint, code_of, processes};

fn program() -> Program {
    Program::victim("threads8").argument("120")
}

/// The step at which a life waits that is to be checkpointed, until [`ends_like`] lets it end: however busy the machine is.
const LAST: usize = 100;

fn patient(scene: &Scene) -> Program {
    program().waiting(LAST, &scene.path().join("over"))
}

/// Waits for so many more lines, but for none behind that step. The first line is before all steps.
fn wait_for_more(life: &Life<'_>, lines: usize) {
    life.output.wait_for_more_lines_to(lines, 1 + LAST);
}

/// Starts, checkpoints at line 10, runs on and dies; gives the checkpoint, the pid and the directory.
fn first_life(scene: &Scene) -> (u64, i32, std::path::PathBuf) {
    let mut life = Life::preloaded(scene, "life", &patient(scene));
    life.output.wait_for_lines(10);
    let id = checkpoint(scene, life.pid);
    wait_for_more(&life, 3);
    life.kill();
    (id, life.pid, life.directory.clone())
}

#[track_caller]
fn ends_like(scene: &Scene, mut life: Life<'_>, reference: &Reference) {
    std::fs::write(scene.path().join("over"), "").expect("a file in the scene");
    assert_eq!(code_of(life.wait()), reference.code, "{}", life.errors());
    assert_same(&life.output.bytes(), &reference.stdout, "the complete output");
}

#[test]
fn one_checkpoint_is_restarted_any_number_of_times() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let reference = reference(&scene, &program());
    let (id, pid, directory) = first_life(&scene);
    for _ in 0..5 {
        ends_like(&scene, Restart::of(directory.join("store")).id(id).begin(&scene, &directory, pid), &reference);
    }
}

#[test]
fn a_restart_is_killed_and_restarted_from_the_same_checkpoint() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let reference = reference(&scene, &program());
    let (id, pid, directory) = first_life(&scene);
    let restart = Restart::of(directory.join("store")).id(id);
    for _ in 0..3 {
        let mut life = restart.begin(&scene, &directory, pid);
        life.output.wait_for_line("step 30 ");
        life.kill();
    }
    ends_like(&scene, restart.begin(&scene, &directory, pid), &reference);
}

#[test]
fn a_restarted_program_is_checkpointed_and_restarted_five_generations_deep() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let reference = reference(&scene, &program());
    let (mut id, pid, directory) = first_life(&scene);
    let store = directory.join("store");
    for generation in 1..=5 {
        let mut life = Restart::of(&store).id(id).begin(&scene, &directory, pid);
        life.output.wait_for_line(&format!("step {} ", 10 + 15 * generation));
        let next = checkpoint(&scene, life.pid);
        assert_ne!(next, id);
        id = next;
        wait_for_more(&life, 2);
        life.kill();
    }
    ends_like(&scene, Restart::of(&store).begin(&scene, &directory, pid), &reference);
}

#[test]
fn a_restarted_program_takes_a_checkpoint_by_signal() {
    let scene = Scene::new();
    let reference = reference(&scene, &program());
    let (id, pid, directory) = first_life(&scene);
    let mut life = Restart::of(directory.join("store")).id(id).begin(&scene, &directory, pid);
    life.output.wait_for_line("step 40 ");
    let before = life.store().sealed(&scene).len();
    processes::send(life.pid, nix::sys::signal::Signal::SIGUSR1);
    let row = life.store().wait_for_sealed(&scene, before + 1);
    assert!(row.id > id);
    life.kill();
    ends_like(&scene, Restart::of(directory.join("store")).begin(&scene, &directory, pid), &reference);
}

#[test]
fn a_copy_of_the_store_in_another_directory_restarts_when_the_original_is_gone() {
    let scene = Scene::new();
    let reference = reference(&scene, &program());
    let (_, pid, directory) = first_life(&scene);
    let original = ckpt_tests::Store::at(directory.join("store"));
    let copy = original.copied_to(&scene.path().join("elsewhere/copy of the store"));
    std::fs::remove_dir_all(original.path()).expect("nobody needs the original");
    ends_like(&scene, Restart::of(&copy).begin(&scene, &directory, pid), &reference);
    assert!(!original.path().exists(), "the restart must not make the old store again");
}

#[test]
fn nothing_of_the_first_life_is_needed() {
    let scene = Scene::new();
    let reference = reference(&scene, &program());
    let (_, pid, directory) = first_life(&scene);
    processes::wait_until("every process of the first life is gone", Duration::from_secs(10), || {
        processes::of_scene(scene.path()).is_empty()
    });
    ends_like(&scene, Restart::of(directory.join("store")).begin(&scene, &directory, pid), &reference);
}

#[test]
fn the_restarting_environment_may_have_any_size() {
    let scene = Scene::new();
    let reference = reference(&scene, &program());
    let (_, pid, directory) = first_life(&scene);
    for bytes in [1, 5000, 60_000] {
        let restart = Restart::of(directory.join("store")).variable("ANOTHER_SIZE", "x".repeat(bytes));
        ends_like(&scene, restart.begin(&scene, &directory, pid), &reference);
    }
}

#[test]
fn address_space_randomisation_is_on_and_does_no_harm() {
    let setting = std::fs::read_to_string("/proc/sys/kernel/randomize_va_space").expect("Linux");
    if setting.trim() == "0" {
        return ckpt_tests::skip("this machine has switched address-space randomisation off");
    }
    let scene = Scene::new();
    let (_, pid, directory) = first_life(&scene);
    let other = Life::preloaded(&scene, "other", &program());
    other.output.wait_for_line("ready");
    let restarted = Restart::of(directory.join("store")).begin(&scene, &directory, pid);
    restarted.output.wait_for_line("step 30 ");
    let stack = |pid: i32| {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
        maps.lines().find(|line| line.contains("[stack]")).map(str::to_owned)
    };
    assert_ne!(stack(other.pid), stack(restarted.pid), "two programs at one place: nothing is randomised");
}

#[test]
fn pids_tids_maps_and_descriptors_are_those_of_the_first_life() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &patient(&scene));
    life.output.wait_for_lines(10);
    checkpoint(&scene, life.pid);
    let before = described(life.pid);
    life.kill();
    let restarted = Restart::of(life.store()).begin(&scene, &life.directory, life.pid);
    restarted.output.wait_for_line("step 20 ");
    let after = described(restarted.pid);
    for (one, other) in before.iter().zip(&after) {
        assert_eq!(one, other);
    }
}

/// What must be the same in each life, one text for each kind.
fn described(pid: i32) -> Vec<String> {
    let read = |path: String| std::fs::read_to_string(path).expect("the program runs");
    // Device and inode of an anonymous shared object are new in each life; nothing of threads8 has one.
    let maps: Vec<String> = read(format!("/proc/{pid}/maps")).lines().map(str::to_owned).collect();
    let link = |path: String| std::fs::read_link(path).map(|found| found.display().to_string()).unwrap_or_default();
    let descriptors: Vec<String> = processes::descriptors(pid)
        .into_iter()
        .map(|number| format!("{number} -> {}", link(format!("/proc/{pid}/fd/{number}"))))
        .collect();
    let names: Vec<String> =
        processes::threads(pid).into_iter().map(|tid| read(format!("/proc/{pid}/task/{tid}/comm"))).collect();
    vec![
        format!("threads {:?} {names:?}", processes::threads(pid)),
        maps.join("\n"),
        descriptors.join("\n"),
        format!("exe {} cwd {}", link(format!("/proc/{pid}/exe")), link(format!("/proc/{pid}/cwd"))),
        read(format!("/proc/{pid}/cmdline")),
        read(format!("/proc/{pid}/environ")),
        format!("{:?}", ["SigBlk", "SigIgn", "SigCgt", "Umask", "Uid", "Gid"].map(|n| processes::status_field(pid, n))),
        read(format!("/proc/{pid}/limits")),
    ]
}

#[test]
fn a_store_named_by_a_relative_path_is_found() {
    let scene = Scene::new();
    let reference = reference(&scene, &program());
    let (_, pid, directory) = first_life(&scene);
    let life = Restart::of(Path::new("../life/store")).begin(&scene, &directory, pid);
    ends_like(&scene, life, &reference);
}
