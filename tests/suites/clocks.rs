//! `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` go on from life to life, whatever those of the machine do.
//!
//! No test boots a machine. A first life in a time namespace far ahead of the machine is one on a machine that was up
//! for long; where its second life runs, the machine has been up for less. The id of the boot is a file over the
//! kernel's.

use std::time::Duration;

use ckpt_tests::boot::{Ahead, Boots, ahead, can_be_ahead, time_namespace};
use ckpt_tests::exact::{How, Trigger, assert_same, reference, survives, take};
use ckpt_tests::ordinary_user::as_ordinary_user;
use ckpt_tests::{Launch, Life, Program, Restart, Scene, Stdout, checkpoint, code_of, processes, skip};
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};

/// Eleven days and twenty-three.
const LONG: Ahead = Ahead { monotonic: 1_000_000, boottime: 2_000_000 };
/// Steps of the victim: it ends by itself while no test is looking, otherwise a test has to wait for it.
const STEPS: usize = 60;

fn clocks(scene: &Scene) -> Program {
    Program::victim("clocks").argument(STEPS.to_string()).waiting(STEPS - 5, &scene.path().join("enough"))
}

fn scene() -> Option<Scene> {
    if can_be_ahead() || !nix::unistd::geteuid().is_root() {
        return Some(Scene::of_at_most(Duration::from_secs(120)));
    }
    skip("no time namespace can be made here");
    None
}

/// A first life that is so far `ahead` of the machine, under way.
fn first_life<'scene>(scene: &'scene Scene, ahead: Ahead) -> Life<'scene> {
    let life = Life::start(scene, "life", &clocks(scene), &Launch::Ahead(ahead), Stdout::File);
    life.output.wait_for_lines(3);
    life
}

/// The same with a checkpoint, and dead.
fn dead_life<'scene>(scene: &'scene Scene, ahead: Ahead) -> Life<'scene> {
    let mut life = first_life(scene, ahead);
    checkpoint(scene, life.pid);
    life.kill();
    life
}

/// Waits for `count` more lines. On a slow machine a life may have come to where the victim waits for the test before its
/// checkpoint was taken: then there are fewer to come, and those behind that place show the rest.
fn wait_for_more_lines(life: &Life<'_>, count: usize) {
    // The first line is before all steps.
    const LINES_BEFORE_THE_WAIT: usize = 1 + STEPS - 5;
    let printed = life.output.lines();
    life.output.wait_for_lines((printed + count).min(LINES_BEFORE_THE_WAIT));
}

/// Lets the victim come to its end, and asserts what all lives have printed.
fn ends_well(scene: &Scene, mut life: Life<'_>) {
    std::fs::write(scene.path().join("enough"), "").expect("a file in the scene");
    assert_eq!(code_of(life.wait()), 7, "{}\n{}", life.output.text(), life.errors());
    let expected = reference(scene, &clocks(scene));
    assert_same(&life.output.bytes(), &expected.stdout, "the output of all lives");
}

/// Asserts that process `pid` is about as far ahead as `expected`, and in the steps that make start times the same
/// for all.
#[track_caller]
fn is_ahead(pid: i32, expected: Ahead) {
    const TICK_NS: i64 = 10_000_000;
    let (found, boottime_ns) = ahead(pid);
    let far = |found: i64, expected: i64| (found - expected).abs() > 30;
    let wrong = far(found.monotonic, expected.monotonic) || far(found.boottime, expected.boottime);
    assert!(!wrong && boottime_ns % TICK_NS == 0, "{found:?} and {boottime_ns} ns, not {expected:?}");
}

/// Restarts of restarts, with checkpoints asked for from outside of the time namespace and from inside.
fn four_lives(outer_is_inner: bool) {
    let Some(scene) = scene() else { return };
    let mut life = first_life(&scene, LONG);
    let (pid, directory, store) =
        (processes::pid_in_its_namespace(life.pid).expect("it runs"), life.directory.clone(), life.store());
    for triggers in
        [[Trigger::Command, Trigger::Command], [Trigger::Signal, Trigger::Command], [Trigger::Command, Trigger::Signal]]
    {
        for trigger in triggers {
            take(&scene, &life, trigger);
        }
        let agents = processes::agents_of(pid);
        assert_eq!(agents.len(), 1, "one agent, from wherever it is asked: {agents:?}");
        wait_for_more_lines(&life, 2);
        life.kill();
        life = Restart::of(&store).begin(&scene, &directory, pid);
        assert_eq!(life.pid == pid, outer_is_inner, "{}", life.errors());
        wait_for_more_lines(&life, 2);
        assert_eq!(ahead(life.pid), (LONG, 0), "to the nanosecond, on the same boot");
        assert_ne!(time_namespace(life.pid), time_namespace(std::process::id().cast_signed()), "only the program is");
        assert_eq!(time_namespace(life.child.id().cast_signed()), time_namespace(std::process::id().cast_signed()));
    }
    ends_well(&scene, life);
}

#[test]
fn clocks_that_were_ahead_stay_so_over_generations() {
    four_lives(true);
}

#[test]
fn those_of_an_ordinary_users_program_too() {
    as_ordinary_user(&["clocks"], &[], || four_lives(false));
}

/// Runtimes that plan by these clocks: a virtual machine, an event loop, an interpreter.
fn goes_on_exactly(program: &Program) {
    let Some(scene) = scene() else { return };
    let reference = reference(&scene, program);
    let how = How { stdout: Stdout::File, trigger: Trigger::Command, launch: Launch::Ahead(LONG) };
    survives(&scene, program, how, reference.lines() / 3, &reference);
}

