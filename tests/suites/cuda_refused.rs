//! What cannot be checkpointed of a program with CUDA devices is refused by name, and the program goes on; on the double of the driver.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ckpt_tests::counted::{
    ask_checkpoint, at_fifth_step, counting, counting_with, ended_like, go_on, goes_on_again, scene,
};
use ckpt_tests::exact::{assert_same, reference};
use ckpt_tests::{Ckpt, Life, Program, Restart, Scene, checkpoint, code_of, cuda, processes};
use nix::sys::signal::Signal;

/// A checkpoint of this program is refused by these names, and `look` looks at its life then; it goes on to its end.
#[track_caller]
fn is_refused(scene: &Scene, program: &Program, names: &[&str], look: impl FnOnce(&Life<'_>)) {
    let whole = reference(scene, program);
    let life = at_fifth_step(scene, program);
    let answer = ask_checkpoint(scene, life.pid).failed_with(4);
    assert!(names.iter().all(|name| answer.stderr.contains(name)), "{names:?}: {}", answer.stderr);
    look(&life);
    go_on(scene);
    ended_like(life, &whole);
}

const EXPORTED: &str = "device memory that other processes may have";

#[test]
fn what_the_driver_does_not_checkpoint_is_refused_by_name_and_goes_on() {
    let program = counting(&["plain", "exported"]).variable("CKPT_DEVICE_BACKING", "native");
    let scene = scene();
    is_refused(&scene, &program, &[EXPORTED], |life| {
        let row = life.store().rows(&scene).pop().expect("a row");
        assert!(row.reason.contains(EXPORTED), "{row:?}");
    });
}

#[test]
fn managed_memory_of_a_pool_is_refused_by_name() {
    let words = "managed memory of a pool, 1048576 bytes at";
    is_refused(&scene(), &counting(&["managed", "managed_pool"]), &[words], |_| {});
}

/// Where the driver keeps mapped what is freed of managed memory, or holds its addresses and uses them again whatever lies there.
#[test]
fn managed_memory_is_refused_by_name_where_the_driver_does_not_let_it_be_evacuated() {
    for (driver, why) in [("kept", "mapped"), ("reserved", "in place of managed memory")] {
        let program = counting(&["plain", "managed"]).variable("CKPT_DOUBLE_MANAGED", driver);
        let scene = scene();
        let whole = reference(&scene, &program);
        let life = at_fifth_step(&scene, &program);
        let asks = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).variable("CKPT_DOUBLE_MANAGED", driver);
        let said = asks.call().failed_with(4).stderr;
        assert!(said.contains("managed memory (cuMemAllocManaged), 1048576 bytes at"), "{driver}: {said}");
        assert!(said.contains("nor can it be evacuated before") && said.contains(why), "{driver}: {said}");
        go_on(&scene);
        ended_like(life, &whole);
    }
}

#[test]
fn a_managed_variable_that_the_program_never_asks_for_is_refused_by_name() {
    let program = counting_with(&cuda::kernels(), &["plain"]);
    is_refused(&scene(), &program, &["a __managed__ variable, 16 bytes at"], |_| {});
}

#[test]
fn a_program_that_is_stopped_is_refused_until_it_goes_on() {
    let program = counting(&["plain"]);
    let scene = scene();
    let whole = reference(&scene, &program);
    let life = at_fifth_step(&scene, &program);
    processes::send(life.pid, Signal::SIGSTOP);
    processes::wait_until("it is stopped", Duration::from_secs(10), || processes::is_stopped(life.pid));
    let answer = ask_checkpoint(&scene, life.pid).failed_with(4);
    assert!(answer.stderr.contains("SIGSTOP"), "{}", answer.stderr);
    processes::send(life.pid, Signal::SIGCONT);
    checkpoint(&scene, life.pid);
    go_on(&scene);
    ended_like(life, &whole);
}

#[test]
fn a_child_that_libc_does_not_know_of_is_refused_with_its_parents_context() {
    let program = cuda::program("forked");
    let scene = scene();
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("forked");
    let answer = ask_checkpoint(&scene, life.pid).failed_with(4);
    assert!(answer.stderr.contains("a CUDA context that its parent had"), "{}", answer.stderr);
    processes::send(life.pid, Signal::SIGUSR2);
    life.output.wait_for_line("alone");
    checkpoint(&scene, life.pid);
    processes::send(life.pid, Signal::SIGUSR2);
    assert_eq!(code_of(life.wait()), 0, "{}", life.output.text());
}

/// What the driver is asked, it may also lose: so it is not asked.
#[test]
fn what_the_program_has_exported_is_refused_before_the_driver_is_asked() {
    let event = "an event that other processes may have";
    let pool = "a pool that other processes may have";
    for (kind, name) in [
        ("exported", EXPORTED),
        ("shared", EXPORTED),
        ("in_a_file", EXPORTED),
        ("event_handle", event),
        ("pool_handle", pool),
    ] {
        let program = counting(&["plain", kind]);
        let scene = scene();
        let failed = scene.path().join("failed");
        let program = program.variable("CKPT_DOUBLE_FAIL", "cuCheckpointProcessLock:1");
        let program = program.variable("CKPT_DOUBLE_FAILED", &failed);
        is_refused(&scene, &program, &[name], |_| assert!(!failed.exists(), "{kind}: the driver was asked to lock"));
    }
}

