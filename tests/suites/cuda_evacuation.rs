//! Managed memory, which the driver does not checkpoint, is evacuated before and comes back behind; on the double of the driver, which
//! can be told what becomes of such memory when it is freed.

use std::fs;
use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

use ckpt_tests::counted::{
    ask_checkpoint, at_fifth_step, counting, counting_slowly, ended_like, go_on, goes_on_again, goes_on_in_place,
    scene, survives_twice,
};
use ckpt_tests::exact::{How, assert_same, reference, survives};
use ckpt_tests::{Ckpt, Restart, Scene, checkpoint, code_of, cuda, fault, processes};
use nix::sys::signal::Signal;

#[test]
fn managed_memory_comes_back() {
    survives_twice(&counting(&["plain", "managed", "managed"]));
}

#[test]
fn managed_memory_whose_address_the_driver_does_not_give_again_comes_back() {
    survives_twice(&counting(&["managed", "plain", "managed"]).variable("CKPT_DOUBLE_MANAGED", "elsewhere"));
}

#[test]
fn threads_that_use_managed_memory_all_the_time_do_not_notice_that_it_is_evacuated() {
    let program = counting(&["touched", "plain", "managed"]);
    for driver in ["usual", "elsewhere"] {
        let program = program.clone().variable("CKPT_DOUBLE_MANAGED", driver);
        goes_on_in_place(&program, 8);
    }
    survives_twice(&program);
}

/// The kind that the first managed memory is of, in a running program or a checkpoint.
#[track_caller]
fn kind_of_managed(scene: &Scene, which: &[&str]) -> String {
    kind_if_any(scene, which).expect("managed memory")
}

/// The same; none where its record is being replaced just now.
#[track_caller]
fn kind_if_any(scene: &Scene, which: &[&str]) -> Option<String> {
    let answer = Ckpt::new(scene, [&["show"], which, &["--json"]].concat()).call().succeeded();
    let shown: serde_json::Value = serde_json::from_str(&answer.stdout).expect("JSON");
    let kinds = shown["allocations"].as_array().expect("a list").iter().filter_map(|one| one["kind"].as_str());
    kinds.into_iter().find(|kind| kind.starts_with("managed")).map(str::to_owned)
}

#[test]
fn where_managed_memory_is_can_be_seen_and_is_said() {
    for (driver, behind) in [("usual", "managed"), ("elsewhere", "managed (registered)")] {
        let program = counting(&["managed", "churned"]).variable("CKPT_DOUBLE_MANAGED", driver);
        let scene = scene();
        let whole = reference(&scene, &program);
        let mut life = at_fifth_step(&scene, &program);
        let (pid, store) = (life.pid.to_string(), life.store());
        assert_eq!(kind_of_managed(&scene, &[&pid]), "managed");
        let id = checkpoint(&scene, life.pid);
        assert_eq!(kind_of_managed(&scene, &[&pid]), behind, "{driver}: when the program has its devices again");
        let path = store.path().to_string_lossy().into_owned();
        assert_eq!(kind_of_managed(&scene, &[&path, &id.to_string()]), "managed (evacuated)");
        let log = fs::read_to_string(store.path().join("log")).expect("a log");
        assert_eq!(log.contains("is pinned memory of the host now"), behind != "managed", "{log}");
        life.kill();
        let mut second = Restart::of(store).begin(&scene, &life.directory, life.pid);
        // In a namespace of its own, if somebody has an id of it by now.
        let pid = second.pid.to_string();
        processes::wait_until("its devices are back", Duration::from_secs(30), || {
            kind_if_any(&scene, &[&pid]).is_some_and(|kind| kind != "managed (evacuated)")
        });
        assert_eq!(kind_of_managed(&scene, &[&pid]), behind, "{driver}: after a restart");
        checkpoint(&scene, second.pid);
        assert_eq!(kind_of_managed(&scene, &[&pid]), behind, "{driver}: after its checkpoint");
        go_on(&scene);
        assert_eq!(code_of(second.wait()), whole.code, "{}", second.errors());
        assert_same(&life.output.bytes(), &whole.stdout, "the output of both lives");
    }
}

#[test]
fn managed_memory_that_shares_pages_is_freed_and_allocated_as_before() {
    for driver in ["usual", "elsewhere"] {
        let program = counting(&["churned", "managed"]).variable("CKPT_DOUBLE_MANAGED", driver);
        goes_on_in_place(&program, 5);
        survives_twice(&program);
    }
}

#[test]
fn memory_that_is_pinned_in_its_place_goes_on_when_a_context_ends_that_it_is_not_of() {
    let program = counting(&["outlasting"]).variable("CKPT_DOUBLE_MANAGED", "elsewhere");
    goes_on_in_place(&program, 2);
}

