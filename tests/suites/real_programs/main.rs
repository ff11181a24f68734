//! First life, second life, for programs that people use: each is killed with SIGKILL at several moments and goes on
//! exactly, byte for byte.
//!
//! An ordinary run has two moments of each program, `scripts/test --all` five, with each kind of output that matters.

mod compilers;
mod compressors;
mod databases;
mod editors;
mod interpreters;
mod numerics;
mod ranks;
mod servers;
mod terminals;
mod threads;

use std::time::Duration;

use ckpt_tests::exact::{How, Trigger, reference, survives};
use ckpt_tests::{Program, Scene, Stdout, work};

/// Shares of a program's output or work after which checkpoints are taken in an ordinary run, in per cent.
const TWO: [u32; 2] = [20, 70];
/// The same of jobs, which take long to begin.
const ONE: [u32; 1] = [45];
/// The same for `scripts/test --all`.
const FIVE: [u32; 5] = [3, 20, 40, 60, 75];

/// A program that prints lines and waits where a test tells it to.
fn goes_on(program: &Program, stdout: Stdout, moments: &[u32], triggers: [Trigger; 2]) {
    let scene = Scene::of_at_most(Duration::from_secs(480));
    let reference = reference(&scene, program);
    for (&moment, &trigger) in moments.iter().zip(triggers.iter().cycle()) {
        let line = (reference.lines() * moment as usize / 100).max(1);
        survives(&scene, program, How { stdout, trigger, ..How::usual() }, line, &reference);
    }
}

/// A program that says nothing of how far it is.
fn goes_on_working(program: &Program, stdout: Stdout, moments: &[u32], triggers: [Trigger; 2]) {
    let scene = Scene::of_at_most(Duration::from_secs(480));
    let whole = work::uninterrupted(&scene, program);
    for (&moment, &trigger) in moments.iter().zip(triggers.iter().cycle()) {
        work::survives(&scene, program, &How { stdout, trigger, ..How::usual() }, moment, &whole);
    }
}

/// By signal and by command in turn.
const BOTH: [Trigger; 2] = [Trigger::Signal, Trigger::Command];
/// By command, for programs that use SIGUSR1 themselves or cannot be interrupted by it, and with `--kill`.
const BY_COMMAND: [Trigger; 2] = [Trigger::Command, Trigger::Kill];
