//! `ckpt run` and `ckpt restart` as the entry point of a container: pid 1 of a pid namespace. They want root.

use std::time::Duration;

use ckpt_tests::entry_point::{Container, Image};
use ckpt_tests::exact::{assert_same, reference};
use ckpt_tests::{Program, Scene, processes, skip};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(30);
/// As in a container: the kernel is not told which id comes next.
const READ_ONLY: &str = "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys";

fn exits(steps: usize, kind: &str) -> Program {
    Program::victim("exits").argument(steps.to_string()).argument(kind)
}

/// Whether these tests are possible. Ordinary users have no pid namespaces without a user namespace.
fn is_possible() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        skip("pid namespaces want root");
    }
    root
}

fn own_pid(pid: i32) -> i32 {
    processes::pid_in_its_namespace(pid).expect("it runs")
}

/// Stops the container's agent, so that no checkpoint is taken any more.
fn stop_the_agent(container: &Container<'_>) {
    let is_agent = |pid: &i32| processes::arguments(*pid).iter().any(|word| word == "agent");
    let agent = processes::children(container.first()).into_iter().find(is_agent).expect("it is there");
    processes::send(agent, Signal::SIGSTOP);
}

#[test]
fn orphans_are_reaped_and_the_status_of_the_program_is_its_own() {
    if !is_possible() {
        return;
    }
    let scene = Scene::new();
    let image = Image::of(&scene, &Program::python("orphans.py").argument("100")).variable("CKPT_ON_TERM", "1");
    let none_is_left = |container: &Container<'_>| {
        let first = container.first();
        processes::wait_until("the orphans are reaped", LIMIT, || {
            let children = processes::children(first);
            children
                .iter()
                .all(|&pid| processes::status_field(pid, "State").is_some_and(|state| !state.starts_with('Z')))
                && children.len() <= 2
        });
    };
    let mut container = image.run();
    image.output().wait_for_line("left");
    none_is_left(&container);
    container.signal(Signal::SIGTERM);
    assert_eq!(container.wait(), 85, "{}", container.messages());
    let mut container = image.restart();
    container.program();
    image.output().wait_for_more_lines(5);
    none_is_left(&container);
    assert_eq!(container.wait(), 42, "{}", container.messages());
}

#[test]
fn signals_reach_the_program_in_both_lives() {
    if !is_possible() {
        return;
    }
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR2, Signal::SIGWINCH] {
        let scene = Scene::new();
        let image = Image::of(&scene, &exits(2000, "catch"));
        let mut container = image.run();
        let program = container.program();
        image.output().wait_for_lines(5);
        ckpt_tests::Ckpt::new(&scene, ["checkpoint", &program.to_string()]).call().succeeded();
        container.signal(signal);
        assert_eq!(container.wait(), signal as i32, "{}", container.messages());
        let mut container = image.restart();
        container.program();
        image.output().wait_for_more_lines(3);
        container.signal(signal);
        assert_eq!(container.wait(), signal as i32, "{}", container.messages());
    }
}

#[test]
fn a_signal_without_a_handler_ends_the_program_and_the_container() {
    if !is_possible() {
        return;
    }
    for signal in [Signal::SIGTERM, Signal::SIGQUIT, Signal::SIGHUP] {
        let scene = Scene::new();
        let image = Image::of(&scene, &exits(2000, ""));
        let mut container = image.run();
        container.program();
        image.output().wait_for_lines(5);
        container.signal(signal);
        assert_eq!(container.wait(), 128 + signal as i32, "{}", container.messages());
    }
}

#[test]
fn the_program_begins_at_a_pid_that_is_free_in_the_next_container() {
    if !is_possible() {
        return;
    }
    for before in [":", READ_ONLY] {
        let scene = Scene::new();
        let image = Image::of(&scene, &exits(300, "code:7")).variable("CKPT_ON_TERM", "1").after(before);
        let expected = reference(&scene, &exits(300, "code:7"));
        for life in 0..3 {
            let mut container = if life == 0 { image.run() } else { image.restart() };
            let program = container.program();
            assert_eq!(own_pid(program), 1000, "{}", container.messages());
            image.output().wait_for_more_lines(5);
            container.signal(Signal::SIGTERM);
            assert_eq!(container.wait(), 85, "{}", container.messages());
        }
        assert_eq!(image.restart().wait(), expected.code);
        assert_same(&image.output().bytes(), &expected.stdout, "the output of all lives together");
    }
}

