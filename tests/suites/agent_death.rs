//! The agent may die at any request or write: one copy of the program goes on, and nothing is lost.
//!
//! A first run with a trace says which fault points there are and how often each is passed. Then the agent is
//! killed at them, one after the other, under one program that must not notice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ckpt_tests::control_group::ControlGroup;
use ckpt_tests::exact::{assert_same, reference};
use ckpt_tests::{
    Ckpt, Launch, Life, Program, Restart, Row, Scene, Stdout, Store, checkpoint, code_of, cuda, fault, processes, skip,
};
use nix::sys::signal::Signal;

const STEPS: usize = 100_000;

/// A program that prints a line at each of so many steps.
type Steps = fn(usize) -> Program;

fn threads8(steps: usize) -> Program {
    Program::victim("threads8").argument(steps.to_string())
}

/// Its calls are made in many threads at the same time.
fn a_thousand_threads(steps: usize) -> Program {
    Program::victim("thousand").argument(steps.to_string())
}

fn endless() -> Program {
    threads8(STEPS)
}

/// The passages of a second checkpoint (which is incremental) of a fresh program.
fn passages_of_a_checkpoint(scene: &Scene, program: &Program) -> BTreeMap<String, u64> {
    let trace = scene.path().join("trace-checkpoint");
    let life = Life::preloaded(scene, "traced", program);
    life.output.wait_for_lines(5);
    checkpoint(scene, life.pid);
    processes::end_agents(life.pid);
    let pid = life.pid.to_string();
    Ckpt::new(scene, ["checkpoint", &pid]).variable(fault::TRACE, &trace).call().succeeded();
    let passages = fault::passages(&trace);
    assert!(!passages.is_empty(), "the agent has passed no fault point");
    passages
}

/// Exactly one copy of the program is there, it is not stopped, and it prints.
#[track_caller]
fn goes_on_alone(program: &Program, threads: usize, life: &Life<'_>, story: &str) {
    let limit = Duration::from_secs(10);
    let copies = || processes::copies(&program.executable, &life.directory);
    processes::wait_until(&format!("only the program is left; {story}"), limit, || copies() == [life.pid]);
    processes::wait_until(&format!("nothing is stopped; {story}"), limit, || !processes::is_stopped(life.pid));
    life.output.wait_for_more_lines(2);
    assert!(processes::children(life.pid).is_empty(), "the program has children: {story}");
    assert_eq!(processes::threads(life.pid).len(), threads, "{story}");
}

/// Kills the agent at each of `faults` under one program; then its output must be right, and its checkpoints too.
fn outlives(steps: Steps, faults: &[String]) {
    let scene = Scene::of_at_most(Duration::from_secs(600));
    let program = steps(STEPS);
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(5);
    let threads = processes::threads(life.pid).len();
    let earliest = checkpoint(&scene, life.pid);
    let pid = life.pid.to_string();
    for name in faults {
        processes::end_agents(life.pid);
        let answer = Ckpt::new(&scene, ["checkpoint", &pid]).variable(fault::KILL, name).call();
        let story = format!("agent killed at {name}; ckpt checkpoint said {answer:?}");
        goes_on_alone(&program, threads, &life, &story);
    }
    processes::end_agents(life.pid);
    let latest = checkpoint(&scene, life.pid);
    life.output.wait_for_more_lines(2);
    life.kill();
    let printed = life.output.bytes();
    is_the_true_output(&scene, steps, &printed);
    // The latest first: a restart cuts the output back, and does not go on with one that is shorter than it was.
    for id in [latest, earliest] {
        let mut restarted = Restart::of(life.store()).id(id).begin(&scene, &life.directory, life.pid);
        restarted.output.wait_for_more_lines(5);
        restarted.kill();
        is_the_true_output(&scene, steps, &restarted.output.bytes());
    }
}

