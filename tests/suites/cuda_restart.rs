//! Programs with CUDA devices go on exactly, after a checkpoint and after a restart in a fresh process, on the double of the
//! driver.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::thread;
use std::time::Duration;

use ckpt_tests::control_group::ControlGroup;
use ckpt_tests::counted::{
    STEPS, ask_checkpoint, at_fifth_step, counting, ended_like, go_on, goes_on_again, goes_on_in_place, scene,
    survives_twice, triggered,
};
use ckpt_tests::exact::{How, Trigger, assert_same, reference, survives};
use ckpt_tests::ordinary_user::as_ordinary_user;
use ckpt_tests::{Ckpt, Life, Program, Restart, Stdout, checkpoint, code_of, cuda, fault, processes, skip};
use nix::sys::signal::Signal;

#[test]
fn plain_device_memory_comes_back() {
    survives_twice(&counting(&["plain", "small", "pitched"]));
}

#[test]
fn memory_that_the_driver_has_allocated_comes_back() {
    survives_twice(&counting(&["plain", "small", "pitched"]).variable("CKPT_DEVICE_BACKING", "native"));
}

#[test]
fn pools_mapped_memory_and_arrays_come_back() {
    survives_twice(&counting(&["pooled", "mapped", "array", "fleeting"]));
}

#[test]
fn memory_that_pools_keep_for_later_is_given_back_before() {
    // The host has room for what one of two pools has in a step, and not for what both have.
    survives_twice(&counting(&["idle", "plain"]).variable("CKPT_DOUBLE_HOST_BYTES", (64 * MIB).to_string()));
}

#[test]
fn memory_of_the_host_that_devices_write_to_comes_back() {
    survives_twice(&counting(&["pinned", "registered"]));
}

fn with_pinned(kinds: &[&str]) -> Program {
    counting(kinds).variable("CKPT_MANAGED_BACKING", "pinned")
}

#[test]
fn managed_memory_that_is_pinned_comes_back() {
    survives_twice(&with_pinned(&["plain", "managed"]));
}

#[test]
fn pinned_managed_memory_that_a_thread_uses_all_the_time_goes_on_in_place_and_comes_back() {
    let program = with_pinned(&["touched", "plain"]);
    goes_on_in_place(&program, 5);
    survives_twice(&program);
}

#[test]
fn a_graph_that_was_recorded_runs_on() {
    survives_twice(&counting(&["graph", "created"]));
}

fn loading() -> Program {
    cuda::program("loaders").argument(STEPS.to_string()).argument("3000")
}

#[test]
fn children_that_were_forked_behind_a_context_come_back() {
    survives_twice(&loading());
    goes_on_in_place(&loading(), 3);
}

#[test]
fn data_of_a_program_with_such_children_is_taken() {
    let scene = scene();
    let program = loading();
    let whole = reference(&scene, &program);
    let life = at_fifth_step(&scene, &program);
    Ckpt::new(&scene, ["checkpoint", "--data", &life.pid.to_string()]).call().succeeded();
    go_on(&scene);
    ended_like(life, &whole);
}

#[test]
fn two_devices_and_access_of_one_to_the_memory_of_the_other_come_back() {
    let program = counting(&["peer", "plain"]).variable("CKPT_DOUBLE_DEVICES", "2");
    let scene = scene();
    let whole = reference(&scene, &program);
    let mut life = at_fifth_step(&scene, &program);
    checkpoint(&scene, life.pid);
    life.kill();
    let restart = Restart::of(life.store()).variable("CKPT_DOUBLE_DEVICES", "2");
    go_on(&scene);
    goes_on_again(&scene, restart, &life, &whole);
}

#[test]
fn threads_that_never_stop_calling_the_driver_go_on_right() {
    let program = counting(&["threads", "plain"]);
    let scene = scene();
    let whole = reference(&scene, &program);
    for (line, trigger) in [(3, Trigger::Command), (20, Trigger::Signal), (45, Trigger::Command)] {
        survives(&scene, &program, triggered(trigger, Stdout::File), line, &whole);
    }
}

