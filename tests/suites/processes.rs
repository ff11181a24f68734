//! Jobs of several processes: stopped together, and together again after a restart.

use ckpt_tests::exact::survives_once;
use ckpt_tests::program::source;
use ckpt_tests::{Ckpt, Life, Program, Restart, Scene, checkpoint, code_of, processes};
use nix::sys::signal::Signal;

/// A doubler, a leader of a session with a child of its own, and two that have ended.
fn family() -> Program {
    Program::victim("family").argument("120")
}

/// A life of it at `step`, and its children that live: the doubler and the leader.
fn at_step<'scene>(scene: &'scene Scene, step: u64) -> (Life<'scene>, Vec<i32>) {
    let over = scene.path().join("over");
    let life = Life::preloaded(scene, "life", &family().waiting(100, &over));
    life.output.wait_for_line(&format!("step {step}:"));
    let children = processes::children(life.pid).into_iter().filter(|&child| processes::is_alive(child)).collect();
    (life, children)
}

fn lets_it_end(scene: &Scene, mut life: Life<'_>) {
    std::fs::write(scene.path().join("over"), "").expect("a file in the scene");
    assert_eq!(code_of(life.wait()), 7, "{}\n{}", life.output.text(), life.errors());
}

#[test]
fn whichever_process_is_named_or_gets_the_signal_all_are_captured() {
    let scene = Scene::new();
    let (life, children) = at_step(&scene, 10);
    let store = life.store();
    for (taken, &child) in children.iter().enumerate() {
        checkpoint(&scene, child);
        assert_eq!(store.sealed(&scene).len(), 2 * taken + 1);
        processes::send(child, Signal::SIGUSR1);
        store.wait_for_sealed(&scene, 2 * taken + 2);
    }
    assert_eq!(children.len(), 2);
    assert!(store.sealed(&scene).iter().all(|row| row.processes == 4), "{:?}", store.sealed(&scene));
    lets_it_end(&scene, life);
}

#[test]
fn all_end_with_the_checkpoint_that_ends_the_job_and_are_back_after_a_restart() {
    let scene = Scene::new();
    let (mut life, _) = at_step(&scene, 20);
    let family = processes::descendants(life.pid);
    assert_eq!(family.len(), 5, "two of them have ended");
    Ckpt::new(&scene, ["checkpoint", "--kill", &life.pid.to_string()]).call().succeeded();
    life.wait();
    let are_gone = || family.iter().all(|&pid| !processes::is_alive(pid));
    processes::wait_until("all have ended", std::time::Duration::from_secs(5), are_gone);
    let (store, directory, pid) = (life.store(), life.directory.clone(), life.pid);
    drop(life);
    let back = Restart::of(store).begin(&scene, &directory, pid);
    assert_eq!(processes::descendants(back.pid), family, "with their ids, in their places");
    lets_it_end(&scene, back);
}

#[test]
fn what_is_left_of_a_first_life_is_named_and_not_doubled() {
    let scene = Scene::new();
    let (mut life, children) = at_step(&scene, 20);
    checkpoint(&scene, life.pid);
    let grandchild = processes::children(children[1]);
    // The others have no reason to end: nobody reads what they would write.
    processes::send(life.pid, Signal::SIGKILL);
    life.wait();
    let answer = Ckpt::new(&scene, ["restart", &life.store().path().display().to_string()]).call().failed_with(125);
    let is_named = |pid: &i32| answer.stderr.contains(&format!("pid {pid} is in use by a life of the same program"));
    assert!(children.iter().chain(&grandchild).any(is_named), "{answer:?}");
    for pid in children.into_iter().chain(grandchild) {
        processes::send(pid, Signal::SIGKILL);
    }
}

#[test]
fn show_draws_the_tree() {
    let scene = Scene::new();
    let (life, children) = at_step(&scene, 5);
    checkpoint(&scene, life.pid);
    let store = life.store().path().display().to_string();
    let text = Ckpt::new(&scene, ["show", &store]).call().succeeded().stdout;
    let line =
        |pid: i32| text.lines().find(|line| line.contains(&format!(" {pid} "))).unwrap_or_else(|| panic!("{text}"));
    assert!(children.iter().all(|&child| line(child).starts_with("├─ ")), "{text}");
    let grandchild = processes::children(children[1])[0];
    assert!(line(grandchild).starts_with("│  └─ "), "{text}");
    assert!(text.contains("(exit status 5, not waited for)") && text.contains("(signal 9, not waited for)"), "{text}");
    lets_it_end(&scene, life);
}

#[test]
fn pipelines_of_bash_go_on_exactly() {
    let pipeline = Program::installed("bash").argument(source("pipeline.bash")).argument("80").writes("counted");
    for line in [3, 25, 60] {
        survives_once(&pipeline, line);
    }
}

#[test]
fn a_pool_of_python_goes_on_exactly() {
    for line in [2, 30] {
        survives_once(&Program::python("pool.py"), line);
    }
}
