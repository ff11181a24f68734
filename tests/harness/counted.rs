//! The program `counted` (tests/victims/cuda): each of its steps changes state of the kinds that it is told, and prints a checksum of it.
//!
//! Programs are there before a scene begins: compiling the double takes a minute, and a scene's time is limited.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::exact::{How, Reference, Trigger, assert_same, reference, survives};
use crate::{Answer, Ckpt, Life, Program, Restart, Scene, Stdout, checkpoint, code_of, cuda};

/// Steps that it takes.
pub const STEPS: usize = 60;
/// Between two steps, so that there are moments.
const PAUSE_US: &str = "3000";

/// The program `counted` with state of these kinds.
pub fn counting(kinds: &[&str]) -> Program {
    counting_with(&cuda::kernels_without_variables(), kinds)
}

/// The same with these kernels.
pub fn counting_with(kernels: &Path, kinds: &[&str]) -> Program {
    counting_every(PAUSE_US, kernels, kinds)
}

/// The same so slowly that it takes steps between two checkpoints.
pub fn counting_slowly(kinds: &[&str]) -> Program {
    counting_every("150000", &cuda::kernels_without_variables(), kinds)
}

fn counting_every(pause_us: &str, kernels: &Path, kinds: &[&str]) -> Program {
    let program = cuda::program("counted").argument(STEPS.to_string()).argument(pause_us).argument(kernels);
    kinds.iter().fold(program, |program, kind| program.argument(*kind))
}

/// Where one has its time.
pub fn scene() -> Scene {
    Scene::of_at_most(Duration::from_secs(240))
}

/// Asks for a checkpoint, which need not come about.
pub fn ask_checkpoint(scene: &Scene, pid: i32) -> Answer {
    Ckpt::new(scene, ["checkpoint", &pid.to_string()]).call()
}

/// A life that has ended by itself has printed everything.
#[track_caller]
pub fn ended_like(mut life: Life<'_>, whole: &Reference) {
    assert_eq!(code_of(life.wait()), whole.code, "{}", life.errors());
    assert_same(&life.output.bytes(), &whole.stdout, "all that it has printed");
}

/// A program at its fifth step, which goes no further than the fortieth until `go_on` is called.
pub fn at_fifth_step<'a>(scene: &'a Scene, program: &Program) -> Life<'a> {
    let patient = program.clone().waiting(40, &scene.path().join("go-on"));
    let life = Life::preloaded(scene, "life", &patient);
    life.output.wait_for_lines(5);
    life
}

/// Lets it go further.
pub fn go_on(scene: &Scene) {
    fs::write(scene.path().join("go-on"), "").expect("a file in the scene");
}

/// Goes on where it is through so many checkpoints, to its end.
#[track_caller]
pub fn goes_on_in_place(program: &Program, checkpoints: usize) {
    let scene = scene();
    let whole = reference(&scene, program);
    let life = at_fifth_step(&scene, program);
    for _ in 0..checkpoints {
        checkpoint(&scene, life.pid);
    }
    go_on(&scene);
    ended_like(life, &whole);
}

/// The usual way to a checkpoint, but for these.
pub fn triggered(trigger: Trigger, stdout: Stdout) -> How {
    How { trigger, stdout, ..How::usual() }
}

/// Killed behind checkpoints at two moments, and restarted.
#[track_caller]
pub fn survives_twice(program: &Program) {
    let scene = scene();
    let whole = reference(&scene, program);
    survives(&scene, program, triggered(Trigger::Command, Stdout::File), 5, &whole);
    survives(&scene, program, triggered(Trigger::Signal, Stdout::Pipe), 40, &whole);
}

/// The restart of a life goes on to its end, and both have printed everything.
#[track_caller]
pub fn goes_on_again(scene: &Scene, restart: Restart, life: &Life<'_>, whole: &Reference) {
    let mut second = restart.begin(scene, &life.directory, life.pid);
    assert_eq!(code_of(second.wait()), whole.code, "{}", second.errors());
    assert_same(&life.output.bytes(), &whole.stdout, "the output of both lives");
}
