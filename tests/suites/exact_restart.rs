//! First life, second life: real programs, killed with SIGKILL at five moments each, go on exactly.
//!
//! The moments alternate between a checkpoint by signal and one by command; the ignored tests take the other
//! half of the matrix.

use std::time::Duration;

use ckpt_tests::exact::{How, Reference, Trigger, assert_same, reference, survives};
use ckpt_tests::{Launch, Life, Program, Restart, Scene, Stdout, Store, checkpoint, code_of};

/// Parts of the reference's lines after which the five checkpoints are taken, in per cent.
const MOMENTS: [usize; 5] = [3, 20, 40, 60, 75];

fn at_five_moments(program: &Program, stdout: Stdout, first: Trigger) {
    at_five_moments_under(program, stdout, first, &Launch::Preload);
}

fn at_five_moments_under(program: &Program, stdout: Stdout, first: Trigger, launch: &Launch) {
    let scene = Scene::of_at_most(Duration::from_secs(180));
    let reference: Reference = reference(&scene, program);
    let mut trigger = first;
    for moment in MOMENTS {
        let line = (reference.lines() * moment / 100).max(1);
        let how = How { stdout, trigger, launch: launch.clone() };
        survives(&scene, program, how, line, &reference);
        trigger = if trigger == Trigger::Signal { Trigger::Command } else { Trigger::Signal };
    }
}

fn threads8() -> Program {
    Program::victim("threads8").argument("90")
}

fn python() -> Program {
    Program::python("lines.py").argument("80").writes("lines")
}

fn node() -> Program {
    Program::node("lines.js").argument("80")
}

fn java() -> Program {
    Program::java("Lines").argument("80")
}

#[test]
fn eight_threads_printing_to_a_file_go_on_exactly() {
    at_five_moments(&threads8(), Stdout::File, Trigger::Signal);
}

#[test]
fn eight_threads_printing_to_a_pipe_go_on_exactly() {
    at_five_moments(&threads8(), Stdout::Pipe, Trigger::Command);
}

#[test]
fn eight_threads_printing_to_a_terminal_go_on_exactly() {
    at_five_moments(&threads8(), Stdout::Terminal, Trigger::Signal);
}

#[test]
fn eight_threads_printing_to_a_socket_go_on_exactly() {
    at_five_moments(&threads8(), Stdout::Socket, Trigger::Signal);
}

#[test]
fn a_program_whose_output_was_a_socket_prints_to_a_pipe_after_the_restart() {
    let scene = Scene::new();
    let program = threads8();
    let whole = reference(&scene, &program).stdout;
    let mut first = Life::start(&scene, "life", &program, &Launch::Preload, Stdout::Socket);
    first.output.wait_for_lines(20);
    checkpoint(&scene, first.pid);
    first.kill();
    let restart = Restart::of(first.store()).stdout(Stdout::Pipe);
    let mut second = restart.begin(&scene, &first.directory, first.pid);
    assert_eq!(code_of(second.wait()), 7, "{}", second.errors());
    second.output.wait_for_the_end(Duration::from_secs(5));
    let printed = second.output.bytes();
    assert!(whole.ends_with(&printed) && printed.ends_with(b"verified\n"), "{}", second.output.text());
    assert!(first.output.bytes().len() + printed.len() >= whole.len(), "nothing is missing between the lives");
}

#[test]
fn python_printing_to_a_file_goes_on_exactly() {
    at_five_moments(&python(), Stdout::File, Trigger::Signal);
}

#[test]
fn python_printing_to_a_pipe_goes_on_exactly() {
    at_five_moments(&python(), Stdout::Pipe, Trigger::Command);
}

#[test]
fn python_printing_to_a_terminal_goes_on_exactly() {
    at_five_moments(&python(), Stdout::Terminal, Trigger::Signal);
}