#[test]
fn what_was_advised_of_managed_memory_holds_when_it_is_back_and_while_it_is_pinned() {
    let program = counting(&["advised"]);
    survives_twice(&program);
    goes_on_in_place(&program.clone().variable("CKPT_DOUBLE_MANAGED", "elsewhere"), 2);
    // It is pinned behind the first checkpoint, takes advice, and comes back behind the second.
    let scene = scene();
    let whole = reference(&scene, &program);
    let slow = counting_slowly(&["advised"]).variable("CKPT_DOUBLE_FAIL", "cuMemAllocManaged:5");
    let life = at_fifth_step(&scene, &slow);
    let pid = life.pid.to_string();
    checkpoint(&scene, life.pid);
    assert_eq!(kind_of_managed(&scene, &[&pid]), "managed (registered)");
    life.output.wait_for_more_lines(2);
    checkpoint(&scene, life.pid);
    assert_eq!(kind_of_managed(&scene, &[&pid]), "managed");
    go_on(&scene);
    ended_like(life, &whole);
}

#[test]
fn advice_that_the_driver_does_not_take_again_is_named_in_the_log_and_the_program_goes_on() {
    // The first time is the program's own.
    let program = counting(&["advised_once"]);
    let scene = scene();
    let whole = reference(&scene, &program);
    let life = at_fifth_step(&scene, &program.variable("CKPT_DOUBLE_FAIL", "cuMemAdvise_v2:2"));
    checkpoint(&scene, life.pid);
    let log = fs::read_to_string(life.store().path().join("log")).expect("a log");
    assert!(log.contains("advised of managed memory cannot be advised again (error 999 of the CUDA driver)"), "{log}");
    go_on(&scene);
    ended_like(life, &whole);
}

#[test]
fn ten_thousand_small_allocations_come_back_or_are_pinned() {
    for driver in ["usual", "elsewhere"] {
        let program = counting(&["many"]).variable("CKPT_DOUBLE_MANAGED", driver);
        let scene = scene();
        let whole = reference(&scene, &program);
        survives(&scene, &program, How::usual(), 5, &whole);
    }
}

#[test]
fn threads_that_hold_locks_of_the_heap_do_not_keep_managed_memory_from_being_evacuated() {
    goes_on_in_place(&counting(&["allocating", "touched"]), 6);
}

#[test]
fn whatever_call_of_the_driver_fails_while_managed_memory_moves_the_program_goes_on() {
    // The first of each is of the trial whether a lock is held; the others, of what is meant.
    for (name, calls) in [("cuMemFree_v2", 1..=3), ("cuMemAllocManaged", 3..=7), ("cuMemHostRegister_v2", 1..=2)] {
        for number in calls {
            let scene = scene();
            let failed = scene.path().join("failed");
            let program = counting(&["managed", "managed"]);
            let whole = reference(&scene, &program);
            let program = program
                .variable("CKPT_DOUBLE_FAIL", format!("{name}:{number}"))
                .variable("CKPT_DOUBLE_FAILED", &failed);
            let life = at_fifth_step(&scene, &program);
            for _ in 0..2 {
                ask_checkpoint(&scene, life.pid);
            }
            assert!(failed.exists(), "call {number} of {name} was never made");
            checkpoint(&scene, life.pid);
            go_on(&scene);
            ended_like(life, &whole);
        }
    }
}

/// Calls of these numbers fail.
fn failing(name: &str, calls: RangeInclusive<u32>) -> String {
    calls.map(|number| format!("{name}:{number}")).collect::<Vec<_>>().join(",")
}

#[test]
fn memory_is_not_lost_when_another_one_on_its_page_cannot_be_freed() {
    // Once, which is tried again; and more often than it is tried, when five of seven have been freed.
    for calls in [3..=3, 4..=4, 7..=11] {
        let program = counting(&["few"]);
        let scene = scene();
        let whole = reference(&scene, &program);
        let failed = scene.path().join("failed");
        let program = program
            .variable("CKPT_DOUBLE_FAIL", failing("cuMemFree_v2", calls.clone()))
            .variable("CKPT_DOUBLE_FAILED", &failed);
        let life = at_fifth_step(&scene, &program);
        ask_checkpoint(&scene, life.pid);
        assert!(failed.exists(), "no call of {calls:?} was made");
        checkpoint(&scene, life.pid);
        go_on(&scene);
        ended_like(life, &whole);
    }
}

#[test]
fn a_program_ends_and_is_restarted_when_memory_on_a_page_is_freed_in_part_and_does_not_come_back() {
    let program = counting(&["few"]);
    let scene = scene();
    let whole = reference(&scene, &program);
    // Of the second checkpoint: its sixth of seven, and the third and all behind of the five that were freed.
    let fails = [failing("cuMemFree_v2", 16..=20), failing("cuMemAllocManaged", 20..=60)].join(",");
    let mut life = at_fifth_step(&scene, &program.variable("CKPT_DOUBLE_FAIL", fails));
    let id = checkpoint(&scene, life.pid);
    assert_ne!(ask_checkpoint(&scene, life.pid).code, 0);
    assert_eq!(code_of(life.wait()), 128 + Signal::SIGKILL as i32, "{}", life.errors());
    let log = fs::read_to_string(life.store().path().join("log")).expect("a log");
    let said = "has freed a part of the managed memory on some pages, and does not give it back: the program ends";
    assert!(log.contains(said), "{log}");
    go_on(&scene);
    goes_on_again(&scene, Restart::of(life.store()).id(id), &life, &whole);
}

