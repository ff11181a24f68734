//! `ckpt run` and `ckpt restart` as parents: signals, terminals, exit status, and their own death.

use std::path::PathBuf;
use std::time::Duration;

use ckpt_tests::exact::{assert_same, reference};
use ckpt_tests::job_control;
use ckpt_tests::{Launch, Life, Program, Restart, Scene, Stdout, checkpoint, code_of, processes};
use nix::sys::signal::Signal;

fn run() -> Launch {
    Launch::Run(Vec::new())
}

fn exits(kind: &str) -> Program {
    Program::victim("exits").argument("300").argument(kind)
}

/// A restarted life of `program`, running.
fn restarted<'scene>(scene: &'scene Scene, program: &Program) -> Life<'scene> {
    let life = Life::until_checkpoint(scene, "life", program, 5);
    let second = Restart::of(life.store()).begin(scene, &life.directory, life.pid);
    second.output.wait_for_more_lines(3);
    second
}

const FORWARDED: [Signal; 5] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR2, Signal::SIGWINCH];

#[test]
fn run_forwards_signals() {
    for signal in FORWARDED {
        let scene = Scene::new();
        let mut life = Life::start(&scene, "life", &exits("catch"), &run(), Stdout::File);
        life.output.wait_for_lines(5);
        processes::send(life.child.id().cast_signed(), signal);
        assert_eq!(code_of(life.wait()), signal as i32, "{signal} is forwarded and its handler's status returned");
        assert!(life.output.text().contains(&format!("caught {}", signal as i32)));
    }
}

#[test]
fn restart_forwards_signals() {
    for signal in FORWARDED {
        let scene = Scene::new();
        let mut life = restarted(&scene, &exits("catch"));
        processes::send(life.child.id().cast_signed(), signal);
        assert_eq!(code_of(life.wait()), signal as i32, "{}", life.errors());
        assert!(life.output.text().contains(&format!("caught {}", signal as i32)));
    }
}

#[test]
fn restart_passes_the_exit_status_through() {
    let scene = Scene::new();
    for (kind, code) in [("code:0", 0), ("code:42", 42), ("signal:15", 143), ("signal:6", 134)] {
        let program = Program::victim("exits").argument("40").argument(kind);
        let life = Life::until_checkpoint(&scene, kind, &program, 5);
        let mut second = Restart::of(life.store()).begin(&scene, &life.directory, life.pid);
        assert_eq!(code_of(second.wait()), code, "{kind}: {}", second.errors());
    }
}

#[test]
fn a_program_that_ends_while_its_threads_are_let_go_gives_its_exit_status() {
    const EXIT_AT_ONCE: i32 = 9;
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let life = Life::until_checkpoint(&scene, "life", &Program::victim("ends_at_once").argument("100000"), 3);
    let (store, directory) = (life.store(), life.directory.clone());
    drop(life);
    std::fs::write(directory.join("go"), "").expect("a file in the scene");
    for round in 0..30 {
        let mut restart = Restart::of(&store).spawn(&scene, &directory);
        assert_eq!(code_of(restart.wait()), EXIT_AT_ONCE, "restart {round}: {}", restart.errors());
    }
}

#[test]
fn a_killed_program_is_128_plus_9_for_both_parents() {
    let scene = Scene::new();
    let mut life = Life::start(&scene, "run", &exits(""), &run(), Stdout::File);
    life.output.wait_for_lines(5);
    processes::send(life.pid, Signal::SIGKILL);
    assert_eq!(life.wait().code(), Some(137));
    let scene = Scene::new();
    let mut life = restarted(&scene, &exits(""));
    processes::send(life.pid, Signal::SIGKILL);
    assert_eq!(life.wait().code(), Some(137));
}

/// The parent of `life` is killed; the program must run on, take a checkpoint, and be restarted from it.
fn runs_on_without_its_parent(scene: &Scene, mut life: Life<'_>, program: &Program) {
    processes::send(life.child.id().cast_signed(), Signal::SIGKILL);
    life.wait();
    life.output.wait_for_more_lines(5);
    assert!(processes::is_alive(life.pid));
    let id = checkpoint(scene, life.pid);
    std::fs::write(sign(scene), "").expect("a file in the scene");
    life.output.wait_for_more_lines(3);
    processes::send(life.pid, Signal::SIGKILL);
    processes::wait_until("it is gone", Duration::from_secs(5), || !processes::is_alive(life.pid));
    let store = life.directory.join("store");
    let pid = processes::pid_in_its_namespace(life.pid).unwrap_or(life.pid);
    let mut second = Restart::of(store).id(id).begin(scene, &life.directory, pid);
    let expected = reference(scene, program);
    assert_eq!(code_of(second.wait()), expected.code, "{}", second.errors());
    assert_same(&second.output.bytes(), &expected.stdout, "the output");
}