/// The output is what an undisturbed program prints, as far as it goes.
fn is_the_true_output(scene: &Scene, steps: Steps, printed: &[u8]) {
    let lines = printed.iter().filter(|&&byte| byte == b'\n').count();
    let whole = steps(lines + 20);
    let expected = reference(scene, &whole).stdout;
    let complete = printed.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    assert_same(&printed[..complete], &expected[..complete], "the program's output");
}

/// Every tenth of the faults, so that several tests share them.
fn share(faults: Vec<String>, of: usize, which: usize) -> Vec<String> {
    faults.into_iter().enumerate().filter(|(index, _)| index % of == which).map(|(_, name)| name).collect()
}

fn quick_share(which: usize) {
    let passages = passages_of_a_checkpoint(&Scene::new(), &endless());
    outlives(threads8, &share(fault::plan(&passages, 0), 2, which));
}

#[test]
fn the_program_outlives_its_agent_at_the_first_and_last_passage_of_even_fault_points() {
    quick_share(0);
}

#[test]
fn the_program_outlives_its_agent_at_the_first_and_last_passage_of_odd_fault_points() {
    quick_share(1);
}

fn thorough_share(which: usize) {
    let passages = passages_of_a_checkpoint(&Scene::new(), &endless());
    outlives(threads8, &share(fault::plan(&passages, 30), 4, which));
}

#[test]
#[ignore = "thirty passages of each fault point; scripts/test --all"]
fn the_program_outlives_its_agent_at_thirty_passages_of_each_point_first_quarter() {
    thorough_share(0);
}

#[test]
#[ignore = "thirty passages of each fault point; scripts/test --all"]
fn the_program_outlives_its_agent_at_thirty_passages_of_each_point_second_quarter() {
    thorough_share(1);
}

#[test]
#[ignore = "thirty passages of each fault point; scripts/test --all"]
fn the_program_outlives_its_agent_at_thirty_passages_of_each_point_third_quarter() {
    thorough_share(2);
}

#[test]
#[ignore = "thirty passages of each fault point; scripts/test --all"]
fn the_program_outlives_its_agent_at_thirty_passages_of_each_point_last_quarter() {
    thorough_share(3);
}

#[test]
fn a_thousand_threads_outlive_an_agent_that_asks_them_at_the_same_time() {
    let mut passages = passages_of_a_checkpoint(&Scene::new(), &a_thousand_threads(STEPS));
    passages.retain(|name, _| name.starts_with("ptrace") || name.starts_with("process_vm"));
    outlives(a_thousand_threads, &fault::plan(&passages, 3));
}

#[test]
fn the_program_outlives_an_agent_that_was_started_by_the_signal() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let passages = passages_of_a_checkpoint(&scene, &endless());
    let faults = fault::plan(&passages, 0);
    for name in faults.iter().step_by(5) {
        let program = endless().variable(fault::KILL, name);
        let life = Life::preloaded(&scene, &format!("signal-{}", name.replace('/', "-")), &program);
        life.output.wait_for_lines(3);
        processes::send(life.pid, Signal::SIGUSR1);
        processes::wait_until("an agent was there and is gone, or has sealed", Duration::from_secs(10), || {
            life.directory.join("store").exists() && processes::agents_of(life.pid).is_empty()
                || !life.store().sealed(&scene).is_empty()
        });
        goes_on_alone(&program, 9, &life, &format!("agent of a signal, killed at {name}"));
    }
}

/// A checkpoint to restart from: the store's life, its pid and its directory.
fn checkpointed_life(scene: &Scene) -> (PathBuf, i32) {
    let life = Life::until_checkpoint(scene, "life", &endless(), 10);
    (life.directory.clone(), life.pid)
}

fn passages_of_a_restart(scene: &Scene, directory: &Path, pid: i32) -> BTreeMap<String, u64> {
    let trace = scene.path().join("trace-restart");
    let restart = Restart::of(directory.join("store")).variable(fault::TRACE, &trace);
    let mut life = restart.begin(scene, directory, pid);
    life.output.wait_for_line("step 20 ");
    life.kill();
    fault::passages(&trace)
}