#[test]
fn a_thread_that_never_leaves_the_heap_costs_the_checkpoint_alone() {
    let program = cuda::program("hoarded").argument("60");
    // 150 stops, each by a process that is made for it.
    let scene = Scene::of_at_most(Duration::from_secs(600));
    let whole = reference(&scene, &program);
    let life = at_fifth_step(&scene, &program);
    let answer = ask_checkpoint(&scene, life.pid);
    let why = "150 times a thread was stopped that holds a lock which the driver waits for";
    assert!(answer.code != 0 && answer.stderr.contains(why), "{answer:?}");
    let rows = life.store().rows(&scene);
    assert!(matches!(&rows[..], [row] if row.state == "failed" && row.reason.contains(why)), "{rows:?}");
    let log = fs::read_to_string(life.store().path().join("log")).expect("a log");
    assert!(log.contains(why), "{log}");
    go_on(&scene);
    ended_like(life, &whole);
}

#[test]
fn it_goes_on_when_the_agent_dies_while_managed_memory_is_evacuated() {
    for driver in ["usual", "elsewhere"] {
        let program = counting(&["wide", "touched", "plain"]).variable("CKPT_DOUBLE_MANAGED", driver);
        let scene = scene();
        let whole = reference(&scene, &program);
        let life = at_fifth_step(&scene, &program);
        for point in
            ["devices.kept:1", "devices.evacuated:1", "devices.asked:1", "devices.suspended:1", "devices.resumed:1"]
        {
            processes::end_agents(life.pid);
            let answer = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).variable(fault::KILL, point).call();
            assert_ne!(answer.code, 0, "{driver}, {point}: {answer:?}");
        }
        checkpoint(&scene, life.pid);
        go_on(&scene);
        ended_like(life, &whole);
    }
}

#[test]
fn it_is_never_wrong_when_the_agent_is_killed_at_whatever_moment_of_an_evacuation() {
    let program = counting(&["wide", "touched"]);
    let scene = scene();
    let whole = reference(&scene, &program);
    let mut first = at_fifth_step(&scene, &program);
    checkpoint(&scene, first.pid);
    let mut restarted = None;
    for round in 0..6 {
        // They stand still three times: when memory is evacuated, for the capture, and when it comes back.
        let moment = Duration::from_millis(round * 5);
        while_threads_stand_still(&scene, first.pid, 2 * (round % 2), moment, || processes::end_agents(first.pid));
        if ask_checkpoint(&scene, first.pid).code == 0 {
            continue;
        }
        // It has ended, and says why: memory was not there yet when its threads went on.
        let life = restarted.as_mut().unwrap_or(&mut first);
        assert_eq!(code_of(life.wait()), 128 + Signal::SIGKILL as i32, "round {round}: {}", life.errors());
        let log = fs::read_to_string(first.store().path().join("log")).expect("a log");
        assert!(log.contains("the threads have gone on while managed memory came back: the program ends"), "{log}");
        restarted = Some(Restart::of(first.store()).begin(&scene, &first.directory, first.pid));
    }
    go_on(&scene);
    let life = restarted.as_mut().unwrap_or(&mut first);
    assert_eq!(code_of(life.wait()), whole.code, "{}", life.errors());
    assert_same(&first.output.bytes(), &whole.stdout, "all that it has printed");
}

#[test]
fn it_goes_on_when_who_holds_its_threads_is_killed_while_memory_is_evacuated() {
    let program = counting(&["wide", "touched"]);
    let scene = scene();
    let whole = reference(&scene, &program);
    let life = at_fifth_step(&scene, &program);
    let holds = |pid: &i32| {
        let arguments = processes::arguments(*pid);
        arguments.get(1..) == Some(&["stand-still".to_owned(), life.pid.to_string()])
    };
    for round in 0..4 {
        while_threads_stand_still(&scene, life.pid, 0, Duration::from_millis(round * 4), || {
            processes::all().into_iter().filter(holds).for_each(|pid| processes::send(pid, Signal::SIGKILL));
        });
    }
    checkpoint(&scene, life.pid);
    go_on(&scene);
    ended_like(life, &whole);
}

/// Asks for a checkpoint of process `pid`, and does something when its threads have stood still so often before and do so again
/// since a while.
fn while_threads_stand_still(scene: &Scene, pid: i32, before: u64, since: Duration, act: impl FnOnce()) {
    let stand_still = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.contains("State:\tt")
    };
    thread::scope(|threads| {
        let asked = threads.spawn(|| ask_checkpoint(scene, pid));
        let wait_while = |are_still: bool| {
            while stand_still() == are_still && !asked.is_finished() {
                thread::yield_now();
            }
        };
        wait_while(false);
        for _ in 0..before {
            wait_while(true);
            wait_while(false);
        }
        // Not awaited: the moment is what is tried. Copying takes some ten milliseconds, and what follows a few.
        thread::sleep(since);
        act();
    });
}