#[test]
fn the_first_pid_can_be_chosen_and_left_as_it_is() {
    if !is_possible() {
        return;
    }
    let scene = Scene::new();
    for (first, expected) in [("3000", 3000..3001), ("0", 2..300)] {
        let image = Image::of(&scene, &exits(10, "code:0")).variable("CKPT_PID_FIRST", first);
        let mut container = image.run();
        let program = container.program();
        assert!(expected.contains(&own_pid(program)), "{first}");
        assert_eq!(container.wait(), 0, "{}", container.messages());
    }
    let image = Image::of(&scene, &exits(10, "code:0")).variable("CKPT_PID_FIRST", "many");
    let mut container = image.run();
    assert_eq!(container.wait(), 122);
    assert!(container.messages().contains("CKPT_PID_FIRST is 'many'"), "{}", container.messages());
}

#[test]
fn sigterm_saves_ordinary_programs_and_the_next_container_goes_on_exactly() {
    if !is_possible() {
        return;
    }
    for program in [
        Program::python("lines.py").argument("120"),
        Program::installed("bash").argument(ckpt_tests::program::source("pipeline.bash")).argument("150"),
        Program::victim("threads8").argument("200"),
    ] {
        let scene = Scene::new();
        let expected = reference(&scene, &program);
        let image = Image::of(&scene, &program).variable("CKPT_ON_TERM", "1");
        for life in 0..2 {
            let mut container = if life == 0 { image.run() } else { image.restart() };
            container.program();
            image.output().wait_for_more_lines(5);
            container.signal(Signal::SIGTERM);
            assert_eq!(container.wait(), 85, "{program:?}: {}", container.messages());
            assert!(container.messages().contains(&format!("ended at checkpoint {}", life + 1)));
        }
        assert_eq!(image.attempts(), vec![("sealed".to_owned(), "term".to_owned()); 2]);
        let mut container = image.restart();
        assert_eq!(container.wait(), expected.code, "{program:?}: {}", container.messages());
        assert_same(&image.output().bytes(), &expected.stdout, "the output of all lives together");
    }
}

#[test]
fn sigterm_goes_on_to_a_program_that_cannot_be_saved() {
    if !is_possible() {
        return;
    }
    let scene = Scene::new();
    // What cannot be read makes each checkpoint fail.
    let image = Image::of(&scene, &exits(2000, "")).variable("CKPT_ON_TERM", "1").variable("CKPT_CHUNK", "7");
    let mut container = image.run();
    container.program();
    image.output().wait_for_lines(5);
    container.signal(Signal::SIGTERM);
    assert_eq!(container.wait(), 128 + Signal::SIGTERM as i32, "{}", container.messages());
    let said = container.messages();
    assert!(said.contains("CKPT_CHUNK") && said.contains("no last checkpoint: it has failed"), "{said}");
}

#[test]
fn sigterm_goes_on_when_the_time_is_over_or_it_comes_twice() {
    if !is_possible() {
        return;
    }
    for (within, times, why) in [("1s", 1, "not sealed within 1 s"), ("60s", 2, "SIGTERM has come once more")] {
        let scene = Scene::new();
        let image = Image::of(&scene, &exits(2000, "")).variable("CKPT_ON_TERM", within);
        let mut container = image.run();
        container.program();
        image.output().wait_for_lines(5);
        stop_the_agent(&container);
        for _ in 0..times {
            let asks = |pid: &i32| processes::arguments(*pid).iter().any(|word| word == "--at-term");
            container.signal(Signal::SIGTERM);
            processes::wait_until("the checkpoint is asked for", LIMIT, || {
                !processes::is_alive(container.first()) || processes::children(container.first()).iter().any(asks)
            });
        }
        assert_eq!(container.wait(), 128 + Signal::SIGTERM as i32, "{}", container.messages());
        assert!(container.messages().contains(why), "{}", container.messages());
    }
}

#[test]
fn the_own_exit_code_85_of_a_program_has_no_checkpoint_by_term() {
    if !is_possible() {
        return;
    }
    let scene = Scene::new();
    let image = Image::of(&scene, &exits(30, "code:85")).variable("CKPT_ON_TERM", "1");
    let mut container = image.run();
    let program = container.program();
    ckpt_tests::Ckpt::new(&scene, ["checkpoint", &program.to_string()]).call().succeeded();
    assert_eq!(container.wait(), 85, "{}", container.messages());
    assert_eq!(image.attempts(), [("sealed".to_owned(), "command".to_owned())]);
}

