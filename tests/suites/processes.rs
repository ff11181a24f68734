//! Jobs of several processes: stopped together, and together again after a restart.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use ckpt_tests::exact::survives_once;
use ckpt_tests::program::source;
use ckpt_tests::{Ckpt, Launch, Life, Program, Restart, Scene, Stdout, checkpoint, code_of, fault, processes, product};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, mkfifo};

/// In which what is awaited happens at once.
const A_MOMENT: Duration = Duration::from_secs(5);

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
fn what_is_left_of_a_first_life_is_named_and_ended_when_that_is_wanted() {
    let scene = Scene::new();
    let (mut life, children) = at_step(&scene, 20);
    checkpoint(&scene, life.pid);
    // The doubler finds the end of its pipe; the others have no reason to end.
    let left: Vec<i32> = children[1..].iter().copied().chain(processes::children(children[1])).collect();
    processes::send(life.pid, Signal::SIGKILL);
    life.wait();
    let (store, directory, pid) = (life.store(), life.directory.clone(), life.pid);
    let answer = Ckpt::new(&scene, ["restart", &store.path().display().to_string()]).call().failed_with(125);
    let is_named = |pid: &i32| answer.stderr.contains(&format!("process {pid} (family)"));
    assert!(left.len() == 2 && left.iter().all(is_named), "{left:?} {answer:?}");
    assert!(left.iter().all(|&pid| processes::is_alive(pid)), "a refusal ends nobody");
    let back = Restart::of(store).option("--end-leftovers").begin(&scene, &directory, pid);
    lets_it_end(&scene, back);
}

#[test]
fn a_life_whose_first_process_runs_is_not_left_over() {
    let scene = Scene::new();
    let (life, _) = at_step(&scene, 10);
    checkpoint(&scene, life.pid);
    let store = life.store().path().display().to_string();
    let answer = Ckpt::new(&scene, ["restart", "--end-leftovers", &store]).call().failed_with(125);
    let named = format!("pid {} is in use by a life of the same program", life.pid);
    assert!(answer.stderr.contains(&named), "{answer:?}");
    lets_it_end(&scene, life);
}

/// KiB that processes take together, each page counted once.
fn taken_together(pids: impl IntoIterator<Item = i32>) -> u64 {
    let of_one = |pid: i32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("it is ours");
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).expect("the kernel has counted");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    };
    pids.into_iter().map(of_one).sum()
}

#[test]
fn what_forks_share_copy_on_write_is_shared_after_a_restart() {
    let scene = Scene::new();
    let over = scene.path().join("over");
    let program = Program::victim("common_memory").argument("40").waiting(20, &over);
    let life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("step 20:");
    let all = |pid| std::iter::once(pid).chain(processes::descendants(pid));
    let before = taken_together(all(life.pid));
    checkpoint(&scene, life.pid);
    let (store, directory, pid) = (life.store(), life.directory.clone(), life.pid);
    drop(life);
    let back = Restart::of(store).begin(&scene, &directory, pid);
    let after = taken_together(all(back.pid));
    assert!(after <= before * 5 / 4, "they took {before} KiB, and take {after} KiB now");
    lets_it_end(&scene, back);
}

/// A program that becomes a daemon, waiting at step `until` for `over`; gives the daemon's pid, too.
fn daemon<'scene>(scene: &'scene Scene, until: usize, variables: &[(&str, &str)]) -> (Life<'scene>, i32) {
    let over = scene.path().join("over");
    let mut program = Program::victim("daemons").argument("60").argument("leaves").waiting(until, &over);
    for (name, value) in variables {
        program = program.variable(name, value);
    }
    let mut life = Life::preloaded(scene, "life", &program);
    assert_eq!(code_of(life.wait()), 0, "the process that it begins with ends at once");
    life.output.wait_for_line("step 5");
    let daemons = processes::orphans_in(&life.directory);
    let is_first = |pid: &i32| processes::children(*pid).len() == 1 && !is_session_leader(*pid);
    let first = daemons.iter().copied().filter(is_first).min().expect("it runs");
    (life, first)
}

