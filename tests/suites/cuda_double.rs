//! The double of the CUDA driver: it answers as the driver does, and what only it can show.

use std::collections::BTreeSet;
use std::fs;

use ckpt_tests::exact::assert_same;
use ckpt_tests::{Ckpt, Launch, Life, Program, Restart, Scene, Stdout, code_of, cuda, processes, product};
use nix::sys::signal::Signal;

/// Runs a program without ckpt: its exit code, its stdout, its stderr.
fn run(program: &Program) -> (i32, Vec<u8>, String) {
    let scene = Scene::new();
    let mut life = Life::start(&scene, "life", program, &Launch::Plain, Stdout::File);
    let code = code_of(life.wait());
    (code, life.output.bytes(), life.errors())
}

/// The trace is also what a real driver answers: `conformance KERNELS.ptx` prints it on a machine with a GPU.
#[test]
fn the_double_answers_as_the_trace_says() {
    let expected = product::repository().join("tests/victims/cuda/conformance.txt");
    let (code, trace, errors) = run(&cuda::program("conformance").argument(cuda::kernels()));
    assert_eq!((code, errors), (0, String::new()), "{}", String::from_utf8_lossy(&trace));
    assert_same(&trace, &fs::read(expected).expect("the trace is there"), "the trace");
}

/// A program finds by name and version what it finds by linking.
#[test]
fn every_entry_point_is_in_the_table() {
    let folder = product::repository().join("tests/cuda");
    let table = fs::read_to_string(folder.join("entry_points.cc")).expect("a source");
    let listed: BTreeSet<&str> = table.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
    let mut defined = 0;
    for entry in fs::read_dir(&folder).expect("the double's folder") {
        let path = entry.expect("an entry").path();
        let text = fs::read(&path).unwrap_or_default();
        for line in String::from_utf8_lossy(&text).lines() {
            let Some(name) = line.strip_prefix("CUresult cu").and_then(|rest| rest.split_once('(')) else { continue };
            defined += 1;
            let name = format!("cu{}", name.0);
            assert!(listed.contains(&name[..]), "{} has {name}, which the table has not", path.display());
        }
    }
    assert!(defined > 200, "only {defined} entry points were found");
}

fn case(name: &str) -> Program {
    cuda::program("double_only").argument(cuda::kernels()).argument(name)
}

fn holds(program: &Program) {
    let (code, _, errors) = run(program);
    assert_eq!((code, &errors[..]), (0, ""));
}

macro_rules! cases {
    ($($name:ident $(($variable:literal = $value:literal))*;)*) => { $(
        #[test]
        fn $name() {
            holds(&case(stringify!($name))$(.variable($variable, $value))*);
        }
    )* };
}

cases! {
    a_call_waits_while_the_process_is_locked;
    the_lock_waits_for_work_but_not_for_ever;
    managed_memory_is_refused;
    what_other_processes_may_have_is_refused;
    a_checkpoint_leaves_nothing_on_the_device_and_a_restore_brings_all_back;
    a_restore_without_room_fails_for_good;
    memory_is_counted_as_the_driver_does ("CKPT_DOUBLE_MEMORY" = "0x4000000");
    what_a_stream_has_freed_it_can_have_again ("CKPT_DOUBLE_MEMORY" = "0x4000000");
    a_copy_may_not_leave_its_allocation;
    new_memory_is_far_from_the_heap_and_not_zero;
    a_reservation_is_where_it_is_wanted_if_that_is_free;
    what_crosses_each_bus_is_counted;
    devices_have_memory_of_their_own ("CKPT_DOUBLE_DEVICES" = "2") ("CKPT_DOUBLE_MEMORY" = "0x4000000");
    what_belongs_to_a_context_ends_with_it;
    a_pool_of_managed_memory_can_be_the_current_one;
    a_default_stream_of_each_thread_is_another_one;
}

/// What the double does with managed memory that is freed, and with ordinary memory that takes its place.
#[track_caller]
fn replaced(name: &str, ways: &[&str]) {
    for way in ways {
        let program = cuda::program("replaced").argument(cuda::kernels_without_variables()).argument(name);
        let (code, _, errors) = run(&program.variable("CKPT_DOUBLE_MANAGED", way));
        assert_eq!((code, &errors[..]), (0, ""), "CKPT_DOUBLE_MANAGED={way}");
    }
}

#[test]
fn of_managed_memory_that_is_freed_nothing_is_left() {
    replaced("nothing_is_left", &["", "elsewhere"]);
}

#[test]
fn managed_memory_comes_back_where_it_was_or_elsewhere() {
    replaced("it_comes_back_where_it_was", &["", "reserved"]);
    replaced("what_is_allocated_later_is_elsewhere", &["elsewhere"]);
}

#[test]
fn ordinary_memory_can_take_the_place_of_managed_memory() {
    replaced("ordinary_memory_can_take_its_place", &["", "elsewhere"]);
}

#[test]
fn a_driver_may_keep_managed_memory_or_its_addresses() {
    replaced("memory_is_kept", &["kept"]);
    replaced("addresses_are_held", &["reserved"]);
    replaced("held_addresses_are_used_whatever_lies_there", &["reserved"]);
}

#[test]
fn what_is_mapped_faults_without_access() {
    let (code, _, errors) = run(&case("what_is_mapped_faults_without_access"));
    assert_eq!((code, &errors[..]), (128 + libc::SIGSEGV, ""));
}

/// What a checkpointed process still has of the double is what `ckpt` takes of any process.
#[test]
fn a_program_whose_device_is_checkpointed_can_be_restarted() {
    let program = cuda::program("evicted");
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("ready");
    Ckpt::new(&scene, ["checkpoint", "--kill", &life.pid.to_string()]).call().succeeded();
    life.kill();
    let mut next = Restart::of(life.store().path()).begin(&scene, &life.directory, life.pid);
    processes::send(next.pid, Signal::SIGUSR2);
    assert_eq!(code_of(next.wait()), 0);
    let text = life.output.text();
    assert!(text.contains("memory as before: yes") && text.contains("the stream still works: yes"), "{text}");
}

#[test]
fn without_devices_there_is_nothing_to_initialise() {
    let (code, _, errors) = run(&case("what_crosses_each_bus_is_counted").variable("CKPT_DOUBLE_DEVICES", "0"));
    assert_eq!(code, 1);
    assert!(errors.contains("CUDA_ERROR_NO_DEVICE"), "{errors}");
}
