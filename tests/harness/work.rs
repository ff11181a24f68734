//! The same proof as [`crate::exact`] for programs that do not say how far they are: bc, gzip, a compiler.
//!
//! A moment is a share of the processor time that an uninterrupted run needs. Such programs do not wait for a
//! checkpoint, so on a machine that forgets the test for a while one may end before; then it is led again, and asked
//! earlier.

use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::exact::{Death, How, Reference, Trigger, finished, goes_on};
use crate::life::{Launch, Life, Stdout};
use crate::program::Program;
use crate::scene::Scene;
use crate::{Ckpt, processes};

/// Processor time after which a run is long enough to have moments.
const SHORTEST: Duration = Duration::from_millis(300);
/// How long a program may take to its moment.
const MOMENT_LIMIT: Duration = Duration::from_secs(60);
/// Processor time that the first life uses between its checkpoint and its death.
const WORK_BEFORE_DEATH: Duration = Duration::from_millis(20);
/// How long a checkpoint may take that is asked for by signal.
const SEAL_LIMIT: Duration = Duration::from_secs(60);
/// How often a life is led that ends before its checkpoint.
const TRIES: u32 = 5;

/// What an uninterrupted run leaves, and what it needs.
#[derive(Clone, Debug)]
pub struct Work {
    /// What it leaves.
    pub reference: Reference,
    /// Its processor time.
    pub processor_time: Duration,
}

/// Runs `program` by itself to its end.
#[track_caller]
pub fn uninterrupted(scene: &Scene, program: &Program) -> Work {
    let life = Life::start(scene, "reference", program, &Launch::Plain, Stdout::File);
    // The numbers of an ended process can be read until somebody has waited for it.
    let stay = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    waitid(Id::Pid(Pid::from_raw(life.pid)), stay).expect("it is our child");
    let processor_time = processes::processor_time(life.pid).expect("it was not waited for");
    assert!(processor_time >= SHORTEST, "{program:?} needs {processor_time:?}: too short to have moments");
    Work { reference: finished(life, program), processor_time }
}

/// A life of `program` that is checkpointed after `per_cent` of its work, runs on for a little, is killed and
/// restarted, must end like the uninterrupted run.
#[track_caller]
pub fn survives(scene: &Scene, program: &Program, how: &How, per_cent: u32, work: &Work) {
    let (first, death) = first_life(scene, program, how, per_cent, work);
    goes_on(scene, program, how, &first, death, &work.reference);
}

/// The first half of [`survives`]: the life that was killed, and how.
#[track_caller]
pub fn first_life<'scene>(
    scene: &'scene Scene,
    program: &Program,
    how: &How,
    per_cent: u32,
    work: &Work,
) -> (Life<'scene>, Death) {
    for attempt in 1..=TRIES {
        let name = format!("life-{per_cent}-{:?}-{:?}-{attempt}", how.stdout, how.trigger);
        let mut first = Life::start(scene, &name, program, &how.launch, how.stdout);
        // Each time a little earlier: how long the machine forgets the test is nothing that a new life changes.
        let moment = work.processor_time * per_cent * (2 * TRIES + 1 - attempt) / (100 * 2 * TRIES);
        wait_for_work(&first, moment);
        let printed_before = first.output.bytes().len();
        let Some(id) = take(scene, &mut first, how.trigger) else { continue };
        if how.trigger != Trigger::Kill {
            let moment = processes::processor_time(first.pid).unwrap_or_default() + WORK_BEFORE_DEATH;
            wait_for_work(&first, moment);
        }
        first.kill();
        return (first, Death { id, printed_before });
    }
    panic!("{program:?} ended {TRIES} times before its checkpoint at {per_cent} % of {:?}", work.processor_time);
}

/// Waits until a life has used so much processor time, or has ended.
#[track_caller]
pub fn wait_for_work(life: &Life<'_>, moment: Duration) {
    let done = || !processes::is_alive(life.pid) || processes::processor_time(life.pid).is_none_or(|now| now >= moment);
    processes::wait_until(&format!("{moment:?} of processor time"), MOMENT_LIMIT, done);
}

/// Takes a checkpoint and gives its id; none when the program has ended before it.
#[track_caller]
fn take(scene: &Scene, life: &mut Life<'_>, trigger: Trigger) -> Option<u64> {
    let pid = life.pid.to_string();
    let arguments = match trigger {
        Trigger::Command => vec!["checkpoint", &pid],
        Trigger::Kill => vec!["checkpoint", "--kill", &pid],
        Trigger::Signal => return take_by_signal(scene, life),
    };
    let answer = Ckpt::new(scene, arguments).call();
    if answer.code != 0 && !processes::is_alive(life.pid) {
        has_ended_well(life);
        return None;
    }
    Some(answer.succeeded().number())
}

/// The same for a checkpoint that nobody answers for: the program may end at any moment until it is stopped, and afterwards
/// while the checkpoint is still being written.
#[track_caller]
fn take_by_signal(scene: &Scene, life: &mut Life<'_>) -> Option<u64> {
    let store = life.store();
    let before = store.rows_if_any(scene).len();
    processes::send(life.pid, Signal::SIGUSR1);
    let mut sealed = None;
    processes::wait_until(&format!("a checkpoint of {} by signal", life.pid), SEAL_LIMIT, || {
        // In this order: when the program and its agents have ended, no more is written.
        let is_over = !processes::is_alive(life.pid) && processes::agents_of(life.pid).is_empty();
        let rows = store.rows_if_any(scene).split_off(before);
        let failed = rows.iter().find(|row| row.state == "failed").filter(|_| processes::is_alive(life.pid));
        assert!(failed.is_none(), "not because the program has ended: {failed:?}");
        sealed = rows.into_iter().find(|row| row.state == "sealed");
        sealed.is_some() || is_over
    });
    if sealed.is_none() {
        has_ended_well(life);
    }
    sealed.map(|row| row.id)
}

#[track_caller]
fn has_ended_well(life: &mut Life<'_>) {
    assert_eq!(crate::code_of(life.wait()), 0, "it ended by itself: {}", life.errors());
}