#[test]
fn sigterm_ends_a_restart_that_is_not_complete() {
    if !is_possible() {
        return;
    }
    let scene = Scene::new();
    let image = Image::of(&scene, &exits(300, "code:7"));
    let mut container = image.run();
    let program = container.program();
    image.output().wait_for_lines(5);
    ckpt_tests::Ckpt::new(&scene, ["checkpoint", "--kill", &program.to_string()]).call().succeeded();
    container.wait();
    for (on_term, code) in [("1", 85), ("0", 128 + Signal::SIGTERM as i32)] {
        // It waits for its key until it is ended.
        let image = Image::of(&scene, &exits(300, "code:7"))
            .variable("CKPT_ON_TERM", on_term)
            .variable("CKPT_KEY", "command:sleep 25");
        let mut container = image.restart();
        let waits = |pid: &i32| processes::arguments(*pid).iter().any(|word| word == "25" || word == "sleep 25");
        processes::wait_until("it waits for the key", LIMIT, || {
            processes::descendants(container.first()).iter().any(waits)
        });
        container.signal(Signal::SIGTERM);
        assert_eq!(container.wait(), code, "{}", container.messages());
    }
    assert_eq!(image.restart().wait(), 7);
}

/// A program that is the first process itself comes back as the first process, with and without the right to choose ids.
fn first_process_goes_on(program: &Program, make: fn(Image<'_>) -> Image<'_>) {
    if !is_possible() {
        return;
    }
    let scene = Scene::new();
    let expected = reference(&scene, program);
    let image = make(Image::of(&scene, program));
    for life in 0..2 {
        let mut container = if life == 0 { image.run_alone() } else { image.restart() };
        container.wait_for_more_lines(5);
        let first = container.first_of_all().expect("it runs");
        assert_eq!(own_pid(first), 1, "{}", container.messages());
        processes::send(first, Signal::SIGUSR1);
        image.store().wait_for_sealed(&scene, life + 1);
        container.wait_for_more_lines(2);
    }
    let mut last = image.restart();
    assert_eq!(last.wait(), expected.code, "{}", last.messages());
    assert_same(&image.output().bytes(), &expected.stdout, "the output of all lives together");
}

#[test]
fn a_program_that_was_pid_1_is_pid_1_again() {
    first_process_goes_on(&Program::victim("threads8").argument("200"), |image| image);
}

#[test]
fn a_job_whose_first_process_was_pid_1_goes_on() {
    first_process_goes_on(&Program::victim("family").argument("100"), |image| image);
}

#[test]
fn a_program_that_was_pid_1_is_pid_1_again_without_rights() {
    first_process_goes_on(&Program::victim("threads8").argument("200"), |image| image.confined());
}

#[test]
fn a_job_of_pid_1_is_refused_where_its_first_id_comes_next() {
    if !is_possible() {
        return;
    }
    let scene = Scene::new();
    // Its first child is process 2, which is the first that a restart makes.
    let image = Image::of(&scene, &Program::victim("family").argument("200")).confined();
    let mut container = image.run_alone();
    container.wait_for_more_lines(5);
    processes::send(container.first_of_all().expect("it runs"), Signal::SIGUSR1);
    image.store().wait_for_sealed(&scene, 1);
    drop(container);
    let mut refused = image.restart();
    assert_eq!(refused.wait(), 125);
    let said = refused.messages();
    assert!(said.contains("the next one here is that of another process of the job"), "{said}");
}

#[test]
fn a_program_that_was_pid_1_is_refused_where_it_cannot_be() {
    if !is_possible() {
        return;
    }
    let scene = Scene::new();
    let image = Image::of(&scene, &exits(2000, ""));
    let mut container = image.run_alone();
    container.wait_for_more_lines(5);
    processes::send(container.first_of_all().expect("it runs"), Signal::SIGUSR1);
    image.store().wait_for_sealed(&scene, 1);
    drop(container);
    let store = image.store().path().to_owned();
    let refused = ckpt_tests::Ckpt::new(&scene, ["restart".as_ref(), store.as_os_str()]).call().failed_with(125);
    assert!(refused.stderr.contains("only pid 1 can become it again"), "{}", refused.stderr);
}