fn is_session_leader(pid: i32) -> bool {
    nix::unistd::getsid(Some(nix::unistd::Pid::from_raw(pid))).is_ok_and(|session| session.as_raw() == pid)
}

#[test]
fn a_daemon_is_checkpointed_and_restarted_when_its_first_process_has_ended() {
    let scene = Scene::new();
    let (mut life, daemon) = daemon(&scene, 20, &[]);
    let store = life.store();
    processes::send(daemon, Signal::SIGUSR1);
    store.wait_for_sealed(&scene, 1);
    // Whichever of them is named.
    let all = processes::orphans_in(&life.directory);
    assert_eq!(all.len(), 7, "nobody has a parent in this test");
    checkpoint(&scene, all[all.len() - 1]);
    let rows = store.sealed(&scene);
    assert!(rows.iter().all(|row| row.processes == 7) && rows[0].job == rows[1].job, "{rows:?}");
    let (directory, family) = (life.directory.clone(), everybody(&life.directory));
    life.kill();
    assert!(everybody(&directory).is_empty());
    let mut back = Restart::of(store).begin(&scene, &directory, daemon);
    assert_eq!(everybody(&directory), family, "with their ids");
    std::fs::write(scene.path().join("over"), "").expect("a file in the scene");
    assert_eq!(code_of(back.wait()), 7, "{}\n{}", back.output.text(), back.errors());
}

/// The processes that work in `directory`, ours apart.
fn everybody(directory: &std::path::Path) -> Vec<i32> {
    let own = processes::descendants(std::process::id().cast_signed());
    let works_there = |pid: &i32| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == directory);
    let of_ours = own.into_iter().filter(|pid| works_there(pid) && processes::is_alive(*pid));
    let mut all: Vec<i32> = of_ours.chain(processes::orphans_in(directory)).collect();
    all.sort_unstable();
    all
}

#[test]
fn automatic_checkpoints_of_a_daemon_go_on_when_its_first_process_has_ended() {
    let scene = Scene::new();
    let (mut life, _) = daemon(&scene, 10, &[("CKPT_INTERVAL", "1s")]);
    let store = life.store();
    let row = store.wait_for_sealed(&scene, 2);
    assert_eq!(row.processes, 7);
    life.kill();
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
fn programs_that_are_executed_know_the_agent_of_their_job() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &Program::victim("who_serves").argument("100000"));
    for _ in 0..2 {
        processes::end_agents(life.pid);
        checkpoint(&scene, life.pid);
        let agents = processes::agents_of(life.pid);
        let line = format!("agent {:010}", agents.first().expect("it serves the job"));
        life.output.wait_for_line(&line);
    }
    life.kill();
}

/// A life whose dynamic linker comes to libckpt.so when somebody has written to the pipe, which is no library.
fn before_libckpt_is_loaded(scene: &Scene) -> (Life<'_>, PathBuf) {
    let pipe = scene.path().join("pipe");
    mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe in the scene");
    let libraries = format!("{}:{}", pipe.display(), product::library().display());
    let program = Program::victim("churn").argument("100").variable("LD_PRELOAD", libraries);
    let life = Life::start(scene, "life", &program, &Launch::Plain, Stdout::File);
    processes::wait_until("its linker waits", A_MOMENT, || processes::waits_in(life.pid, libc::SYS_openat));
    (life, pipe)
}

/// Has `ckpt checkpoint` called for process `pid`, which it cannot be taken of yet. `meanwhile` is done as soon as it waits, is given
/// its pid, and lets the program go on.
fn asked_too_early(scene: &Scene, pid: i32, meanwhile: impl FnOnce(i32)) {
    let is_ckpt = |pid: &i32| processes::executable(*pid).as_ref() == Some(&product::ckpt());
    let ours = || processes::children(std::process::id().cast_signed()).into_iter().find(is_ckpt);
    let sleeps = |pid: i32| processes::waits_in(pid, libc::SYS_clock_nanosleep);
    std::thread::scope(|thread| {
        let asked = thread.spawn(|| Ckpt::new(scene, ["checkpoint", &pid.to_string()]).call());
        processes::wait_until("ckpt waits for it, or has given up", A_MOMENT, || {
            asked.is_finished() || ours().is_some_and(sleeps)
        });
        if let Some(ckpt) = ours() {
            meanwhile(ckpt);
        }
        asked.join().expect("the call does not panic").succeeded();
    });
}

