//! Programs that were not written for these tests, or look like it, with every option of a restart that changes how it is done, and every
//! method of a checkpoint.

use ckpt_tests::exact::{self, assert_same, contents};
use ckpt_tests::{Life, Program, Restart, Scene, checkpoint, code_of};

const STEPS: &str = "40";

fn large() -> Program {
    Program::victim("large").argument(STEPS)
}

fn large_with_threads() -> Program {
    large().argument("threads")
}

fn python() -> Program {
    Program::python("lines.py").argument(STEPS)
}

fn numpy() -> Program {
    Program::python("arrays.py").argument(STEPS).writes("mapped")
}

fn java() -> Program {
    Program::java("Lines").argument(STEPS)
}

/// The ways that a restart may take, each by its words.
const WAYS: &[&[&str]] = &[
    &[],
    &["--lazy"],
    &["--namespace", "always"],
    &["--namespace", "never"],
    &["--clocks", "leave"],
    &["--clocks", "continue"],
    &["--lazy", "--namespace", "always", "--clocks", "leave", "--interval", "0"],
    &["--force", "--end-leftovers", "--verbose"],
];
const METHODS: &[&str] = &["pages", "full-dump", "local-dedup", "inc-tracking", "tree"];

/// The program is killed behind its checkpoint and restarted so, each time from that checkpoint, and ends as one that was not.
fn comes_back(program: &Program, ways: &[&[&str]]) {
    let scene = Scene::of_at_most(std::time::Duration::from_secs(120));
    let reference = exact::reference(&scene, program);
    let taken = scene.path().join("taken");
    let mut first = Life::preloaded(&scene, "life", &program.clone().waiting(12, &taken));
    first.output.wait_for_lines(8);
    let id = checkpoint(&scene, first.pid);
    std::fs::write(&taken, "").expect("a file in the scene");
    first.output.wait_for_lines(16);
    first.kill();
    for words in ways {
        let restart = words.iter().fold(Restart::of(first.store()).id(id), |restart, word| restart.option(word));
        let mut second = restart.spawn(&scene, &first.directory);
        let code = code_of(second.wait());
        let story = format!("{program:?}, restarted with {words:?}: {}", second.errors());
        assert_eq!(code, reference.code, "{story}");
        assert_same(&first.output.bytes(), &reference.stdout, &story);
        for (found, expected) in contents(&first.directory, program).iter().zip(&reference.files) {
            assert_same(found, expected, &story);
        }
    }
}

fn comes_back_by(program: &Program, methods: &[&str]) {
    for method in methods {
        comes_back(&program.clone().variable("CKPT_METHOD", *method), &[&[], &["--lazy"]]);
    }
}

#[test]
fn one_large_allocation_comes_back_each_way() {
    comes_back(&large(), WAYS);
}

#[test]
fn allocations_before_threads_come_back_lazily() {
    comes_back(&large_with_threads(), &[&["--lazy"]]);
}

#[test]
fn python_comes_back_lazily() {
    comes_back(&python(), &[&["--lazy"]]);
}

#[test]
fn one_large_allocation_comes_back_by_each_method() {
    comes_back_by(&large(), METHODS);
}

#[test]
#[ignore = "numpy each way and by each method; scripts/test --all"]
fn numpy_comes_back_each_way_and_by_each_method() {
    comes_back(&numpy(), WAYS);
    comes_back_by(&numpy(), METHODS);
}

#[test]
#[ignore = "java each way and by each method; scripts/test --all"]
fn java_comes_back_each_way_and_by_each_method() {
    comes_back(&java(), WAYS);
    comes_back_by(&java(), METHODS);
}

#[test]
#[ignore = "python each way and by each method; scripts/test --all"]
fn python_comes_back_each_way_and_by_each_method() {
    comes_back(&python(), WAYS);
    comes_back_by(&python(), METHODS);
}
