//! Interpreters: perl, bash, bc.

use std::time::Duration;

use ckpt_tests::exact::{assert_same, reference};
use ckpt_tests::program::source;
use ckpt_tests::{Ckpt, Life, Program, Restart, Scene, Stdout, code_of};

use crate::{BOTH, BY_COMMAND, FIVE, TWO, goes_on, goes_on_working};

fn perl() -> Program {
    Program::installed("perl").argument(source("lines.pl")).argument("80").writes("lines")
}

/// With a trap on EXIT, for which bash handles all signals that would end it, SIGUSR1 among them.
fn bash() -> Program {
    Program::installed("bash").argument(source("lines.bash")).argument("80").writes("lines")
}

/// Prints digits of pi and e for about a second of work.
fn bc() -> Program {
    let script = std::fs::read_to_string(source("pi.bc")).expect("a victim");
    Program::installed("bc").argument("-l").argument("-q").reads("pi.bc", format!("limit = 700\n{script}").into_bytes())
}

#[test]
fn perl_goes_on_exactly() {
    goes_on(&perl(), Stdout::Pipe, &TWO, BOTH);
}

#[test]
#[ignore = "long: five moments, to a file, a pipe and a terminal; scripts/test --all"]
fn perl_goes_on_exactly_wherever_it_prints_to() {
    for stdout in [Stdout::File, Stdout::Pipe, Stdout::Terminal] {
        goes_on(&perl(), stdout, &FIVE, BOTH);
        goes_on(&perl(), stdout, &TWO, BY_COMMAND);
    }
}

#[test]
fn bash_goes_on_exactly() {
    goes_on(&bash(), Stdout::File, &TWO, BY_COMMAND);
}

#[test]
#[ignore = "long: five moments, to a file, a pipe and a terminal; scripts/test --all"]
fn bash_goes_on_exactly_wherever_it_prints_to() {
    for stdout in [Stdout::File, Stdout::Pipe, Stdout::Terminal] {
        goes_on(&bash(), stdout, &FIVE, BY_COMMAND);
        goes_on(&bash().argument("no").argument("untrapped"), stdout, &FIVE, BOTH);
    }
}

/// A script that starts a child at every step is refused while one lives, and is not changed by being asked.
#[test]
fn bash_goes_on_exactly_between_its_children() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let program = bash().argument("children");
    let whole = reference(&scene, &program);
    let mut first = Life::preloaded(&scene, "life", &program.clone().waiting(60, &scene.path().join("taken")));
    first.output.wait_for_lines(20);
    let pid = first.pid.to_string();
    let id = loop {
        let answer = Ckpt::new(&scene, ["checkpoint", &pid]).call();
        if answer.code == 0 {
            break answer.number();
        }
        let refused = answer.failed_with(4);
        assert!(refused.stderr.contains("trees of processes are not captured yet"), "{refused:?}");
    };
    std::fs::write(scene.path().join("taken"), "").expect("a file in the scene");
    first.output.wait_for_more_lines(3);
    first.kill();
    let mut second = Restart::of(first.store()).id(id).begin(&scene, &first.directory, first.pid);
    assert_eq!(code_of(second.wait()), whole.code, "{}", second.errors());
    assert_same(&second.output.bytes(), &whole.stdout, "the output of both lives");
}

#[test]
fn bc_goes_on_exactly() {
    goes_on_working(&bc(), Stdout::File, &TWO, BOTH);
}

#[test]
#[ignore = "long: five moments, to a file and a pipe; scripts/test --all"]
fn bc_goes_on_exactly_wherever_it_prints_to() {
    for stdout in [Stdout::File, Stdout::Pipe] {
        goes_on_working(&bc(), stdout, &FIVE, BOTH);
        goes_on_working(&bc(), stdout, &TWO, BY_COMMAND);
    }
}