#[test]
fn a_restart_that_dies_leaves_a_running_program_or_none() {
    let scene = Scene::of_at_most(Duration::from_secs(300));
    let program = endless();
    let (directory, pid) = checkpointed_life(&scene);
    let passages = passages_of_a_restart(&scene, &directory, pid);
    for name in fault::plan(&passages, 0) {
        let restart = Restart::of(directory.join("store")).variable(fault::KILL, &name);
        let mut parent = restart.spawn(&scene, &directory);
        // It dies by itself at the fault point; one that is passed only later is ended here.
        let limit = Duration::from_secs(5);
        let end = std::time::Instant::now() + limit;
        while parent.try_wait().is_none() && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        processes::send(parent.child.id().cast_signed(), Signal::SIGKILL);
        parent.wait();
        let copies = || processes::copies(&program.executable, &directory);
        let settled = || copies().iter().all(|&copy| !processes::is_stopped(copy)) && copies().len() <= 1;
        processes::wait_until(&format!("nothing half-built is left; killed at {name}"), limit, settled);
        for copy in processes::of_scene(scene.path()) {
            processes::send(copy, Signal::SIGKILL);
        }
        processes::wait_until("the pid is free", limit, || processes::of_scene(scene.path()).is_empty());
    }
    let mut life = Restart::of(directory.join("store")).begin(&scene, &directory, pid);
    life.output.wait_for_line("step 30 ");
    life.kill();
    is_the_true_output(&scene, threads8, &life.output.bytes());
}

#[test]
fn a_program_that_is_killed_while_it_is_rebuilt_ends_its_restart() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let (directory, pid) = checkpointed_life(&scene);
    let task = PathBuf::from(format!("/proc/{pid}/task"));
    for round in 0..24 {
        let mut parent = Restart::of(directory.join("store")).spawn(&scene, &directory);
        // No sleep: making a thread takes microseconds.
        let threads = 1 + round % 8;
        let made = || std::fs::read_dir(&task).map_or(0, Iterator::count) >= threads;
        while parent.try_wait().is_none() && !(made() && processes::children(parent.pid).contains(&pid)) {
            std::hint::spin_loop();
        }
        if parent.try_wait().is_none() {
            processes::send(pid, Signal::SIGKILL);
        }
        let limit = Duration::from_secs(10);
        let what = format!("the restart ends after its program with {threads} threads");
        processes::wait_until(&what, limit, || parent.try_wait().is_some());
    }
}

#[test]
fn an_agent_that_is_killed_while_idle_is_replaced() {
    let scene = Scene::new();
    let mut life = Life::start(&scene, "life", &endless(), &Launch::Run(Vec::new()), Stdout::File);
    life.output.wait_for_lines(5);
    let first = checkpoint(&scene, life.pid);
    processes::end_agents(life.pid);
    let second = checkpoint(&scene, life.pid);
    assert!(second > first);
    processes::send(life.pid, Signal::SIGUSR1);
    life.store().wait_for_sealed(&scene, 3);
    life.kill();
}

#[test]
fn a_userfaultfd_that_a_dying_agent_leaves_behind_is_closed_by_the_next_checkpoint_of_either_kind() {
    let scene = Scene::new();
    for kind in [["checkpoint"].as_slice(), &["checkpoint", "--data"]] {
        let program = Program::victim("blocked_calls").argument("3000").argument("own");
        let mut life = Life::preloaded(&scene, &kind.concat(), &program);
        life.output.wait_for_lines(2);
        // Threads open files of their own, each once, when they begin.
        let of_threads = ["described", "flocked", "ranged"].map(|name| life.directory.join(name));
        processes::wait_until("all threads wait", Duration::from_secs(10), || {
            let open = processes::open_files(life.pid);
            of_threads.iter().all(|file| open.iter().filter(|open| *open == file).count() == 2)
        });
        let before = processes::open_files(life.pid);
        let pid = life.pid.to_string();
        let take = || Ckpt::new(&scene, kind.iter().copied().chain([pid.as_str()]));
        let answer = take().variable(fault::KILL, "userfaultfd.made:1").call();
        assert_ne!(answer.code, 0, "{answer:?}");
        let left = PathBuf::from("anon_inode:[userfaultfd]");
        assert!(
            processes::open_files(life.pid).contains(&left),
            "{kind:?}: the program holds one, or this test tests nothing"
        );
        take().call().succeeded();
        assert_eq!(processes::open_files(life.pid), before, "{kind:?}");
        checkpoint(&scene, life.pid);
        life.output.wait_for_more_lines(1);
        life.kill();
    }
}

