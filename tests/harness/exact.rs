//! The proof that everything else serves: a life that was checkpointed, killed and restarted prints and returns
//! exactly what an uninterrupted one does.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::life::{Launch, Life, Restart, Stdout, code_of};
use crate::program::{LINES_BEFORE_THE_SIGN, Program};
use crate::scene::Scene;
use crate::{Ckpt, checkpoint, processes};

/// Lines that the first life prints between its checkpoint and its death.
const LINES_BEFORE_DEATH: usize = 3;

/// How a checkpoint is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// `kill -USR1 PID`.
    Signal,
    /// `ckpt checkpoint PID`.
    Command,
    /// `ckpt checkpoint --kill PID`, after which it does nothing more.
    Kill,
}

/// What an uninterrupted run leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Everything it printed.
    pub stdout: Vec<u8>,
    /// Its exit code.
    pub code: i32,
    /// The files it wrote, in the order of [`Program::files`].
    pub files: Vec<Vec<u8>>,
}

impl Reference {
    /// Number of lines.
    pub fn lines(&self) -> usize {
        self.stdout.iter().filter(|&&byte| byte == b'\n').count()
    }

    /// The last step that a program can wait behind: some print more than one line when all steps are done. One that does not name
    /// its steps has a line before them, and one behind.
    fn last_step(&self) -> usize {
        let named = self.stdout.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"step ")).count();
        if named > 0 { named } else { self.lines().saturating_sub(2) }
    }
}

/// Runs `program` by itself to its end.
pub fn reference(scene: &Scene, program: &Program) -> Reference {
    finished(Life::start(scene, "reference", program, &Launch::Plain, Stdout::File), program)
}

/// What `life` leaves at its end.
#[track_caller]
pub(crate) fn finished(mut life: Life<'_>, program: &Program) -> Reference {
    let code = code_of(life.wait());
    let stdout = life.output.bytes();
    let text = life.output.text();
    assert!(!text.contains("FAILED"), "the uninterrupted run of {program:?} fails:\n{text}{}", life.errors());
    Reference { stdout, code, files: contents(&life.directory, program) }
}

/// Takes a checkpoint of a life and waits until it is sealed; gives its id.
#[track_caller]
pub fn take(scene: &Scene, life: &Life<'_>, trigger: Trigger) -> u64 {
    match trigger {
        Trigger::Command => checkpoint(scene, life.pid),
        Trigger::Kill => Ckpt::new(scene, ["checkpoint", "--kill", &life.pid.to_string()]).call().succeeded().number(),
        Trigger::Signal => {
            let store = life.store();
            let before = store.sealed(scene).len();
            processes::send(life.pid, Signal::SIGUSR1);
            store.wait_for_sealed(scene, before + 1).id
        }
    }
}

/// A life of `program` that is checkpointed after `line` lines, runs on for a few, is killed and restarted, must
/// end like `reference`.
#[track_caller]
pub fn survives(scene: &Scene, program: &Program, how: How, line: usize, reference: &Reference) {
    let name = format!("life-{line}-{:?}-{:?}", how.stdout, how.trigger);
    // However busy the machine is, the program must not end before its checkpoint is taken.
    let taken = scene.path().join(format!("{name}-taken"));
    // A step has one line or more.
    let waits_behind = (line + LINES_BEFORE_THE_SIGN).min(reference.last_step()).max(line - 1);
    let patient = program.clone().waiting(waits_behind, &taken);
    let mut first = Life::start(scene, &name, &patient, &how.launch, how.stdout);
    first.output.wait_for_lines(line);
    let printed_before = first.output.bytes().len();
    let id = take(scene, &first, how.trigger);
    std::fs::write(&taken, "").expect("a file in the scene");
    if how.trigger != Trigger::Kill {
        let lines_left = reference.lines().saturating_sub(first.output.lines());
        first.output.wait_for_more_lines(LINES_BEFORE_DEATH.min(lines_left));
    }
    first.kill();
    goes_on(scene, program, &how, &first, Death { id, printed_before }, reference);
}