#[test]
fn all_memory_is_right_whatever_several_threads_call_and_whenever_checkpoints_are_taken() {
    for seed in 1..=3 {
        let program = cuda::program("interleaved")
            .argument(STEPS.to_string())
            .argument(seed.to_string())
            .argument(cuda::kernels_without_variables());
        let scene = scene();
        let whole = reference(&scene, &program);
        let mut first = at_fifth_step(&scene, &program);
        for _ in 0..4 {
            checkpoint(&scene, first.pid);
        }
        first.kill();
        let mut second = Restart::of(first.store()).begin(&scene, &first.directory, first.pid);
        checkpoint(&scene, first.pid);
        first.output.wait_for_lines(30);
        checkpoint(&scene, first.pid);
        second.kill();
        go_on(&scene);
        let mut last = Restart::of(first.store()).begin(&scene, &first.directory, first.pid);
        assert_eq!(code_of(last.wait()), whole.code, "seed {seed}: {}", last.errors());
        assert_same(&first.output.bytes(), &whole.stdout, &format!("the output of three lives, seed {seed}"));
    }
}

#[test]
fn it_is_restarted_from_the_checkpoint_of_a_restarted_life() {
    let program = counting(&["plain", "pooled", "graph", "pinned"]);
    let scene = scene();
    let whole = reference(&scene, &program);
    let mut first = at_fifth_step(&scene, &program);
    checkpoint(&scene, first.pid);
    first.kill();
    for lines in [12, 25] {
        let mut next = Restart::of(first.store()).begin(&scene, &first.directory, first.pid);
        first.output.wait_for_lines(lines);
        checkpoint(&scene, first.pid);
        next.kill();
    }
    go_on(&scene);
    let mut last = Restart::of(first.store()).begin(&scene, &first.directory, first.pid);
    assert_eq!(code_of(last.wait()), whole.code, "{}", last.errors());
    assert_same(&first.output.bytes(), &whole.stdout, "the output of four lives");
}

/// Restarted in this way, checkpointed there, and restarted in this way once more.
#[track_caller]
fn is_restarted_twice(options: &[&str]) {
    let with_options = |restart| options.iter().fold(restart, |restart: Restart, option| restart.option(option));
    lives_three_times(&counting(&["plain", "small", "pooled", "graph", "pinned"]), with_options);
}

#[track_caller]
fn lives_three_times(program: &Program, how: impl Fn(Restart) -> Restart) {
    let scene = scene();
    let whole = reference(&scene, program);
    let mut first = at_fifth_step(&scene, program);
    checkpoint(&scene, first.pid);
    first.kill();
    let restart = || how(Restart::of(first.store()));
    let mut second = restart().begin(&scene, &first.directory, first.pid);
    first.output.wait_for_lines(20);
    checkpoint(&scene, second.pid);
    second.kill();
    go_on(&scene);
    let mut third = restart().begin(&scene, &first.directory, first.pid);
    assert_eq!(code_of(third.wait()), whole.code, "{}", third.errors());
    assert_same(&first.output.bytes(), &whole.stdout, "the output of three lives");
}

#[test]
fn memory_of_every_kind_is_restarted_twice_in_a_row() {
    let kinds =
        ["plain", "pitched", "pooled", "mapped", "fleeting", "array", "registered", "graph", "created", "threads"];
    lives_three_times(&counting(&kinds), |restart| restart);
    lives_three_times(&counting(&kinds).variable("CKPT_DEVICE_BACKING", "native"), |restart| restart);
}

#[test]
fn two_devices_and_managed_memory_that_is_pinned_are_restarted_twice_in_a_row() {
    let program = with_pinned(&["peer", "managed", "touched"]).variable("CKPT_DOUBLE_DEVICES", "2");
    lives_three_times(&program, |restart| restart.variable("CKPT_DOUBLE_DEVICES", "2"));
}

#[test]
fn managed_memory_that_is_evacuated_is_restarted_twice_in_a_row() {
    lives_three_times(&counting(&["managed", "touched", "churned"]), |restart| restart);
}

#[test]
fn it_is_restarted_in_a_namespace() {
    is_restarted_twice(&["--namespace=always"]);
}

#[test]
fn it_is_restarted_with_memory_of_the_host_that_comes_later() {
    is_restarted_twice(&["--lazy"]);
    is_restarted_twice(&["--lazy", "--namespace=always"]);
}

#[test]
fn that_of_an_ordinary_user_is_restarted() {
    as_ordinary_user(&["cuda/counted"], &[], || is_restarted_twice(&[]));
}

