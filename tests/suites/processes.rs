//! Jobs of several processes: stopped together, and together again after a restart.

use std::collections::BTreeSet;
use std::time::Duration;

use ckpt_tests::exact::survives_once;
use ckpt_tests::program::source;
use ckpt_tests::{Ckpt, Life, Program, Restart, Scene, checkpoint, code_of, fault, processes};
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
    processes::wait_until("all have ended", Duration::from_secs(5), are_gone);
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

/// Kills the agent at each of `faults`; no process may be lost, doubled or left stopped, and what they do together must be right.
fn outlive(faults: &[String]) {
    let scene = Scene::of_at_most(Duration::from_secs(300));
    let over = scene.path().join("over");
    let program = Program::victim("family").argument("2000").waiting(1900, &over);
    let life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("step 5:");
    let family = processes::descendants(life.pid);
    let all = family.iter().copied().chain([life.pid]);
    let before: BTreeSet<i32> = all.filter(|&pid| processes::is_alive(pid)).collect();
    checkpoint(&scene, life.pid);
    for name in faults {
        processes::end_agents(life.pid);
        let answer = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).variable(fault::KILL, name).call();
        let story = format!("agent killed at {name}; ckpt checkpoint said {answer:?}");
        let limit = Duration::from_secs(10);
        let copies = || processes::copies(&program.executable, &life.directory).into_iter().collect::<BTreeSet<i32>>();
        processes::wait_until(&format!("the same processes are left; {story}"), limit, || copies() == before);
        let goes = || before.iter().all(|&pid| !processes::is_stopped(pid));
        processes::wait_until(&format!("nothing is stopped; {story}"), limit, goes);
        life.output.wait_for_more_lines(2);
        assert_eq!(processes::descendants(life.pid), family, "{story}");
    }
    processes::end_agents(life.pid);
    checkpoint(&scene, life.pid);
    lets_it_end(&scene, life);
}

/// Where the agent can die in a second checkpoint: the first and last passage of each point, and so many in between.
fn faults(in_between: u64) -> Vec<String> {
    let scene = Scene::new();
    let trace = scene.path().join("trace");
    let (life, _) = at_step(&scene, 5);
    checkpoint(&scene, life.pid);
    processes::end_agents(life.pid);
    Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).variable(fault::TRACE, &trace).call().succeeded();
    lets_it_end(&scene, life);
    fault::plan(&fault::passages(&trace), in_between)
}

#[test]
fn all_processes_outlive_their_agent() {
    let all = faults(1);
    let some: Vec<String> = all.iter().step_by(all.len().div_ceil(30)).cloned().collect();
    outlive(&some);
}

#[test]
#[ignore = "ten passages of each fault point; scripts/test --all"]
fn all_processes_outlive_their_agent_at_ten_passages_of_each_point() {
    for some in faults(10).chunks(40) {
        outlive(some);
    }
}

#[test]
fn pipelines_of_bash_go_on_exactly() {
    let pipeline = Program::installed("bash").argument(source("pipeline.bash")).argument("80").writes("counted");
    for line in [3, 25, 60] {
        survives_once(&pipeline, line);
    }
}

#[test]
fn jobs_of_bash_whose_first_process_has_ended_go_on_exactly() {
    let jobs = Program::installed("bash").argument(source("job_control.bash")).argument("60").writes("left");
    for line in [2, 30] {
        survives_once(&jobs, line);
    }
}

#[test]
fn a_pool_of_python_goes_on_exactly() {
    for line in [2, 30] {
        survives_once(&Program::python("pool.py"), line);
    }
}