/// A program with a raw socket, which every checkpoint refuses.
fn unsupported() -> Program {
    Program::victim("refused").argument("3000").argument("packet_ring")
}

/// The attempts of a store that failed.
fn failed(scene: &Scene, life: &Life<'_>) -> Vec<Row> {
    life.store().rows(scene).into_iter().filter(|row| row.state == "failed").collect()
}

#[test]
fn an_agent_killed_while_it_records_a_refusal_leaves_a_program_that_is_refused_again() {
    let scene = Scene::new();
    let program = unsupported();
    let trace = scene.path().join("trace");
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(3);
    let pid = life.pid.to_string();
    Ckpt::new(&scene, ["checkpoint", &pid]).variable(fault::TRACE, &trace).call().failed_with(4);
    let passages = fault::passages(&trace);
    let of_the_record: BTreeMap<String, u64> =
        passages.into_iter().filter(|(name, _)| name.starts_with("store.")).collect();
    assert!(of_the_record.keys().any(|name| name.starts_with("store.failed.")), "{of_the_record:?}");
    let faults = fault::plan(&of_the_record, 0);
    for name in &faults {
        processes::end_agents(life.pid);
        let answer = Ckpt::new(&scene, ["checkpoint", &pid]).variable(fault::KILL, name).call();
        assert_ne!(answer.code, 0, "killed at {name}: {answer:?}");
        let limit = Duration::from_secs(10);
        let alone = || processes::copies(&program.executable, &life.directory) == [life.pid];
        processes::wait_until(&format!("only the program is left; killed at {name}"), limit, alone);
        processes::wait_until(&format!("nothing is stopped; killed at {name}"), limit, || {
            !processes::is_stopped(life.pid)
        });
        life.output.wait_for_more_lines(2);
    }
    processes::end_agents(life.pid);
    Ckpt::new(&scene, ["checkpoint", &pid]).call().failed_with(4);
    let rows = life.store().rows(&scene);
    assert!(rows.iter().all(|row| row.state == "failed"), "{rows:?}");
    let reason = &rows.iter().max_by_key(|row| row.id).expect("there are rows").reason;
    assert!(reason.contains("its packets are in a ring"), "{reason}");
    life.kill();
}

/// Takes a checkpoint of a program with much memory and kills the twin while its pages are written.
fn kill_the_twin(scene: &Scene, trace: &Path) {
    let program = Program::victim("idle").argument("3000").argument("random");
    let mut life = Life::preloaded(scene, "twin-killed", &program);
    life.output.wait_for_lines(3);
    let pid = life.pid.to_string();
    Ckpt::new(scene, ["checkpoint", "--no-wait", &pid]).variable(fault::TRACE, trace).call().succeeded();
    let packs = life.directory.join("store/packs");
    let pages_are_written = || {
        let entries = std::fs::read_dir(&packs).into_iter().flatten().filter_map(Result::ok);
        entries.filter_map(|entry| entry.metadata().ok()).any(|found| found.len() > 1 << 20)
    };
    let limit = Duration::from_secs(10);
    processes::wait_until("pages are being written", limit, pages_are_written);
    processes::send(its_only_twin(&program, &life), Signal::SIGKILL);
    processes::wait_until("the attempt has failed", limit, || !failed(scene, &life).is_empty());
    assert_eq!(life.store().sealed(scene).len(), 0);
    assert!(!pages_are_written(), "the pages of a failed attempt are removed");
    life.output.wait_for_more_lines(2);
    checkpoint(scene, life.pid);
    life.kill();
}