#[test]
fn it_is_restarted_detached() {
    let program = counting(&["plain", "pooled"]);
    let scene = scene();
    let whole = reference(&scene, &program);
    let mut first = at_fifth_step(&scene, &program);
    checkpoint(&scene, first.pid);
    first.kill();
    let mut restart = Restart::of(first.store()).option("--detach").spawn(&scene, &first.directory);
    assert_eq!(code_of(restart.wait()), 0, "{}", restart.errors());
    first.output.wait_for_lines(20);
    checkpoint(&scene, first.pid);
    go_on(&scene);
    first.output.wait_for_lines(whole.lines());
    processes::wait_until("it ends", Duration::from_secs(10), || !processes::is_alive(first.pid));
    assert_same(&first.output.bytes(), &whole.stdout, "the output of both lives");
}

#[test]
fn it_goes_on_in_place_through_many_checkpoints() {
    goes_on_in_place(&counting(&["plain", "pooled", "graph", "threads"]), 8);
}

#[test]
fn one_that_is_ended_by_its_checkpoint_goes_on_where_it_was() {
    let program = counting(&["plain", "pooled"]);
    let scene = scene();
    let whole = reference(&scene, &program);
    survives(&scene, &program, triggered(Trigger::Kill, Stdout::File), 20, &whole);
}

#[test]
fn several_processes_with_devices_are_one_job() {
    let counted = counting(&["plain", "pooled"]);
    let mut script = String::from("for n in 1 2 3; do \"$@\" >of-$n & done; \"$@\"; code=$?; wait; exit $code");
    script.insert_str(0, "set -u; ");
    let mut program = Program::installed("sh").argument("-c").argument(script).argument("sh");
    for word in std::iter::once(counted.executable.clone().into_os_string()).chain(counted.arguments.clone()) {
        program = program.argument(word);
    }
    let library_path =
        counted.environment.iter().find(|(name, _)| name == "LD_LIBRARY_PATH").expect("it is set").clone();
    program = program.variable("LD_LIBRARY_PATH", library_path.1).writes("of-1").writes("of-2").writes("of-3");
    survives_twice(&program);
}

#[test]
fn a_process_of_a_job_that_ends_while_its_devices_are_taken_is_no_part_of_the_checkpoint() {
    for delay_ms in [0, 3, 10, 30, 100] {
        let program = cuda::program("vanishing").argument(delay_ms.to_string());
        let scene = scene();
        let mut life = Life::preloaded(&scene, "life", &program);
        life.output.wait_for_line("ready");
        checkpoint(&scene, life.pid);
        life.kill();
        let mut second = Restart::of(life.store()).begin(&scene, &life.directory, life.pid);
        processes::send(second.pid, Signal::SIGUSR2);
        assert_eq!(code_of(second.wait()), 0, "{delay_ms} ms: {} {}", life.errors(), second.errors());
    }
}

#[test]
fn a_program_that_has_begun_to_use_the_driver_and_no_device_is_restarted_and_uses_one_then() {
    let program = cuda::program("initialised");
    let scene = scene();
    let mut first = Life::preloaded(&scene, "life", &program);
    first.output.wait_for_line("initialised");
    checkpoint(&scene, first.pid);
    first.kill();
    let mut second = Restart::of(first.store()).begin(&scene, &first.directory, first.pid);
    processes::send(second.pid, Signal::SIGUSR2);
    first.output.wait_for_line("used");
    checkpoint(&scene, second.pid);
    second.kill();
    let mut third = Restart::of(first.store()).begin(&scene, &first.directory, first.pid);
    processes::send(third.pid, Signal::SIGUSR2);
    assert_eq!(code_of(third.wait()), 0, "{}", first.output.text());
    assert_eq!(first.output.text(), "initialised\nused\ndone\n");
}

/// The program goes on whatever step of the driver's fails, and the next checkpoint is one.
#[track_caller]
fn goes_on_when_the_driver_fails(wanted: &str, is_failed: bool) {
    goes_on_when_a_call_fails(&counting(&["plain", "pooled", "threads"]), wanted, is_failed);
}

#[track_caller]
fn goes_on_when_a_call_fails(program: &Program, wanted: &str, is_failed: bool) {
    let scene = scene();
    let failed = scene.path().join("failed");
    let failing = program.clone().variable("CKPT_DOUBLE_FAIL", wanted).variable("CKPT_DOUBLE_FAILED", &failed);
    let whole = reference(&scene, program);
    let mut life = at_fifth_step(&scene, &failing);
    let answer = ask_checkpoint(&scene, life.pid);
    assert_eq!(answer.code != 0, is_failed, "{wanted}: {answer:?}");
    let printed_before = life.output.bytes().len();
    let id = checkpoint(&scene, life.pid);
    let said = fs::read_to_string(&failed).expect("calls that failed");
    for (call, said) in wanted.split(',').zip(said.lines()) {
        assert!(call.starts_with(said), "{said} has failed, not {call}");
    }
    assert_eq!(said.lines().count(), wanted.split(',').count(), "{said}");
    life.kill();
    go_on(&scene);
    let death = ckpt_tests::exact::Death { id, printed_before };
    ckpt_tests::exact::goes_on(&scene, program, &How::usual(), &life, death, &whole);
}

