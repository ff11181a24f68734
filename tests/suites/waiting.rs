//! Calls that wait for a time: however often they are stopped and rebuilt, they wait for that time.

use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ckpt_tests::exact::survives_once;
use ckpt_tests::system_v;
use ckpt_tests::{Ckpt, Launch, Life, Program, Restart, Scene, Stdout, checkpoint, code_of, processes};

const STEPS: u64 = 240;
/// How long each call waits, ms; the steps are over by then.
const WHOLE_MS: u64 = STEPS * 25;
/// What a busy machine may add.
const LATE_MS: u64 = 2500;

/// The victim, which does not end before [`are_taken`], however busy the machine is.
fn patient(scene: &Scene, victim: Program) -> Program {
    victim.argument(STEPS.to_string()).waiting(STEPS as usize, &scene.path().join("taken"))
}

fn timed_calls(scene: &Scene) -> Program {
    patient(scene, Program::victim("timed_calls"))
}

/// All checkpoints of the victim are taken.
fn are_taken(scene: &Scene) {
    std::fs::write(scene.path().join("taken"), "").expect("a file in the scene");
}

/// How long there was no program, or one that stood still.
#[derive(Clone, Copy, Default)]
struct Gone {
    at_least: Duration,
    at_most: Duration,
}

impl Gone {
    /// What a call of `whole_ms` may have waited.
    fn allows(self, whole_ms: u64) -> Range<u64> {
        whole_ms + self.at_least.as_millis() as u64..whole_ms + self.at_most.as_millis() as u64 + LATE_MS
    }
}

/// Lets the victim end, and asserts that every call has waited for its time and for as long as there was no program.
fn all_have_waited(scene: &Scene, mut life: Life<'_>, gone: Gone) {
    are_taken(scene);
    assert_eq!(code_of(life.wait()), 7, "{}\n{}", life.output.text(), life.errors());
    let text = life.output.text();
    let waited = text.lines().filter_map(|line| line.strip_suffix(" ms")?.split_once(" waited "));
    let allowed = gone.allows(WHOLE_MS);
    let mut calls = 0;
    for (call, ms) in waited {
        let ms: u64 = ms.parse().expect("a number");
        assert!(allowed.contains(&ms), "{call} waited {ms} ms of {WHOLE_MS}, allowed are {allowed:?}");
        calls += 1;
    }
    assert_eq!(calls, 11, "{text}");
}

/// Waits until the victim has come to `step`.
fn at_step(life: &Life<'_>, step: u64) {
    life.output.wait_for_line(&format!("step {step}"));
}

/// Takes a checkpoint by which the program ends, waits a while, and restarts it.
fn gone_and_back<'scene>(scene: &'scene Scene, mut life: Life<'scene>) -> (Life<'scene>, Gone) {
    let asked = Instant::now();
    Ckpt::new(scene, ["checkpoint", "--kill", &life.pid.to_string()]).call().succeeded();
    let ended = Instant::now();
    life.wait();
    // Time that passes for nobody: what is to be seen is that it is not counted.
    sleep(Duration::from_secs(1));
    let (store, directory, pid) = (life.store(), life.directory.clone(), life.pid);
    drop(life);
    let at_least = ended.elapsed();
    let life = Restart::of(store).begin(scene, &directory, pid);
    (life, Gone { at_least, at_most: asked.elapsed() })
}

#[test]
fn time_outs_are_kept_through_checkpoints_of_either_kind() {
    let scene = Scene::new();
    let _objects = system_v::Objects::of(&scene);
    let life = Life::preloaded(&scene, "life", &timed_calls(&scene));
    let pid = life.pid.to_string();
    for step in [60, 120, 180, 220] {
        at_step(&life, step);
        checkpoint(&scene, life.pid);
        Ckpt::new(&scene, ["checkpoint", "--data", &pid]).call().succeeded();
    }
    all_have_waited(&scene, life, Gone::default());
}

#[test]
fn time_outs_are_kept_through_checkpoints_that_are_closer_together_than_they_are_long() {
    let scene = Scene::new();
    let _objects = system_v::Objects::of(&scene);
    let run = Launch::Run(vec!["--interval".to_owned(), "1s".to_owned()]);
    let life = Life::start(&scene, "life", &timed_calls(&scene), &run, Stdout::File);
    let store = life.store();
    all_have_waited(&scene, life, Gone::default());
    assert!(store.sealed(&scene).len() > 1, "checkpoints were taken all the time");
}