#[test]
fn a_twin_that_is_killed_while_it_is_read_costs_the_attempt_alone() {
    let scene = Scene::new();
    kill_the_twin(&scene, &scene.path().join("trace"));
}

#[test]
fn where_memory_runs_out_while_it_is_there_twice_the_attempt_ends_and_not_the_program() {
    let Some(group) = ControlGroup::with_memory(336 << 20) else {
        return skip("only root makes control groups, and only where they are mounted");
    };
    let scene = Scene::new();
    // 256 MiB, and each step writes to all of it once there is that file.
    let program = Program::victim("idle").argument("3000").argument("rewritten-later");
    let mut life = Life::preloaded(&scene, "life", &group.around(&program));
    life.output.wait_for_lines(3);
    Ckpt::new(&scene, ["checkpoint", "--no-wait", &life.pid.to_string()]).call().succeeded();
    // Its twin is there until it is read; and nobody who reads it keeps its memory from being free.
    let agent = its_only_agent(&life);
    stop(agent);
    let limit = Duration::from_secs(10);
    let copies = || processes::copies(&program.executable, &life.directory);
    assert_eq!(copies().len(), 2, "there is a twin");
    std::fs::write(life.directory.join("later"), "").expect("a file in the scene");
    processes::wait_until("the twin has ended", limit, || copies() == [life.pid]);
    life.output.wait_for_more_lines(2);
    processes::send(agent, Signal::SIGCONT);
    processes::wait_until("the attempt has failed", limit, || !failed(&scene, &life).is_empty());
    group.allow(4 << 30);
    checkpoint(&scene, life.pid);
    life.kill();
}

#[test]
fn where_memory_runs_out_during_a_checkpoint_its_agent_and_its_twin_come_first() {
    let scene = Scene::new();
    let program = Program::victim("idle").argument("3000").argument("random");
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(3);
    let score = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("it lives");
    let before = score(life.pid);
    Ckpt::new(&scene, ["checkpoint", "--no-wait", &life.pid.to_string()]).call().succeeded();
    let agent = its_only_agent(&life);
    stop(agent);
    assert_eq!(score(agent), "1000\n");
    assert_eq!(score(its_only_twin(&program, &life)), "1000\n");
    assert_eq!(score(life.pid), before);
    processes::send(agent, Signal::SIGCONT);
    life.store().wait_for_sealed(&scene, 1);
    processes::wait_until("it is one among others", Duration::from_secs(10), || score(agent) == before);
    life.kill();
}

fn its_only_twin(program: &Program, life: &Life<'_>) -> i32 {
    let mut twins = processes::copies(&program.executable, &life.directory);
    twins.retain(|&pid| pid != life.pid);
    let [twin] = twins[..] else { panic!("one twin is read, not {twins:?}") };
    twin
}

fn its_only_agent(life: &Life<'_>) -> i32 {
    let agents = processes::agents_of(life.pid);
    let [agent] = agents[..] else { panic!("one agent, not {agents:?}") };
    agent
}

fn stop(pid: i32) {
    processes::send(pid, Signal::SIGSTOP);
    processes::wait_until("it is stopped", Duration::from_secs(10), || processes::is_stopped(pid));
}

/// What drops the older checkpoints of a program: the points that its agent passes only then. The first two are passed when
/// pages are moved, which is once: the program's other memory lies in the pack of its first checkpoint.
const DROPPING: [&str; 8] = [
    "store.row.create:2",
    "store.pack.create:2",
    "store.retired.rename:1",
    "store.failed.remove:1",
    "store.condemned.create:1",
    "store.pack.remove:1",
    "store.condemned.remove:1",
    "store.retired.remove:1",
];