/// Of one piece: its memory is seen to be kept and taken away, and then fetched and put back.
#[test]
fn memory_of_ours_that_cannot_be_taken_away_or_put_back_at_once_is_there_again() {
    let program = counting(&["plain"]);
    goes_on_when_a_call_fails(&program, "cuMemImportFromShareableHandle:1", true);
    goes_on_when_a_call_fails(&program, "cuMemUnmap:1", true);
    for call in ["cuMemImportFromShareableHandle:2", "cuMemMap:2", "cuMemSetAccess:2"] {
        goes_on_when_a_call_fails(&program, call, false);
    }
}

#[test]
fn a_driver_that_does_not_lock_fails_the_checkpoint_alone() {
    goes_on_when_the_driver_fails("cuCheckpointProcessLock:1", true);
}

#[test]
fn a_driver_that_does_not_checkpoint_fails_the_checkpoint_alone() {
    goes_on_when_the_driver_fails("cuCheckpointProcessCheckpoint:1", true);
}

#[test]
fn a_driver_that_neither_checkpoints_nor_unlocks_at_once_is_unlocked_again() {
    goes_on_when_the_driver_fails(
        "cuCheckpointProcessCheckpoint:1,cuCheckpointProcessUnlock:1,cuCheckpointProcessUnlock:2",
        true,
    );
}

#[test]
fn a_driver_that_does_not_unlock_at_once_is_asked_again() {
    goes_on_when_the_driver_fails("cuCheckpointProcessUnlock:1,cuCheckpointProcessUnlock:2", false);
}

#[test]
fn a_driver_that_cannot_restore_yet_is_asked_again() {
    goes_on_when_the_driver_fails("cuCheckpointProcessRestore:1:2,cuCheckpointProcessRestore:2:2", false);
}

#[test]
fn a_program_waits_for_devices_as_long_as_its_user_says_and_ends() {
    let program = counting(&["plain", "pooled"]);
    let scene = scene();
    let whole = reference(&scene, &program);
    // The driver finds no memory, again and again.
    let never: Vec<String> = (1..=60).map(|call| format!("cuCheckpointProcessRestore:{call}:2")).collect();
    let failing = program.clone().variable("CKPT_DOUBLE_FAIL", never.join(",")).variable("CKPT_DEVICE_WAIT", "2s");
    let mut life = at_fifth_step(&scene, &failing);
    let id = checkpoint(&scene, life.pid);
    assert_eq!(code_of(life.wait()), 128 + Signal::SIGKILL as i32, "it has nothing to go on with");
    let said = fs::read_to_string(life.store().path().join("log")).expect("a log");
    assert!(said.contains("the program waits for them"), "{said}");
    assert!(said.contains("the devices cannot be had again: the program ends"), "{said}");
    assert_eq!(life.store().sealed(&scene).last().map(|row| row.id), Some(id));
    assert!(whole.stdout.starts_with(&life.output.bytes()), "{}", life.output.text());
}

#[test]
fn a_program_waits_until_others_have_given_back_the_memory_that_it_had() {
    let program = counting(&["plain", "pooled"]);
    let scene = scene();
    let whole = reference(&scene, &program);
    let taker = scene.path().join("memory");
    let patient = program.clone().variable("CKPT_DOUBLE_TAKEN", &taker).variable("CKPT_DEVICE_WAIT", "100s");
    let life = at_fifth_step(&scene, &patient);
    fs::write(&taker, "").expect("a file in the scene");
    // Which is the agent's environment.
    let asks = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).variable("CKPT_DOUBLE_TAKEN", &taker);
    thread::scope(|scope| {
        let asked = scope.spawn(|| asks.call().succeeded());
        processes::wait_until("it is said that it waits", Duration::from_secs(60), || {
            let log = fs::read_to_string(life.store().path().join("log")).unwrap_or_default();
            log.contains("others have taken memory of")
        });
        go_on(&scene);
        fs::remove_file(&taker).expect("it was there");
        asked.join().expect("a checkpoint");
    });
    ended_like(life, &whole);
}