/// When a first life ended.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    /// The checkpoint that it is restarted from.
    pub id: u64,
    /// Bytes that it had printed before that was asked for.
    pub printed_before: usize,
}

/// Restarts `first`, which is dead, and compares both lives with `reference`.
#[track_caller]
pub fn goes_on(
    scene: &Scene,
    program: &Program,
    how: &How,
    first: &Life<'_>,
    Death { id, printed_before }: Death,
    reference: &Reference,
) {
    first.output.wait_for_the_end(Duration::from_secs(5));
    let printed_first = first.output.bytes();
    let restart = Restart::of(first.store()).id(id).stdout(how.stdout);
    let mut second = restart.begin(scene, &first.directory.clone(), first.pid);
    let code = code_of(second.wait());
    second.output.wait_for_the_end(Duration::from_secs(5));
    let life = first.directory.display();
    let story = format!("{program:?} in {life}, {how:?}, checkpoint {id}; restart said: {}", second.errors());
    assert_eq!(code, reference.code, "the exit code of {story}");
    compare(how.stdout, printed_before, &printed_first, &second.output.bytes(), reference, &story);
    if let Some(own) = &second.own_stdout {
        assert_eq!(std::fs::read_to_string(own).unwrap_or_default(), "", "restart prints nothing of its own; {story}");
    }
    let files = contents(&first.directory, program);
    for ((name, found), expected) in program.files.iter().zip(&files).zip(&reference.files) {
        assert_same(found, expected, &format!("file {name} of {story}"));
    }
}

/// The way a life is led.
#[derive(Clone, Debug)]
pub struct How {
    /// Its stdout.
    pub stdout: Stdout,
    /// What asks for its checkpoint.
    pub trigger: Trigger,
    /// How it is started.
    pub launch: Launch,
}

impl How {
    /// Preloaded, stdout in a file, `ckpt checkpoint`.
    pub fn usual() -> How {
        How { stdout: Stdout::File, trigger: Trigger::Command, launch: Launch::Preload }
    }
}

/// One life at one moment, in a scene of its own.
#[track_caller]
pub fn survives_once(program: &Program, line: usize) {
    let scene = Scene::new();
    let reference = reference(&scene, program);
    survives(&scene, program, How::usual(), line, &reference);
}

#[track_caller]
fn compare(stdout: Stdout, before: usize, first: &[u8], second: &[u8], reference: &Reference, story: &str) {
    let whole = &reference.stdout;
    assert!(whole.starts_with(first), "the first life went astray by itself; {story}");
    if stdout == Stdout::File {
        return assert_same(second, whole, &format!("the complete output of {story}"));
    }
    // What the second life prints is what was still to come when the checkpoint was taken, and that was after
    // the lines that had been seen when it was asked for, and before those that were seen at the death.
    let from = whole.len().saturating_sub(second.len());
    assert_same(second, &whole[from..], &format!("the remaining output of {story}"));
    let possible = before..=first.len();
    assert!(possible.contains(&from), "the second life begins at byte {from}, not in {possible:?}; {story}");
}

/// Asserts that two outputs are equal, and shows where they part.
#[track_caller]
pub fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    if found == expected {
        return;
    }
    let equal = found.iter().zip(expected).take_while(|(left, right)| left == right).count();
    let around = |bytes: &[u8]| {
        let from = equal.saturating_sub(60).min(bytes.len());
        String::from_utf8_lossy(&bytes[from..(equal + 120).min(bytes.len())]).into_owned()
    };
    panic!(
        "differs from byte {equal} of {} (found {}): {what}\nexpected ...{}\nfound ...{}",
        expected.len(),
        found.len(),
        around(expected),
        around(found)
    );
}

/// The files that `program` has written in `directory`.
pub fn contents(directory: &Path, program: &Program) -> Vec<Vec<u8>> {
    program.files.iter().map(|name| std::fs::read(directory.join(name)).unwrap_or_default()).collect()
}