#[test]
fn node_printing_to_a_file_goes_on_exactly() {
    // node uses SIGUSR1 itself, so both triggers are the command here; another signal has a test of its own.
    node_at_five_moments(Stdout::File);
}

#[test]
fn node_printing_to_a_pipe_goes_on_exactly() {
    node_at_five_moments(Stdout::Pipe);
}

#[test]
fn node_printing_to_a_terminal_goes_on_exactly() {
    node_at_five_moments(Stdout::Terminal);
}

fn node_at_five_moments(stdout: Stdout) {
    let scene = Scene::of_at_most(Duration::from_secs(180));
    let reference = reference(&scene, &node());
    for moment in MOMENTS {
        let line = (reference.lines() * moment / 100).max(1);
        let how = How { stdout, ..How::usual() };
        survives(&scene, &node(), how, line, &reference);
    }
}

#[test]
fn java_printing_to_a_file_goes_on_exactly() {
    at_five_moments(&java(), Stdout::File, Trigger::Command);
}

#[test]
fn java_printing_to_a_pipe_goes_on_exactly() {
    at_five_moments(&java(), Stdout::Pipe, Trigger::Command);
}

#[test]
fn java_printing_to_a_terminal_goes_on_exactly() {
    at_five_moments(&java(), Stdout::Terminal, Trigger::Command);
}

#[test]
fn a_program_started_by_ckpt_run_goes_on_exactly() {
    let run = Launch::Run(Vec::new());
    at_five_moments_under(&threads8(), Stdout::Pipe, Trigger::Signal, &run);
}

#[test]
fn a_store_named_by_blake3_restarts_exactly() {
    let scene = Scene::new();
    let shared = scene.path().join("shared");
    let program = threads8().variable("CKPT_DIGEST", "blake3").variable("CKPT_DIR", &shared);
    let reference = reference(&scene, &program);
    let mut first = Life::preloaded(&scene, "life", &program);
    first.output.wait_for_lines(5);
    let ids = [(); 2].map(|()| {
        let id = checkpoint(&scene, first.pid);
        first.output.wait_for_more_lines(3);
        id
    });
    first.kill();
    let store = Store::at(&shared);
    assert!(ids.iter().all(|&id| store.show(&scene, id)["digest"] == "blake3"), "the test would show nothing else");
    for id in ids {
        let mut second = Restart::of(&store).id(id).begin(&scene, &first.directory, first.pid);
        assert_eq!(code_of(second.wait()), reference.code, "{}", second.errors());
        assert!(!second.errors().contains("come from the checkpoint"), "files are compared by this digest too");
        let output = std::fs::read(first.directory.join("stdout")).expect("the program's output");
        assert_same(&output, &reference.stdout, "the output of both lives");
    }
}

#[test]
#[ignore = "the other half of the matrix; scripts/test --all"]
fn the_other_triggers_work_at_the_same_moments() {
    for stdout in [Stdout::File, Stdout::Terminal] {
        at_five_moments(&threads8(), stdout, Trigger::Command);
        at_five_moments(&python(), stdout, Trigger::Command);
        at_five_moments(&java(), stdout, Trigger::Signal);
    }
    at_five_moments(&threads8(), Stdout::Pipe, Trigger::Signal);
    at_five_moments(&python(), Stdout::Pipe, Trigger::Signal);
    at_five_moments(&java(), Stdout::Pipe, Trigger::Signal);
}

#[test]
#[ignore = "the programs of the matrix under ckpt run; scripts/test --all"]
fn python_node_and_java_started_by_ckpt_run_go_on_exactly() {
    let run = Launch::Run(Vec::new());
    at_five_moments_under(&python(), Stdout::File, Trigger::Signal, &run);
    at_five_moments_under(&java(), Stdout::File, Trigger::Command, &run);
    let scene = Scene::of_at_most(Duration::from_secs(180));
    let reference = reference(&scene, &node());
    let how = How { launch: run, ..How::usual() };
    survives(&scene, &node(), how, 20, &reference);
}