#[test]
fn time_outs_go_on_with_what_is_left_after_a_restart() {
    let scene = Scene::new();
    let _objects = system_v::Objects::of(&scene);
    let life = Life::preloaded(&scene, "life", &timed_calls(&scene));
    at_step(&life, 200);
    let (life, gone) = gone_and_back(&scene, life);
    all_have_waited(&scene, life, gone);
}

#[test]
fn time_outs_go_on_with_what_is_left_after_the_restart_of_a_restart() {
    let scene = Scene::new();
    let _objects = system_v::Objects::of(&scene);
    let life = Life::preloaded(&scene, "life", &timed_calls(&scene));
    at_step(&life, 80);
    checkpoint(&scene, life.pid);
    at_step(&life, 120);
    let (life, first) = gone_and_back(&scene, life);
    at_step(&life, 170);
    checkpoint(&scene, life.pid);
    at_step(&life, 200);
    let (life, second) = gone_and_back(&scene, life);
    let gone = Gone { at_least: first.at_least + second.at_least, at_most: first.at_most + second.at_most };
    all_have_waited(&scene, life, gone);
}

#[test]
fn time_outs_are_kept_when_the_agent_dies() {
    let scene = Scene::new();
    let _objects = system_v::Objects::of(&scene);
    let life = Life::preloaded(&scene, "life", &timed_calls(&scene));
    for step in [80, 140, 200] {
        at_step(&life, step);
        checkpoint(&scene, life.pid);
        processes::end_agents(life.pid);
    }
    all_have_waited(&scene, life, Gone::default());
}

#[test]
fn time_outs_are_kept_in_a_static_program() {
    let scene = Scene::new();
    let _objects = system_v::Objects::of(&scene);
    let program = patient(&scene, Program::static_victim("timed_calls"));
    let life = Life::start(&scene, "life", &program, &Launch::Run(Vec::new()), Stdout::File);
    // It is given our code when it is stopped first.
    for step in [80, 140] {
        at_step(&life, step);
        checkpoint(&scene, life.pid);
    }
    at_step(&life, 200);
    let (life, gone) = gone_and_back(&scene, life);
    all_have_waited(&scene, life, gone);
}

/// How long the timer of timer.js has waited, ms; it is one of four seconds.
fn waited_by_node(mut life: Life<'_>) -> u64 {
    assert_eq!(code_of(life.wait()), 7, "{}\n{}", life.output.text(), life.errors());
    let text = life.output.text();
    let ms = text.lines().find_map(|line| line.strip_prefix("timer waited ")?.strip_suffix(" ms"));
    ms.and_then(|ms| ms.parse().ok()).unwrap_or_else(|| panic!("no number in {text}"))
}

#[test]
fn a_timer_of_node_fires_while_checkpoints_are_taken_all_the_time() {
    let scene = Scene::new();
    let run = Launch::Run(vec!["--interval".to_owned(), "1s".to_owned()]);
    let life = Life::start(&scene, "life", &Program::node("timer.js"), &run, Stdout::File);
    let store = life.store();
    let ms = waited_by_node(life);
    assert!((4000..4000 + LATE_MS).contains(&ms), "{ms}");
    assert!(!store.sealed(&scene).is_empty(), "checkpoints were taken");
}

#[test]
fn a_timer_of_node_goes_on_with_what_is_left_after_a_restart() {
    let scene = Scene::new();
    let life = Life::preloaded(&scene, "life", &Program::node("timer.js"));
    life.output.wait_for_line("ready");
    // Time that passes for the timer.
    sleep(Duration::from_secs(3));
    let (life, gone) = gone_and_back(&scene, life);
    let ms = waited_by_node(life);
    let allowed = gone.allows(4000);
    assert!(allowed.contains(&ms), "{ms} ms, allowed are {allowed:?}");
}

#[test]
fn an_unwinder_finds_its_way_out_of_a_call_that_goes_on_after_a_restart() {
    survives_once(&Program::victim("unwound").argument("60"), 20);
}

macro_rules! calls_on_sockets {
    ($($name:ident)*) => {
        mod a_call_on_a_socket_notices_neither_a_checkpoint_nor_a_restart {$(
            #[test]
            fn $name() {
                let scene = ckpt_tests::Scene::new();
                let program = ckpt_tests::Program::victim("socket_calls").argument("40").argument(stringify!($name));
                let reference = ckpt_tests::exact::reference(&scene, &program);
                ckpt_tests::exact::survives(&scene, &program, ckpt_tests::exact::How::usual(), 10, &reference);
            }
        )*}
    };
}

calls_on_sockets! {
    accept accept_timed accept4_timed connect connect_timed
    recv recv_timed recvmsg_timed recvmmsg_timed read_timed readv_timed
    send_timed sendmsg_timed sendmmsg_timed write_timed writev_timed
}