#[test]
fn a_program_that_libckpt_is_still_loaded_into_is_waited_for() {
    let scene = Scene::new();
    let (life, pipe) = before_libckpt_is_loaded(&scene);
    asked_too_early(&scene, life.pid, |_| drop(File::create(&pipe).expect("it is read")));
    life.output.wait_for_lines(3);
}

#[test]
fn a_program_that_libckpt_is_mapped_in_and_has_not_run_is_waited_for() {
    let scene = Scene::new();
    let (life, pipe) = before_libckpt_is_loaded(&scene);
    let program = Pid::from_raw(life.pid);
    ptrace::seize(program, Options::PTRACE_O_TRACESYSGOOD).expect("it is our child");
    ptrace::interrupt(program).expect("we trace it");
    waitpid(program, None).expect("it stops");
    asked_too_early(&scene, life.pid, |ckpt| {
        let both_ends = File::options().read(true).write(true).open(&pipe);
        let mut both_ends = both_ends.expect("a pipe that is open both ways waits for nobody");
        both_ends.write_all(&[0; 4096]).expect("it has room");
        let mut looked_at_it = false;
        loop {
            ptrace::syscall(program, None).expect("it is stopped");
            waitpid(program, None).expect("it stops at its next call");
            let maps = std::fs::read_to_string(format!("/proc/{}/maps", life.pid)).expect("it lives");
            if maps.contains("libc.so.6") {
                break;
            }
            // Two looks: the first may have begun before.
            let waits = processes::waits_of(ckpt) + 2;
            processes::wait_until("ckpt looks, or has given up", A_MOMENT, || {
                processes::waits_of(ckpt) >= waits || !processes::is_alive(ckpt)
            });
            assert!(processes::is_alive(ckpt), "it has given up at\n{maps}");
            looked_at_it |= maps.lines().any(|line| line.contains(" rw-p ") && line.ends_with("libckpt.so"));
        }
        assert!(looked_at_it);
        ptrace::detach(program, None).expect("it is stopped");
    });
    life.output.wait_for_lines(3);
}

#[test]
fn a_pool_of_python_goes_on_exactly() {
    for line in [2, 30] {
        survives_once(&Program::python("pool.py"), line);
    }
}

#[test]
fn connections_to_somebody_outside_are_reset_after_a_restart_and_what_had_arrived_is_there() {
    let scene = Scene::new();
    let path = scene.path().join("outside");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port of this machine");
    let unix = UnixListener::bind(&path).expect("a socket in the scene");
    let port = tcp.local_addr().expect("it is bound").port();
    let over = scene.path().join("over");
    let program = Program::python("strangers.py").argument("60").argument(port.to_string()).argument(&path);
    let mut life = Life::preloaded(&scene, "life", &program.waiting(40, &over));
    let (mut one, _) = tcp.accept().expect("a connection");
    let (mut other, _) = unix.accept().expect("a connection");
    one.write_all(b"unread").and_then(|()| other.write_all(b"unread as well")).expect("somebody is there");
    life.output.wait_for_line("step 5");
    checkpoint(&scene, life.pid);
    life.output.wait_for_line("step 20");
    life.kill();
    std::fs::write(over, "").expect("a file in the scene");
    let (store, directory, pid) = (life.store(), life.directory.clone(), life.pid);
    drop(life);
    let mut back = Restart::of(store).begin(&scene, &directory, pid);
    assert_eq!(code_of(back.wait()), 7, "{}\n{}", back.output.text(), back.errors());
    let text = back.output.text();
    let told =
        ["tcp: unread, then reset", "tcp: nobody hears", "unix: unread as well, then reset", "unix: nobody hears"];
    assert!(told.iter().all(|line| text.lines().any(|found| found == *line)), "{text}");
    assert!(back.errors().contains("outside the job: it is told that this was reset"), "{}", back.errors());
}