#[test]
fn java_that_was_ahead_goes_on_exactly() {
    goes_on_exactly(&Program::java("Lines").argument("80"));
}

#[test]
fn node_that_was_ahead_goes_on_exactly() {
    goes_on_exactly(&Program::node("lines.js").argument("80"));
}

#[test]
fn python_that_was_ahead_goes_on_exactly() {
    goes_on_exactly(&Program::python("lines.py").argument("80").writes("lines"));
}

#[test]
fn on_the_boot_of_the_checkpoint_a_program_gets_no_time_namespace() {
    let scene = Scene::new();
    let life = Life::until_checkpoint(&scene, "life", &clocks(&scene), 3);
    let second =
        Restart::of(life.store()).option("--clocks").option("continue").begin(&scene, &life.directory, life.pid);
    assert_eq!(time_namespace(second.pid), time_namespace(std::process::id().cast_signed()), "{}", second.errors());
    ends_well(&scene, second);
}

/// What a restart says, but for the line that counts the files which it has put back.
fn said_of_clocks(life: &Life<'_>) -> String {
    let is_of_files = |line: &&str| line.contains(" again as ");
    life.errors().lines().filter(|line| !is_of_files(line)).collect()
}

/// A life that was `before` ahead of the machine goes on after a boot, twice.
fn goes_on_after_boots(before: Ahead) {
    let Some(scene) = scene() else { return };
    let boots = Boots::new(scene.path());
    let mut life = dead_life(&scene, before);
    for _ in 0..2 {
        boots.again();
        let second = Restart::of(life.store()).begin(&scene, &life.directory, life.pid);
        wait_for_more_lines(&second, 3);
        is_ahead(second.pid, before);
        assert_eq!(said_of_clocks(&second), "", "nothing is given up");
        take(&scene, &second, Trigger::Signal);
        checkpoint(&scene, second.pid);
        assert_eq!(processes::agents_of(second.pid).len(), 1, "one agent, from wherever it is asked");
        life = second;
        life.kill();
    }
    boots.again();
    ends_well(&scene, Restart::of(life.store()).begin(&scene, &life.directory, life.pid));
}

#[test]
fn after_a_boot_clocks_go_on_with_the_time_that_passed() {
    goes_on_after_boots(LONG);
}

#[test]
fn on_a_host_that_has_been_up_for_longer_they_do_not_leap() {
    // Where it has slept, or was put back to an earlier moment, its two clocks are far from one another.
    let [monotonic, boottime] = [ClockId::CLOCK_MONOTONIC, ClockId::CLOCK_BOOTTIME]
        .map(|clock| clock_gettime(clock).expect("it is there").tv_sec());
    // What the life is behind has to be more than what [`is_ahead`] allows for.
    if monotonic.min(boottime) < 150 {
        return skip("this machine has just been booted");
    }
    goes_on_after_boots(Ahead { monotonic: 30 - monotonic, boottime: 60 - boottime });
}

#[test]
fn whoever_wants_the_clocks_of_the_machine_gets_them() {
    let Some(scene) = scene() else { return };
    let life = dead_life(&scene, LONG);
    let mut second = Restart::of(life.store()).option("--clocks").option("leave").spawn(&scene, &life.directory);
    assert_eq!(code_of(second.wait()), 1, "{}", second.errors());
    assert!(life.output.text().contains("went back by"), "{}", life.output.text());
    assert_eq!(said_of_clocks(&second), "", "as wanted");
}

#[test]
fn where_time_namespaces_are_forbidden_it_is_said_and_refused_if_wanted() {
    const FORBID: [&str; 8] = [
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        "echo 0 >/proc/sys/user/max_time_namespaces && exec \"$@\"",
        "sh",
        "env",
    ];
    let Some(scene) = scene() else { return };
    let life = dead_life(&scene, LONG);
    let printed = life.output.bytes();
    let restart = Restart::of(life.store()).by(&FORBID).option("--clocks");
    let mut refused = restart.clone().option("continue").spawn(&scene, &life.directory);
    assert_eq!(code_of(refused.wait()), 125, "{}", refused.errors());
    assert!(refused.errors().contains("user.max_time_namespaces is 0; root allows it with"), "{}", refused.errors());
    assert_same(&life.output.bytes(), &printed, "nothing has run");

    let mut second = restart.option("auto").spawn(&scene, &life.directory);
    assert_eq!(code_of(second.wait()), 1, "it goes on, and sees its clocks jump: {}", second.errors());
    let warnings: Vec<String> =
        second.errors().lines().filter(|line| line.starts_with("ckpt: warn: ")).map(str::to_owned).collect();
    assert_eq!(warnings.len(), 1, "{}", second.errors());
    for word in ["CLOCK_MONOTONIC jumps back by 10000", "user.max_time_namespaces is 0"] {
        assert!(warnings[0].contains(word), "{word:?} is missing: {}", warnings[0]);
    }
    assert!(life.output.text().contains("went back by"), "{}", life.output.text());
}

#[test]
fn a_program_that_is_ended_in_its_time_namespace_ends_its_restart() {
    let Some(scene) = scene() else { return };
    let life = dead_life(&scene, LONG);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut second = Restart::of(life.store()).begin(&scene, &life.directory, life.pid);
        processes::send(second.pid, signal);
        assert_eq!(second.wait().code(), Some(128 + signal as i32), "{}", second.errors());
    }
}
