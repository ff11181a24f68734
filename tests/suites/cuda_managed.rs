//! Managed memory that libckpt.so has pinned is to the program what the driver's own is: each case holds for both. And what drivers
//! let be done with their own is found out by a trial.

use ckpt_tests::cuda::{self, ends_well};
use ckpt_tests::{Ckpt, Launch, Program, Scene, cases};
use serde_json::Value;

fn case(name: &str, whose: &str) -> Program {
    cuda::program("managed").argument(name).argument(whose)
}

fn pinned(program: Program) -> Program {
    program.variable("CKPT_MANAGED_BACKING", "pinned")
}

/// The case with the driver alone, with libckpt.so, and with memory pinned.
fn holds(name: &str, variables: &[(&str, &str)]) {
    let with =
        |program: Program| variables.iter().fold(program, |program, (name, value)| program.variable(name, value));
    ends_well(&with(case(name, "native")), &Launch::Plain);
    ends_well(&with(case(name, "native")), &Launch::Preload);
    ends_well(&with(pinned(case(name, "pinned"))), &Launch::Preload);
}

cases! { holds:
    it_is_said_to_be_managed;
    host_and_devices_have_the_same_bytes ("CKPT_DOUBLE_DEVICES" = "2");
    advice_is_taken;
    only_what_begins_there_can_be_freed_and_once;
    memory_is_freed_when_nothing_uses_it_any_more;
    memory_ends_with_its_context;
    what_cannot_be_pinned_is_the_drivers ("CKPT_DOUBLE_FAIL" = "cuMemHostAlloc:2:2");
}

#[test]
fn that_memory_cannot_be_pinned_is_said_in_the_log() {
    let program = pinned(case("what_cannot_be_pinned_is_the_drivers", "pinned"));
    let log = ends_well(&program.variable("CKPT_DOUBLE_FAIL", "cuMemHostAlloc:2:2"), &Launch::Preload);
    assert!(log.contains("managed memory of 1048576 bytes cannot be pinned (error 2 of the CUDA driver)"), "{log}");
}

/// What `ckpt devices --managed` finds out about the double with these variables: whether managed memory leaves, comes back and can
/// be replaced by memory that is registered, and why not.
fn trial(variables: &[(&str, &str)]) -> ([bool; 3], String) {
    let scene = Scene::new();
    let driver = format!("--driver={}", cuda::library().join("libcuda.so.1").display());
    let command = Ckpt::new(&scene, ["devices", "--managed", &driver]);
    let command = variables.iter().fold(command, |command, (name, value)| command.variable(name, *value));
    let answer = command.call().succeeded();
    let told: Value = serde_json::from_str(&answer.stdout).expect("JSON");
    let is = |name: &str| told[name].as_bool().expect(name);
    let why = told["why"].as_str().unwrap_or_default().to_owned();
    ([is("leaves"), is("comes_back"), is("can_be_registered")], why)
}

#[test]
fn a_trial_says_that_managed_memory_leaves_and_comes_back() {
    assert_eq!(trial(&[]), ([true; 3], String::new()));
}

#[test]
fn a_trial_says_that_managed_memory_does_not_come_back_where_it_was() {
    let (found, why) = trial(&[("CKPT_DOUBLE_MANAGED", "elsewhere")]);
    assert_eq!(found, [true, false, true]);
    assert!(why.contains("does not come back at the same addresses"), "{why}");
}

#[test]
fn a_trial_says_that_the_driver_keeps_managed_memory_that_is_freed() {
    let (found, why) = trial(&[("CKPT_DOUBLE_MANAGED", "kept")]);
    assert_eq!(found, [false; 3]);
    assert!(why.contains("managed memory stays mapped when it is freed") && why.contains("ckpt-double"), "{why}");
}

/// Which it would do silently, and whatever is registered there.
#[test]
fn a_trial_says_that_the_driver_uses_the_addresses_again_for_other_memory() {
    let (found, why) = trial(&[("CKPT_DOUBLE_MANAGED", "reserved")]);
    assert_eq!(found, [true, true, false]);
    assert!(why.contains("lies on memory that is registered in place of managed memory"), "{why}");
}

#[test]
fn a_trial_says_which_call_the_driver_refuses() {
    for (call, found) in [
        ("cuMemAllocManaged:1:801", [false; 3]),
        ("cuMemFree_v2:2", [false; 3]),
        ("cuCheckpointProcessLock:1", [false; 3]),
        ("cuCheckpointProcessCheckpoint:1", [false; 3]),
        ("cuCheckpointProcessRestore:1", [false; 3]),
        ("cuCheckpointProcessUnlock:1", [false; 3]),
        ("cuMemAllocManaged:7", [true, false, true]),
        ("cuMemHostRegister_v2:1", [true, true, false]),
        ("cuCheckpointProcessCheckpoint:2", [true, true, false]),
    ] {
        let (name, _) = call.split_once(':').expect("a name");
        let (tried, why) = trial(&[("CKPT_DOUBLE_FAIL", call)]);
        assert_eq!(tried, found, "{call}: {why}");
        assert!(why.contains(name), "{call}: {why}");
    }
}