/// The agent has no context on the device then, and asks nobody for room.
#[test]
fn a_program_whose_devices_are_lost_ends_and_is_restarted() {
    ends_and_is_restarted(&counting(&["plain", "pooled"]).variable("CKPT_DEVICE_BACKING", "native"));
}

#[test]
fn a_program_whose_devices_are_lost_after_it_has_waited_ends_and_is_restarted() {
    ends_and_is_restarted(&counting(&["plain", "pooled"]).variable("CKPT_DEVICE_WAIT", "1s"));
}

#[track_caller]
fn ends_and_is_restarted(program: &Program) {
    let scene = scene();
    let whole = reference(&scene, program);
    let taker = scene.path().join("memory");
    let patient = program.clone().variable("CKPT_DOUBLE_TAKEN", &taker);
    let mut life = at_fifth_step(&scene, &patient);
    fs::write(&taker, "").expect("a file in the scene");
    let asks = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).variable("CKPT_DOUBLE_TAKEN", &taker);
    let id = asks.call().succeeded().number();
    assert_eq!(code_of(life.wait()), 128 + Signal::SIGKILL as i32, "it has nothing to go on with");
    let said = fs::read_to_string(life.store().path().join("log")).expect("a log");
    assert!(said.contains("the devices cannot be had again: the program ends"), "{said}");
    // Nor can it be restarted while others have the memory.
    let mut refused = Restart::of(life.store()).spawn(&scene, &life.directory);
    assert_eq!(code_of(refused.wait()), 125, "{}", refused.errors());
    assert!(refused.errors().contains("no memory left"), "{}", refused.errors());
    fs::remove_file(&taker).expect("it was there");
    go_on(&scene);
    goes_on_again(&scene, Restart::of(life.store()).id(id), &life, &whole);
}

#[test]
fn it_goes_on_when_the_agent_dies_while_the_devices_are_suspended() {
    let program = counting(&["plain", "pooled", "threads"]);
    let scene = scene();
    let whole = reference(&scene, &program);
    let life = at_fifth_step(&scene, &program);
    let dies_at = |point: &str| {
        processes::end_agents(life.pid);
        let answer = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).variable(fault::KILL, point).call();
        assert_ne!(answer.code, 0, "{point}: {answer:?}");
    };
    // The next one finds them suspended, or on their way.
    for point in ["devices.kept:1", "devices.asked:1", "devices.suspended:1", "ptrace.interrupt:5", "devices.resumed:1"]
    {
        dies_at(point);
    }
    checkpoint(&scene, life.pid);
    nobody_keeps_memory_of(life.pid);
    // And now there is no next one.
    let is_device = |of: &str| of.starts_with("/dev/nvidia");
    let (addresses, _) = mapped(life.pid, |_, of| is_device(of)).expect("the double has mapped a device");
    dies_at("devices.suspended:1");
    let (_, of) = mapped(life.pid, |there, _| there.start <= addresses.start && addresses.end <= there.end)
        .expect("nothing else may come to lie there");
    assert_eq!(of, "", "the addresses are reserved");
    go_on(&scene);
    processes::wait_until("its device is back", Duration::from_secs(30), || {
        mapped(life.pid, |_, of| is_device(of)).is_none_or(|(there, _)| there == addresses)
    });
    ended_like(life, &whole);
}

/// The first mapping of a process that is meant, by its addresses and the path of what is mapped, and that path.
fn mapped(pid: i32, is_meant: impl Fn(&Range<u64>, &str) -> bool) -> Option<(Range<u64>, String)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines().find_map(|line| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).expect("an address");
        let (addresses, of) = (number(start)..number(end), line.split_whitespace().nth(5).unwrap_or_default());
        is_meant(&addresses, of).then(|| (addresses, of.to_owned()))
    })
}

/// Processes that keep device memory of process `pid`, while it has none.
fn keepers_of(pid: i32) -> Vec<i32> {
    let is_its = |keeper: &i32| {
        let about = fs::read_to_string(format!("/proc/{keeper}/fdinfo/0")).unwrap_or_default();
        processes::arguments(*keeper).get(1).is_some_and(|command| command == "keep-memory")
            && about.lines().any(|line| line.split_whitespace().eq(["Pid:", &pid.to_string()]))
    };
    processes::all().into_iter().filter(is_its).collect()
}