#[test]
fn the_program_outlives_its_agent_while_it_drops_older_checkpoints() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let program = Program::victim("rewrites").argument("2000").variable("CKPT_KEEP", "1");
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(3);
    checkpoint(&scene, life.pid);
    let pid = life.pid.to_string();
    let dir = life.store().path().to_owned();
    for name in DROPPING {
        for before in ["store.manifest.write:1", name] {
            // First an attempt that fails, so that there is a row to be removed.
            processes::end_agents(life.pid);
            life.output.wait_for_more_lines(1);
            Ckpt::new(&scene, ["checkpoint", &pid]).variable(fault::KILL, before).call();
            let died = || processes::agents_of(life.pid).is_empty();
            processes::wait_until(&format!("the agent dies at {before}"), Duration::from_secs(10), died);
        }
        life.output.wait_for_more_lines(1);
        assert!(!processes::is_stopped(life.pid) && processes::children(life.pid).is_empty(), "{name}");
        Ckpt::new(&scene, [Path::new("verify"), &dir]).call().succeeded();
    }
    let last = checkpoint(&scene, life.pid);
    life.kill();
    Ckpt::new(&scene, [Path::new("prune"), &dir, Path::new("--keep"), Path::new("1")]).call().succeeded();
    assert_eq!(life.store().rows(&scene).iter().map(|row| row.id).collect::<Vec<_>>(), [last]);
    let left = life.store().bytes();
    assert!(left < 2 * (24 << 20), "{left} bytes: what killed agents had left is given back");
    let mut second = Restart::of(&dir).begin(&scene, &life.directory, life.pid);
    second.output.wait_for_more_lines(3);
    second.kill();
}

/// Drops checkpoints of a store while an attempt of another job is writing into it, and again when that has ended.
fn prune_beside_an_attempt(scene: &Scene, trace: &Path) {
    let shared = scene.path().join("shared");
    let prune = || {
        let arguments = [Path::new("prune"), &shared, Path::new("--keep"), Path::new("1"), Path::new("--json")];
        Ckpt::new(scene, arguments).variable(fault::TRACE, trace).call().succeeded().stdout
    };
    let mut old = Life::preloaded(scene, "old", &Program::victim("rewrites").variable("CKPT_DIR", &shared));
    let pid = old.pid.to_string();
    for fails in ["store.manifest.write:1", "never", "never"] {
        processes::end_agents(old.pid);
        old.output.wait_for_more_lines(1);
        Ckpt::new(scene, ["checkpoint", &pid]).variable(fault::KILL, fails).call();
    }
    old.kill();
    let program = Program::victim("idle").argument("3000").argument("random").variable("CKPT_DIR", &shared);
    let mut beside = Life::preloaded(scene, "beside", &program);
    beside.output.wait_for_lines(3);
    Ckpt::new(scene, ["checkpoint", "--no-wait", &beside.pid.to_string()]).call().succeeded();
    let agents = processes::agents_of(beside.pid);
    agents.iter().for_each(|&agent| processes::send(agent, Signal::SIGSTOP));
    let writing = Store::at(&shared).rows(scene).iter().any(|row| row.state == "writing");
    let said = prune();
    agents.iter().for_each(|&agent| processes::send(agent, Signal::SIGCONT));
    assert!(writing && !said.contains("\"waiting_bytes\": 0"), "the other attempt has no part in it: {said}");
    Store::at(&shared).wait_for_sealed(scene, 2);
    beside.kill();
    prune();
    Ckpt::new(scene, [Path::new("verify"), &shared]).call().succeeded();
}