/// For want of room for a copy.
#[test]
fn memory_that_a_checkpoint_of_data_had_to_export_is_refused_from_then_on() {
    // What the program has of it.
    let program = counting(&["plain", "mapped"]).variable("CKPT_DOUBLE_MEMORY", (4 << 20).to_string());
    let scene = scene();
    let whole = reference(&scene, &program);
    let life = at_fifth_step(&scene, &program);
    checkpoint(&scene, life.pid);
    Ckpt::new(&scene, ["checkpoint", "--data", &life.pid.to_string()]).call().succeeded();
    let answer = ask_checkpoint(&scene, life.pid).failed_with(4);
    assert!(answer.stderr.contains(EXPORTED), "{}", answer.stderr);
    go_on(&scene);
    ended_like(life, &whole);
}

#[test]
fn a_part_of_a_device_is_refused_by_name() {
    // The double has whole devices whatever this says.
    let program = counting(&["plain"]).variable("CUDA_VISIBLE_DEVICES", "MIG-5c2f4f0a-3a4e-5b11-8c34-0f6a3a5a7a11");
    is_refused(&scene(), &program, &["a part of a device (MIG, as CUDA_VISIBLE_DEVICES says)"], |_| {});
}

/// Without a variable, a driver shows the first part of a device that has parts.
#[test]
fn a_part_of_a_device_that_no_variable_names_is_refused_by_name() {
    let model = "NVIDIA H100 80GB HBM3 MIG 1g.10gb";
    let program = counting(&["plain"]).variable("CKPT_DOUBLE_MODEL", model);
    let scene = scene();
    let whole = reference(&scene, &program);
    let life = at_fifth_step(&scene, &program);
    let asks = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).variable("CKPT_DOUBLE_MODEL", model);
    let said = asks.call().failed_with(4).stderr;
    assert!(said.contains(&format!("a part of a device (MIG, {model})")), "{said}");
    go_on(&scene);
    ended_like(life, &whole);
}

const FIRST_VERSION: &str = "which are there from version 570 on";

/// Puts the double into a folder, as a driver that has the calls of a checkpoint or is older than these.
fn put_driver(folder: &Path, is_older: bool) {
    const PREFIX: &[u8] = b"cuCheckpointProcess";
    let mut driver = fs::read(cuda::library().join("libcuda.so.1")).expect("the double");
    let names: Vec<usize> =
        driver.windows(PREFIX.len()).enumerate().filter(|(_, it)| *it == PREFIX).map(|(at, _)| at).collect();
    assert!(names.len() >= 5, "the names of five functions");
    if is_older {
        names.into_iter().for_each(|at| driver[at + 2] = b'_');
    }
    fs::create_dir_all(folder).expect("a folder in the scene");
    // The one that is there may be in use.
    fs::write(folder.join("new"), driver).expect("a file in the scene");
    fs::rename(folder.join("new"), folder.join("libcuda.so.1")).expect("the same folder");
}

#[test]
fn a_trial_with_managed_memory_says_that_a_driver_is_older() {
    let scene = scene();
    let driver = scene.path().join("driver");
    put_driver(&driver, true);
    let driver = format!("--driver={}", driver.join("libcuda.so.1").display());
    let answer = Ckpt::new(&scene, ["devices", "--managed", &driver]).call().succeeded();
    let wanted = "\"leaves\":false,\"why\":\"the driver has no calls that checkpoint a process: ";
    assert!(answer.stdout.contains(wanted), "{}", answer.stdout);
}

#[test]
fn with_an_older_driver_there_are_checkpoints_of_data_alone() {
    let program = counting(&["plain"]);
    let scene = scene();
    let driver = scene.path().join("driver");
    put_driver(&driver, true);
    let program = program.variable("LD_LIBRARY_PATH", &driver);
    is_refused(&scene, &program, &[FIRST_VERSION, "ckpt checkpoint --data"], |life| {
        Ckpt::new(&scene, ["checkpoint", "--data", &life.pid.to_string()]).call().succeeded();
    });
}

#[test]
fn a_restart_with_an_older_driver_is_refused_by_name() {
    let program = counting(&["plain"]);
    let scene = scene();
    let driver = scene.path().join("driver");
    put_driver(&driver, false);
    let program = program.variable("LD_LIBRARY_PATH", &driver);
    let whole = reference(&scene, &program);
    let mut life = at_fifth_step(&scene, &program);
    checkpoint(&scene, life.pid);
    life.kill();
    go_on(&scene);
    let printed = life.output.bytes();
    put_driver(&driver, true);
    let mut refused = Restart::of(life.store()).spawn(&scene, &life.directory);
    assert_eq!(code_of(refused.wait()), 124, "{}", refused.errors());
    assert!(refused.errors().contains(FIRST_VERSION), "{}", refused.errors());
    assert_same(&life.output.bytes(), &printed, "nothing has run");
    put_driver(&driver, false);
    goes_on_again(&scene, Restart::of(life.store()), &life, &whole);
}