#[track_caller]
fn nobody_keeps_memory_of(pid: i32) {
    processes::wait_until("nobody keeps its memory", Duration::from_secs(10), || keepers_of(pid).is_empty());
}

const MIB: u64 = 1 << 20;

#[test]
fn memory_of_ours_takes_no_room_on_the_host_and_only_what_has_changed_of_it_is_stored() {
    let program = counting(&["large", "small", "pooled"]).variable("CKPT_DOUBLE_HOST_BYTES", (48 * MIB).to_string());
    let scene = scene();
    let whole = reference(&scene, &program);
    let mut life = at_fifth_step(&scene, &program);
    checkpoint(&scene, life.pid);
    life.output.wait_for_lines(20);
    let id = checkpoint(&scene, life.pid);
    nobody_keeps_memory_of(life.pid);
    let rows = life.store().rows(&scene);
    assert!(rows[0].new_bytes > 64 * MIB && rows[1].new_bytes < 8 * MIB, "{rows:?}");
    assert!(rows[1].memory_bytes > 64 * MIB, "{rows:?}");
    life.kill();
    go_on(&scene);
    goes_on_again(&scene, Restart::of(life.store()).id(id), &life, &whole);
}

#[test]
fn what_the_driver_finds_no_room_for_on_the_host_stays_where_it_is_and_the_program_goes_on() {
    let program = counting(&["large"])
        .variable("CKPT_DOUBLE_HOST_BYTES", (48 * MIB).to_string())
        .variable("CKPT_DEVICE_BACKING", "native");
    let scene = scene();
    let whole = reference(&scene, &program);
    let life = at_fifth_step(&scene, &program);
    let answer = ask_checkpoint(&scene, life.pid).failed_with(5);
    assert!(answer.stderr.contains("suspending the devices"), "{}", answer.stderr);
    go_on(&scene);
    ended_like(life, &whole);
}

#[test]
fn what_a_control_group_has_no_room_for_is_refused_before_it_is_moved() {
    let Some(group) = ControlGroup::with_memory(32 * MIB) else {
        return skip("only root makes control groups, and only where they are mounted");
    };
    let program = counting(&["large"]).variable("CKPT_DEVICE_BACKING", "native");
    let scene = scene();
    let whole = reference(&scene, &program);
    let life = at_fifth_step(&scene, &program);
    group.take_in(life.pid);
    let refused = ask_checkpoint(&scene, life.pid).failed_with(5).stderr;
    assert!(refused.contains("left of the limit of the control group /sys/fs/cgroup/"), "{refused}");
    group.allow(4 << 30);
    checkpoint(&scene, life.pid);
    go_on(&scene);
    ended_like(life, &whole);
}

#[test]
fn full_checkpoints_and_those_of_data_take_turns() {
    let program = counting(&["plain", "small", "pooled", "mapped", "graph"]);
    let scene = scene();
    let whole = reference(&scene, &program);
    let mut life = at_fifth_step(&scene, &program);
    let data = || Ckpt::new(&scene, ["checkpoint", "--data", &life.pid.to_string()]).call().succeeded();
    data();
    checkpoint(&scene, life.pid);
    data();
    let id = checkpoint(&scene, life.pid);
    data();
    life.kill();
    go_on(&scene);
    goes_on_again(&scene, Restart::of(life.store()).id(id), &life, &whole);
}

#[test]
fn what_is_in_memory_of_ours_and_which_devices_there_are_can_be_looked_at() {
    let program = counting(&["plain", "small", "pooled", "pinned"]);
    let scene = scene();
    let life = at_fifth_step(&scene, &program);
    // It waits there, and nothing changes.
    life.output.wait_for_lines(40);
    let data = Ckpt::new(&scene, ["checkpoint", "--data", &life.pid.to_string()]).call().succeeded().number();
    let full = checkpoint(&scene, life.pid);
    let store = life.store();
    let shown = store.show(&scene, full);
    let device = &shown["devices"][0];
    assert!(device["uuid"].as_str().is_some_and(|uuid| uuid.starts_with("GPU-")), "{device}");
    assert!(device["stored_bytes"].as_u64() >= Some(MIB) && device["bytes"].as_u64() > Some(MIB), "{device}");
    let path = store.path().to_string_lossy().into_owned();
    let text = Ckpt::new(&scene, ["show", &path, &full.to_string()]).call().succeeded().stdout;
    assert!(text.contains("\nGPUs\n") && text.contains("stored by itself"), "{text}");
    let extract = |id: u64, region: &str| {
        Ckpt::new(&scene, ["extract", &path, &id.to_string(), "--region", region, "-o", "extracted"])
            .call()
            .succeeded();
        fs::read(scene.path().join("extracted")).expect("a file")
    };
    let mut compared = Vec::new();
    for allocation in shown["allocations"].as_array().expect("allocations").iter().filter(|it| it["left_out"].is_null())
    {
        let (region, kind) = (allocation["id"].to_string(), allocation["kind"].as_str().expect("a kind"));
        if kind != "host" {
            assert_same(&extract(full, &region), &extract(data, &region), &format!("{allocation}"));
            compared.push(kind);
        }
    }
    compared.sort_unstable();
    assert_eq!(compared, ["device 0", "device 0", "pinned"], "{}", shown["allocations"]);
    go_on(&scene);
}