#[test]
fn every_fault_point_is_reached_by_some_scenario() {
    // Compiled before the scene's time begins.
    let with_devices = cuda::program("counted").argument("200").argument("5000");
    let with_devices = with_devices.argument(cuda::kernels_without_variables()).argument("plain");
    let scene = Scene::of_at_most(Duration::from_secs(180));
    let listed = Ckpt::new(&scene, ["fault-points"]).call().succeeded().stdout;
    let listed: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    assert!(!listed.is_empty());
    let trace = scene.path().join("trace");
    let reached = || -> BTreeSet<String> { fault::passages(&trace).into_keys().collect() };
    let traced = |program: Program| program.variable(fault::TRACE, &trace);
    let checkpoint_traced = |pid: i32| {
        let pid = pid.to_string();
        Ckpt::new(&scene, ["checkpoint", &pid]).variable(fault::TRACE, &trace).call()
    };

    // Its file is old enough by the time that it is wanted.
    let large = Program::victim("mapped_file").argument(STEPS.to_string()).input("data", vec![5; 80 << 20]);
    let mut large = Life::preloaded(&scene, "large", &large);
    // Each victim holds another kind of state; both triggers, a second and a last checkpoint, and a restart.
    for name in ["threads8", "files", "pipes_epoll", "mappings", "signals", "blocked_calls"] {
        let mut life = Life::preloaded(&scene, name, &traced(Program::victim(name)));
        life.output.wait_for_lines(5);
        processes::send(life.pid, Signal::SIGUSR1);
        life.store().wait_for_sealed(&scene, 1);
        let pid = life.pid.to_string();
        let last = Ckpt::new(&scene, ["checkpoint", "--kill", &pid]).variable(fault::TRACE, &trace);
        last.call().succeeded();
        life.wait();
        let restart = Restart::of(life.store()).variable(fault::TRACE, &trace);
        let mut second = restart.begin(&scene, &life.directory, life.pid);
        assert_eq!(code_of(second.wait()), 7, "{name}: {}", second.errors());
    }
    let mut life = Life::preloaded(&scene, "devices", &traced(with_devices));
    life.output.wait_for_lines(3);
    checkpoint_traced(life.pid).succeeded();
    life.kill();
    // A refusal, and an attempt that has pages to remove when it fails.
    let mut refused = Life::preloaded(&scene, "refused", &traced(unsupported()));
    refused.output.wait_for_lines(3);
    checkpoint_traced(refused.pid).failed_with(4);
    refused.kill();
    let mut filtered = Life::preloaded(&scene, "filtered", &Program::victim("filters").argument(STEPS.to_string()));
    filtered.output.wait_for_lines(3);
    checkpoint_traced(filtered.pid).succeeded();
    filtered.kill();
    kill_the_twin(&scene, &trace);
    prune_beside_an_attempt(&scene, &trace);
    // What a killed agent has left is removed by the next, which builds on checkpoints that it has not sealed.
    let mut life = Life::preloaded(&scene, "leftovers", &endless());
    life.output.wait_for_lines(3);
    checkpoint(&scene, life.pid);
    processes::end_agents(life.pid);
    let pid = life.pid.to_string();
    let killed = Ckpt::new(&scene, ["checkpoint", &pid]).variable(fault::KILL, "store.manifest.write:1").call();
    assert_ne!(killed.code, 0, "{killed:?}");
    processes::end_agents(life.pid);
    checkpoint_traced(life.pid).succeeded();
    life.kill();
    // A signal that is about to be delivered when its thread is seized.
    let mut storm = Life::preloaded(&scene, "storm", &Program::victim("signal_storm").argument("100000"));
    storm.output.wait_for_lines(3);
    for _ in 0..200 {
        checkpoint_traced(storm.pid).succeeded();
        if reached().contains("ptrace.cont") {
            break;
        }
    }
    storm.output.wait_for_more_lines(3);
    storm.kill();

    // Behind the seal.
    checkpoint_traced(large.pid).succeeded();
    processes::wait_until("files are stored", Duration::from_secs(30), || reached().contains("mapped_file.stored"));
    large.kill();

    let unreached: Vec<_> = listed.difference(&reached()).cloned().collect();
    let unlisted: Vec<_> = reached().difference(&listed).cloned().collect();
    assert!(unreached.is_empty(), "fault points that no scenario reaches: {unreached:?}");
    assert!(unlisted.is_empty(), "fault points that ckpt fault-points does not list: {unlisted:?}");
}
