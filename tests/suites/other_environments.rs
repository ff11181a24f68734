//! Programs of a job that libckpt.so is not loaded into, because they were executed with another environment: they are adopted.

use ckpt_tests::exact::{self, How, Trigger};
use ckpt_tests::{Ckpt, Launch, Life, Program, Scene, code_of};

/// A victim with a helper that has only this entry in its environment, or none for `-`.
fn with_helper(first: &str, helper: &[&str]) -> Program {
    let program = Program::python("helpers.py").argument("40").argument(first);
    helper.iter().fold(program, |program, argument| program.argument(*argument))
}

fn goes_on(program: &Program, how: How) {
    let scene = Scene::new();
    let bare = exact::reference(&scene, program);
    for line in [3, 15] {
        exact::survives(&scene, program, how.clone(), line, &bare);
    }
}

#[test]
fn a_child_with_an_environment_of_its_own_goes_on() {
    goes_on(&with_helper("PATH=/usr/bin:/bin", &["cat"]), How::usual());
}

#[test]
fn a_child_without_any_environment_goes_on() {
    goes_on(&with_helper("-", &["/bin/cat"]), How { launch: Launch::Run(Vec::new()), ..How::usual() });
}

#[test]
fn a_static_child_without_any_environment_goes_on() {
    let busybox = Program::installed("busybox").executable;
    goes_on(&with_helper("-", &[&busybox.to_string_lossy(), "cat"]), How::usual());
}

#[test]
fn what_such_a_child_starts_goes_on() {
    let script = "while read -r line; do echo \"$line\" | cat; done | cat";
    goes_on(
        &with_helper("PATH=/usr/bin:/bin", &["bash", "-c", script]),
        How { trigger: Trigger::Signal, ..How::usual() },
    );
}

#[test]
fn a_child_whose_environment_names_a_library_that_is_not_there_goes_on() {
    goes_on(&with_helper("LD_PRELOAD=/nowhere/libckpt.so", &["/bin/cat"]), How::usual());
}

#[test]
fn a_child_of_32_bits_is_refused_by_name() {
    let scene = Scene::new();
    let child = Program::of_32_bits("thirty_two").executable;
    let script = format!(
        "{} & for i in 1 2 3 4 5 6; do echo line $i; read -r -t 0.1; done < /dev/zero; kill $!; wait $!; exit 7",
        child.display()
    );
    let mut life = Life::preloaded(&scene, "life", &Program::installed("bash").argument("-c").argument(script));
    life.output.wait_for_lines(1);
    let answer = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).call().failed_with(4);
    assert!(answer.stderr.contains("it is no 64-bit program for x86-64"), "{answer:?}");
    assert_eq!(code_of(life.wait()), 7, "{}", life.errors());
}