#[test]
fn it_goes_on_when_the_process_dies_that_keeps_its_device_memory() {
    let program = counting(&["plain", "small", "threads"]);
    let scene = scene();
    let whole = reference(&scene, &program);
    let life = at_fifth_step(&scene, &program);
    let log = life.store().path().join("log");
    let said = || fs::read_to_string(&log).unwrap_or_default().contains("device memory of process");
    // Its moment is short: the agent is stopped in it.
    for attempt in 0..60 {
        processes::end_agents(life.pid);
        let trace = scene.path().join(format!("trace-{attempt}"));
        let take = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).variable(fault::TRACE, &trace);
        let taken = thread::spawn(move || take.call());
        processes::wait_until("they are suspended", Duration::from_secs(20), || {
            fault::passages(&trace).contains_key("devices.suspended")
        });
        let agents = processes::agents_of(life.pid);
        agents.iter().for_each(|&agent| processes::send(agent, Signal::SIGSTOP));
        for keeper in keepers_of(life.pid) {
            processes::send(keeper, Signal::SIGKILL);
        }
        agents.iter().for_each(|&agent| processes::send(agent, Signal::SIGCONT));
        taken.join().expect("it does not panic").succeeded();
        if said() {
            break;
        }
    }
    assert!(said(), "{:?}", fs::read_to_string(&log));
    nobody_keeps_memory_of(life.pid);
    go_on(&scene);
    ended_like(life, &whole);
}

#[test]
fn a_restart_that_is_killed_before_device_memory_is_filled_leaves_nobody_that_computes_with_nothing() {
    let program = counting(&["plain", "small"]);
    let scene = scene();
    let whole = reference(&scene, &program);
    let mut life = at_fifth_step(&scene, &program);
    checkpoint(&scene, life.pid);
    life.kill();
    go_on(&scene);
    let printed = life.output.bytes();
    let restart = Restart::of(life.store());
    let mut dies = restart.clone().variable(fault::KILL, "devices.resumed:1").spawn(&scene, &life.directory);
    assert_eq!(code_of(dies.wait()), 128 + Signal::SIGKILL as i32, "{}", dies.errors());
    processes::wait_until("it has ended", Duration::from_secs(20), || !processes::is_alive(life.pid));
    // A restart cuts back what was printed behind the checkpoint.
    assert!(printed.starts_with(&life.output.bytes()), "it has printed nothing");
    let said = fs::read_to_string(life.store().path().join("log")).expect("a log");
    assert!(said.contains("what device memory held has not been put back: the program ends"), "{said}");
    goes_on_again(&scene, restart, &life, &whole);
}

/// Restarts in which calls of the driver fail, as each of `failures` says: nothing is left of them, and the next one goes on exactly.
#[track_caller]
fn is_restarted_when_calls_no_longer_fail(program: &Program, failures: &[(&str, &str)]) {
    let scene = scene();
    let (fails, failed) = (scene.path().join("fails"), scene.path().join("failed"));
    let failing = program.clone().variable("CKPT_DOUBLE_FAIL_WHILE", &fails).variable("CKPT_DOUBLE_FAILED", &failed);
    let whole = reference(&scene, program);
    let mut life = at_fifth_step(&scene, &failing);
    Ckpt::new(&scene, ["checkpoint", "--kill", &life.pid.to_string()]).call().succeeded();
    life.wait();
    for (calls, words) in failures {
        fs::write(&fails, calls).expect("a file in the scene");
        let mut restart = Restart::of(life.store()).spawn(&scene, &life.directory);
        assert_eq!(code_of(restart.wait()), 125, "{calls}: {}", restart.errors());
        let said = restart.errors();
        assert!(said.contains(words) && said.contains(&life.pid.to_string()), "{calls}: {said}");
        assert_eq!(fs::read_to_string(&failed).expect("calls that failed").lines().count(), calls.split(',').count());
        processes::wait_until("nobody is left of it", Duration::from_secs(20), || !processes::is_alive(life.pid));
        nobody_keeps_memory_of(life.pid);
        assert!(whole.stdout.starts_with(&life.output.bytes()), "{calls}: {}", life.output.text());
        fs::remove_file(&fails).expect("it was there");
        fs::remove_file(&failed).expect("it was there");
    }
    go_on(&scene);
    goes_on_again(&scene, Restart::of(life.store()), &life, &whole);
}