#[test]
fn a_restart_waits_for_the_pid_of_a_program_that_is_still_dying() {
    let scene = Scene::new();
    let mut first = Life::preloaded(&scene, "life", &Program::python("dying.py").argument("100000"));
    first.output.wait_for_lines(2);
    checkpoint(&scene, first.pid);
    processes::send(first.pid, Signal::SIGKILL);
    let mut second = Restart::of(first.store()).spawn(&scene, &first.directory);
    first.wait();
    second.pid = second.find_program(|pid| pid == first.pid);
    second.output.wait_for_more_lines(2);
    assert!(!second.errors().contains("pid namespace"), "{}", second.errors());
    second.kill();
}

/// What a program waits for that is not to end before its checkpoint, however late that comes.
fn sign(scene: &Scene) -> PathBuf {
    scene.path().join("taken")
}

#[test]
fn a_program_whose_ckpt_run_is_killed_runs_on_and_is_checkpointed_again() {
    let scene = Scene::new();
    let program = Program::victim("threads8").argument("120");
    let life = Life::start(&scene, "life", &program.clone().waiting(100, &sign(&scene)), &run(), Stdout::File);
    life.output.wait_for_lines(5);
    runs_on_without_its_parent(&scene, life, &program);
}

#[test]
fn a_program_whose_ckpt_restart_is_killed_runs_on_and_is_checkpointed_again() {
    let scene = Scene::new();
    let program = Program::victim("threads8").argument("120");
    let life = restarted(&scene, &program.clone().waiting(100, &sign(&scene)));
    runs_on_without_its_parent(&scene, life, &program);
}

#[test]
fn run_says_once_why_automatic_checkpoints_fail_and_sums_them_up() {
    let scene = Scene::new();
    let run = Launch::Run(["--interval", "200ms"].map(str::to_owned).into());
    let program = Program::victim("refused").argument("150").argument("packet_ring");
    let mut life = Life::start(&scene, "life", &program, &run, Stdout::File);
    assert_eq!(code_of(life.wait()), 7, "{}", life.errors());
    let said = life.errors();
    let why = |line: &&str| line.starts_with("ckpt: no checkpoint: ") && line.contains("its packets are in a ring");
    assert_eq!(said.lines().filter(why).count(), 1, "{said}");
    let sum = said.lines().last().expect("it says something");
    let words: Vec<&str> = sum.split(' ').collect();
    assert!(words[1].parse::<u32>().is_ok_and(|count| count > 1), "{said}");
    assert!(sum.ends_with("checkpoints of this program have failed, none is sealed"), "{said}");
}

#[test]
fn run_says_that_its_agent_can_have_no_store() {
    let scene = Scene::new();
    std::fs::write(scene.path().join("file"), "").expect("a file in the scene");
    let dir = scene.path().join("file/store").display().to_string();
    let run = Launch::Run(vec!["--dir".to_owned(), dir.clone()]);
    let mut life = Life::start(&scene, "life", &Program::victim("churn").argument("60"), &run, Stdout::File);
    life.wait();
    let said = life.errors();
    assert!(said.contains("ckpt: no checkpoint: ") && said.contains(&dir), "{said}");
}

#[test]
fn run_ends_when_the_last_checkpoint_is_written() {
    let scene = Scene::new();
    let program = Program::victim("large").argument("12").variable("CKPT_METHOD", "full-dump");
    let mut life = Life::start(&scene, "life", &program, &Launch::Run(Vec::new()), Stdout::File);
    life.output.wait_for_lines(9);
    processes::send(life.pid, Signal::SIGUSR1);
    assert_eq!(code_of(life.wait()), 7, "{}", life.errors());
    // Not later: nobody writes any more.
    let rows = life.store().rows(&scene);
    assert!(matches!(&rows[..], [row] if row.state == "sealed"), "{rows:?}");
}

#[test]
fn control_c_at_the_terminal_of_a_restart_reaches_the_program() {
    let scene = Scene::new();
    let program = exits("catch");
    let mut life = Life::start(&scene, "life", &program, &Launch::Preload, Stdout::Terminal);
    life.output.wait_for_lines(5);
    checkpoint(&scene, life.pid);
    life.kill();
    let restart = Restart::of(life.store()).stdout(Stdout::SessionTerminal);
    let mut second = restart.begin(&scene, &life.directory, life.pid);
    second.output.wait_for_lines(3);
    second.type_in("\x03");
    assert_eq!(code_of(second.wait()), Signal::SIGINT as i32, "{}{}", second.output.text(), second.errors());
    second.output.wait_for_the_end(Duration::from_secs(5));
    assert!(second.output.text().contains("caught 2"));
}

#[test]
fn control_z_stops_a_restarted_program_and_fg_resumes_it() {
    job_control::control_z_stops_a_restarted_program_and_fg_resumes_it();
}