#[test]
fn whichever_call_of_the_driver_fails_a_restart_it_can_be_made_again() {
    // So often it is asked to unlock, within five seconds.
    let never_unlocked: Vec<String> = (1..=50).map(|call| format!("cuCheckpointProcessUnlock:{call}")).collect();
    is_restarted_when_calls_no_longer_fail(
        &counting(&["plain", "pooled"]),
        &[
            ("cuCheckpointProcessRestore:1", "it does not take these devices"),
            ("cuCheckpointProcessRestore:1:2", "has no memory left"),
            (&never_unlocked.join(","), "its devices back"),
            ("cuMemCreate:1:2", "has no memory left"),
            ("cuMemMap:1", "its devices back"),
            ("cuMemSetAccess:1", "its devices back"),
            ("cuCtxSetCurrent:1", "copying to a device"),
            ("cuStreamCreate:1", "copying to a device"),
            ("cuMemcpyAsync:1", "copying to a device"),
            ("cuStreamSynchronize:1", "copying to a device"),
        ],
    );
}

/// Managed memory that comes nowhere near where it was is pinned in its place, which is tried twice.
#[test]
fn a_driver_that_does_not_pin_evacuated_memory_fails_a_restart_which_can_be_made_again() {
    const WORDS: &str = "bringing managed memory back";
    is_restarted_when_calls_no_longer_fail(
        &counting(&["managed"]).variable("CKPT_DOUBLE_MANAGED", "elsewhere"),
        &[
            ("cuMemHostRegister_v2:2,cuMemHostRegister_v2:3", WORDS),
            ("cuMemHostGetDevicePointer_v2:1,cuMemHostGetDevicePointer_v2:2", WORDS),
        ],
    );
}

/// A machine for the double.
fn machine(path: &Path, devices: &[(u8, u64)]) {
    let lines: String = devices.iter().map(|(number, bytes)| format!("{number} {bytes}\n")).collect();
    fs::write(path, lines).expect("a file in the scene");
}

const GIB: u64 = 1 << 30;

#[test]
fn other_devices_stand_for_those_that_are_not_there_and_too_few_or_too_small_ones_are_refused() {
    let program = counting(&["peer", "plain", "pooled"]);
    let scene = scene();
    let there = scene.path().join("machine");
    let program = program.variable("CKPT_DOUBLE_MACHINE", &there);
    machine(&there, &[(1, GIB), (2, GIB)]);
    let whole = reference(&scene, &program);
    let mut life = at_fifth_step(&scene, &program);
    let id = checkpoint(&scene, life.pid);
    life.kill();
    go_on(&scene);
    let printed = life.output.bytes();
    for (devices, words) in [
        (vec![(2, GIB)], "there is no other of that model"),
        (vec![(3, 1 << 20), (4, 1 << 20)], "with that much memory"),
        (vec![(1, 1 << 20), (2, GIB)], "and the device has 1 MiB"),
    ] {
        machine(&there, &devices);
        let restart = Restart::of(life.store()).id(id).variable("CKPT_DOUBLE_MACHINE", &there);
        let mut refused = restart.spawn(&scene, &life.directory);
        assert_eq!(code_of(refused.wait()), 125, "{devices:?}: {}", refused.errors());
        assert!(refused.errors().contains(words), "{devices:?}: {}", refused.errors());
        assert_same(&life.output.bytes(), &printed, "nothing has run");
    }
    for devices in [[(2, GIB), (1, GIB)], [(7, GIB), (2, GIB)], [(8, 2 * GIB), (9, GIB)]] {
        machine(&there, &devices);
        let restart = Restart::of(life.store()).id(id).variable("CKPT_DOUBLE_MACHINE", &there);
        goes_on_again(&scene, restart, &life, &whole);
    }
}
