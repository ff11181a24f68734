//! `scripts/ckpt-run-until-done`: jobs that end when they are done, whatever happens to their programs meanwhile.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ckpt_tests::exact::{Reference, assert_same, reference};
use ckpt_tests::ordinary_user::USER;
use ckpt_tests::until_done::{Call, Job, script};
use ckpt_tests::{Ckpt, Program, Scene, checkpoint, processes, product};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

const LAST: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR2];

/// Eight threads for about `steps` hundredths of a second.
fn threads8(steps: usize) -> Program {
    Program::victim("threads8").argument(steps.to_string())
}

fn exits(steps: usize, kind: &str) -> Program {
    Program::victim("exits").argument(steps.to_string()).argument(kind)
}

/// One thread that does next to nothing, and ends with 7.
fn light(steps: usize) -> Program {
    exits(steps, "code:7")
}

/// A scene with time for several lives.
fn scene() -> Scene {
    Scene::of_at_most(Duration::from_secs(180))
}

/// Calls the job a last time and compares what all its lives have left with an uninterrupted run.
#[track_caller]
fn ends_exactly(job: &Job<'_>, expected: &Reference) {
    let (code, messages) = job.run();
    assert_eq!(code, expected.code, "{messages}");
    assert_same(&stdout(job), &expected.stdout, "the output of all lives together");
}

fn stdout(job: &Job<'_>) -> Vec<u8> {
    fs::read(job.directory.join("stdout")).expect("the output")
}

/// Whether a restart has cut something off the output, because a life had printed more than its last checkpoint knew.
fn anything_printed_twice(job: &Job<'_>) -> bool {
    let place = job.directory.canonicalize().expect("the job's folder");
    let saved = job.store().path().join("saved").join(place.strip_prefix("/").expect("an absolute path"));
    let names = [job.directory.clone(), saved].into_iter().flat_map(fs::read_dir).flatten().filter_map(Result::ok);
    names.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().starts_with("stdout.ckpt-"))
}

/// Kills the program and waits until another one runs; its pid stays the same.
fn kill_and_wait_for_the_next(call: &mut Call, signal: Signal, times: usize) {
    processes::send(call.program(), signal);
    processes::wait_until("the program is restarted", Duration::from_secs(30), || {
        call.log().matches("resuming").count() >= times
    });
    call.program();
}

#[test]
fn what_a_crash_leaves_of_a_job_of_several_processes_is_ended_before_it_goes_on() {
    let scene = scene();
    let program = Program::victim("family").argument("150").writes("written");
    let expected = reference(&scene, &program);
    let job = Job::new(&scene, &program).options(&["--interval", "1"]);
    let mut call = job.call();
    let first = call.program();
    job.store().wait_for_sealed(&scene, 1);
    let left = processes::descendants(first);
    kill_and_wait_for_the_next(&mut call, Signal::SIGKILL, 1);
    assert_eq!(call.wait(), expected.code, "{}", call.messages());
    assert_same(&stdout(&job), &expected.stdout, "the output of all lives together");
    assert!(left.iter().all(|&pid| !processes::is_alive(pid)), "nobody is left");
}

#[test]
fn the_agent_of_a_program_that_has_ended_is_waited_for_until_it_writes_no_more() {
    let scene = scene();
    let job = Job::new(&scene, &light(600)).options(&["--interval", "1"]);
    let mut call = job.call();
    let pid = call.program();
    job.store().wait_for_sealed(&scene, 1);
    let is_agent = |pid: &i32| processes::arguments(*pid).iter().any(|word| word == "agent");
    let agent = processes::of_scene(scene.path()).into_iter().find(is_agent).expect("it has one");
    let agents = fs::read_dir(job.store().path().join("agents")).expect("it is there");
    let mut locks =
        agents.map(|entry| entry.expect("a name").path()).filter(|path| path.extension() == Some("lock".as_ref()));
    let looked_at = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).expect("inotify");
    looked_at.add_watch(&locks.next().expect("a lock"), AddWatchFlags::IN_OPEN).expect("a watch");
    processes::send(agent, Signal::SIGSTOP);
    processes::send(pid, Signal::SIGKILL);
    let mut looks = 0;
    processes::wait_until("the script looks whether the agent ends", Duration::from_secs(30), || {
        looks += looked_at.read_events().map_or(0, |events| events.len());
        looks >= 4
    });
    assert!(!call.log().contains("resuming"), "{}", call.messages());
    processes::send(agent, Signal::SIGCONT);
    call.wait_for_message("resuming");
    call.program();
    call.signal(Signal::SIGTERM);
    assert_eq!(call.wait(), 85, "{}", call.messages());
}

#[test]
fn a_program_is_done_exactly_over_crashes_at_any_moment_and_signals_to_the_job() {
    let scene = scene();
    let program = threads8(500);
    let expected = reference(&scene, &program);
    let job = Job::new(&scene, &program).options(&["--interval", "1"]);
    let mut call = job.call();
    call.program();
    job.store().wait_for_sealed(&scene, 1);
    for (times, (lines, signal)) in
        [(7, Signal::SIGKILL), (41, Signal::SIGSEGV), (23, Signal::SIGKILL)].into_iter().enumerate()
    {
        call.output.wait_for_more_lines(lines);
        kill_and_wait_for_the_next(&mut call, signal, times + 1);
    }
    call.output.wait_for_more_lines(5);
    call.signal(Signal::SIGTERM);
    assert_eq!(call.wait(), 85, "{}", call.messages());
    assert!(call.running_program().is_none());
    let mut call = job.call();
    call.output.wait_for_more_lines(5);
    kill_and_wait_for_the_next(&mut call, Signal::SIGKILL, 2);
    call.signal(Signal::SIGTERM);
    assert_eq!(call.wait(), 85, "{}", call.messages());
    ends_exactly(&job, &expected);
}

#[test]
fn each_ending_signal_saves_all_work_and_the_next_call_goes_on_from_there() {
    let scene = scene();
    let program = light(300);
    let expected = reference(&scene, &program);
    let job = Job::new(&scene, &program).options(&["--interval", "0"]);
    for (count, signal) in LAST.into_iter().enumerate() {
        let mut call = job.call();
        call.program();
        call.output.wait_for_more_lines(10);
        call.signal(signal);
        assert_eq!(call.wait(), 85, "{signal}: {}", call.messages());
        assert!(call.messages().contains(&format!("is saved as checkpoint {}", count + 1)), "{}", call.messages());
        assert_eq!(job.store().sealed(&scene).len(), count + 1);
    }
    ends_exactly(&job, &expected);
    assert!(!anything_printed_twice(&job), "the program ended at the checkpoint itself");
}

#[test]
fn sigusr1_takes_a_checkpoint_and_the_program_runs_on() {
    let scene = scene();
    let job = Job::new(&scene, &light(600)).options(&["--interval", "0"]);
    let mut call = job.call();
    let pid = call.program();
    call.output.wait_for_lines(5);
    for count in 1..=2 {
        call.signal(Signal::SIGUSR1);
        call.wait_for_message(&format!("SIGUSR1: checkpoint {count}"));
        call.output.wait_for_more_lines(3);
    }
    assert_eq!(call.program(), pid);
    assert_eq!(job.store().sealed(&scene).len(), 2);
    call.signal(Signal::SIGTERM);
    assert_eq!(call.wait(), 85, "{}", call.messages());
}

#[test]
fn a_second_signal_during_the_last_checkpoint_changes_nothing() {
    let scene = scene();
    // Much to store, so that there is time.
    let program = Program::victim("idle").argument("200").argument("random");
    let expected = reference(&scene, &program);
    let job = Job::new(&scene, &program).options(&["--interval", "0"]);
    let mut call = job.call();
    call.output.wait_for_lines(3);
    call.signal(Signal::SIGTERM);
    processes::wait_until("the checkpoint is begun", Duration::from_secs(30), || {
        job.store().path().exists() && job.store().rows(&scene).iter().any(|row| row.state == "writing")
    });
    call.signal(Signal::SIGTERM);
    call.signal(Signal::SIGINT);
    call.signal(Signal::SIGUSR1);
    assert_eq!(call.wait(), 85, "{}", call.messages());
    let said = call.messages();
    assert!(said.contains("SIGINT, too"), "{said}");
    assert_eq!(job.store().rows(&scene).len(), 1, "one checkpoint was tried, and sealed");
    ends_exactly(&job, &expected);
}

#[test]
fn signals_to_the_group_reach_the_script_and_not_the_program() {
    let scene = scene();
    let job = Job::new(&scene, &exits(600, "catch")).options(&["--interval", "0"]);
    let mut call = job.call();
    call.program();
    call.output.wait_for_lines(5);
    // As `timeout` and a terminal's ^C do.
    let group = nix::unistd::Pid::from_raw(-call.pid());
    nix::sys::signal::kill(group, Signal::SIGINT).expect("a group that was made for this");
    assert_eq!(call.wait(), 85, "{}", call.messages());
    assert!(!call.output.text().contains("caught"), "{}", call.output.text());
}

#[test]
fn a_program_that_always_crashes_is_given_up_after_so_many_restarts() {
    let scene = scene();
    let job = Job::new(&scene, &exits(3, "signal:6")).options(&["--max-restarts", "2"]);
    let (code, said) = job.run();
    assert_eq!(code, 134, "{said}");
    let output = String::from_utf8(stdout(&job)).expect("text");
    assert_eq!(output.matches("ready").count(), 3, "a start and two restarts: {said}");
    assert!(said.contains("signal 6 (ABRT)") && said.contains("giving up after 2 restarts"), "{said}");
}

#[test]
fn a_new_checkpoint_between_two_crashes_begins_the_count_anew() {
    let scene = scene();
    let program = light(500);
    let expected = reference(&scene, &program);
    let job = Job::new(&scene, &program).options(&["--interval", "0", "--max-restarts", "1"]);
    let mut call = job.call();
    for times in 1..=3 {
        let pid = call.program();
        call.output.wait_for_more_lines(3);
        checkpoint(&scene, pid);
        kill_and_wait_for_the_next(&mut call, Signal::SIGKILL, times);
    }
    assert!(call.messages().contains("restart 1 of 1"), "{}", call.messages());
    // Twice from one checkpoint is one too many.
    processes::send(call.program(), Signal::SIGKILL);
    assert_eq!(call.wait(), 137, "{}", call.messages());
    ends_exactly(&job, &expected);
}

#[test]
fn what_is_no_crash_passes_through() {
    let scene = scene();
    for (name, kind, code) in [("own", "code:3", 3), ("term", "signal:15", 143), ("hup", "signal:1", 129)] {
        let job = Job::new(&scene, &exits(3, kind)).named(name);
        let (found, said) = job.run();
        assert_eq!(found, code, "{said}");
        assert!(!said.contains("restart"), "{said}");
    }
}

#[test]
fn with_restart_on_error_an_exit_code_is_a_crash() {
    let scene = scene();
    let options = ["--restart-on-error", "--max-restarts", "1"];
    let job = Job::new(&scene, &exits(3, "code:3")).options(&options);
    let (code, said) = job.run();
    assert_eq!(code, 3, "{said}");
    let output = String::from_utf8(stdout(&job)).expect("text");
    assert_eq!(output.matches("ready").count(), 2, "{said}");
}

#[test]
fn a_job_that_is_done_is_not_run_again_unless_that_is_asked_for() {
    let scene = scene();
    let job = Job::new(&scene, &exits(3, "code:0"));
    let (code, said) = job.run();
    assert_eq!(code, 0, "{said}");
    let output = stdout(&job);
    let (code, said) = job.run();
    assert_eq!((code, stdout(&job) == output), (0, true), "{said}");
    assert!(said.contains("is done since"), "{said}");
    let (code, said) = job.clone().options(&["--again"]).run();
    assert_eq!((code, stdout(&job).len()), (0, 2 * output.len()), "{said}");
}

#[test]
fn another_command_is_not_taken_for_the_job() {
    let scene = scene();
    let job = Job::new(&scene, &light(300)).options(&["--interval", "0"]);
    let mut call = job.call();
    call.program();
    call.output.wait_for_lines(3);
    call.signal(Signal::SIGTERM);
    assert_eq!(call.wait(), 85, "{}", call.messages());
    let other = Job::new(&scene, &light(301)).options(&["--interval", "0"]);
    let (code, said) = other.run();
    assert_eq!(code, 122, "{said}");
    assert!(said.contains("exits 300") && said.contains("--again"), "{said}");
    // Its name is the user's word that it is.
    let (code, said) = other.named("exits").run();
    assert_eq!(code, 7, "{said}");
    assert!(said.contains("resuming exits from checkpoint 1"), "{said}");
}

#[test]
fn a_job_that_begins_anew_does_not_resume_what_it_was_before() {
    let scene = scene();
    let job = Job::new(&scene, &exits(400, "")).options(&["--interval", "0"]);
    let mut call = job.call();
    call.program();
    call.output.wait_for_lines(3);
    call.signal(Signal::SIGTERM);
    assert_eq!(call.wait(), 85, "{}", call.messages());
    let mut call = job.clone().options(&["--again", "--max-restarts", "1"]).call();
    processes::send(call.program(), Signal::SIGKILL);
    call.wait_for_message("restart 1 of 1");
    processes::send(call.program(), Signal::SIGKILL);
    assert_eq!(call.wait(), 137, "{}", call.messages());
    assert!(!call.messages().contains("resuming"), "{}", call.messages());
}

/// Changes bytes all over the packs of checkpoint `id`.
fn damage(store: &Path, id: u64) {
    let packs = fs::read_dir(store.join("packs")).expect("packs").filter_map(Result::ok);
    let own: Vec<_> =
        packs.filter(|pack| pack.file_name().to_string_lossy().starts_with(&format!("{id:010}-"))).collect();
    assert!(!own.is_empty(), "checkpoint {id} has packs of its own");
    for pack in own {
        let mut bytes = fs::read(pack.path()).expect("a pack");
        // Its pages come first, behind the header; not all of them are needed where files still have the same.
        (4096..bytes.len()).step_by(512).for_each(|at| bytes[at] ^= 0x10);
        fs::write(pack.path(), bytes).expect("writable");
    }
}

#[test]
fn a_damaged_checkpoint_is_passed_by_and_without_another_nothing_is_run() {
    let scene = scene();
    let program = light(300);
    let expected = reference(&scene, &program);
    let job = Job::new(&scene, &program).options(&["--interval", "0"]);
    for _ in 0..2 {
        let mut call = job.call();
        call.program();
        call.output.wait_for_more_lines(10);
        call.signal(Signal::SIGTERM);
        assert_eq!(call.wait(), 85, "{}", call.messages());
    }
    let store = job.store();
    damage(store.path(), 2);
    let (code, said) = job.run();
    assert_eq!(code, expected.code, "{said}");
    assert_same(&stdout(&job), &expected.stdout, "the output");
    assert!(said.contains("checkpoint 2 of exits is damaged") && said.contains("from checkpoint 1"), "{said}");

    damage(store.path(), 1);
    let (code, said) = job.run();
    assert_eq!(code, 123, "{said}");
    assert!(said.contains("every checkpoint of exits"), "{said}");
    assert_same(&stdout(&job), &expected.stdout, "nothing has run");
}

#[test]
fn a_manifest_that_cannot_be_read_is_said_and_passed_by() {
    let scene = scene();
    let program = light(300);
    let expected = reference(&scene, &program);
    let job = Job::new(&scene, &program).options(&["--interval", "0"]);
    for _ in 0..2 {
        let mut call = job.call();
        call.program();
        call.output.wait_for_more_lines(10);
        call.signal(Signal::SIGTERM);
        assert_eq!(call.wait(), 85, "{}", call.messages());
    }
    let damage_manifest = |id: u64| {
        let manifest = job.store().path().join(format!("manifests/{id:010}.manifest"));
        let mut bytes = fs::read(&manifest).expect("a manifest");
        // Where it says whose it is.
        bytes[100] ^= 0x10;
        fs::write(&manifest, bytes).expect("writable");
    };
    damage_manifest(2);
    let (code, said) = job.run();
    assert_eq!(code, expected.code, "{said}");
    assert_same(&stdout(&job), &expected.stdout, "the output");
    assert!(said.contains("from checkpoint 1"), "{said}");
    assert!(said.contains("attempt 2 in"), "{said}");

    damage_manifest(1);
    let (code, said) = job.run();
    assert_eq!(code, 123, "{said}");
    assert_same(&stdout(&job), &expected.stdout, "nothing has run");
}

#[test]
fn a_program_that_outlives_its_script_is_not_started_twice() {
    let scene = scene();
    let program = light(900);
    let expected = reference(&scene, &program);
    let job = Job::new(&scene, &program).options(&["--interval", "0"]);
    let mut call = job.call();
    let pid = call.program();
    call.output.wait_for_lines(5);
    call.signal(Signal::SIGKILL);
    assert_eq!(call.wait(), 137);
    assert_eq!(job.noted_pid(), pid);

    let (code, said) = job.run();
    assert_eq!(code, 87, "{said}");
    assert!(said.contains(&format!("still runs, as process {pid}")), "{said}");
    assert_eq!(processes::copies(&program.executable, &job.directory), [pid]);
    // As the message says.
    Ckpt::new(&scene, ["checkpoint", "--kill", &pid.to_string()]).call().succeeded();
    let gone = || !processes::is_alive(pid);
    processes::wait_until("the program has ended", Duration::from_secs(10), gone);
    ends_exactly(&job, &expected);
    assert!(!anything_printed_twice(&job));
}

#[test]
fn a_program_that_is_done_after_its_script_has_ended_is_done() {
    let scene = scene();
    let job = Job::new(&scene, &exits(100, "code:0")).options(&["--interval", "1"]);
    let mut call = job.call();
    let pid = call.program();
    call.output.wait_for_lines(5);
    checkpoint(&scene, pid);
    call.signal(Signal::SIGKILL);
    assert_eq!(call.wait(), 137);
    processes::wait_until("the program has ended", Duration::from_secs(60), || {
        job.state("starter.status").metadata().is_ok_and(|found| found.len() > 0)
    });
    let output = stdout(&job);
    let (code, said) = job.run();
    assert_eq!((code, stdout(&job) == output), (0, true), "{said}");
    assert!(said.contains("is done"), "{said}");
}

#[test]
fn a_job_has_one_script_at_a_time() {
    let scene = scene();
    let job = Job::new(&scene, &light(600)).options(&["--interval", "0"]);
    let mut call = job.call();
    let pid = call.program();
    let (code, said) = job.run();
    assert_eq!(code, 87, "{said}");
    assert!(said.contains(&format!("runs already, under process {}", call.pid())), "{said}");
    assert_eq!(processes::copies(&job.program.executable, &job.directory), [pid]);
    call.signal(Signal::SIGTERM);
    assert_eq!(call.wait(), 85, "{}", call.messages());
}

#[test]
fn a_program_whose_ckpt_is_killed_is_waited_for_and_saved() {
    let scene = scene();
    let program = light(600);
    let expected = reference(&scene, &program);
    let job = Job::new(&scene, &program).options(&["--interval", "0"]);
    let mut call = job.call();
    let pid = call.program();
    call.output.wait_for_lines(5);
    let parent = processes::status_field(pid, "PPid").and_then(|pid| pid.parse().ok()).expect("a parent");
    assert_eq!(processes::executable(parent), Some(product::ckpt()));
    processes::send(parent, Signal::SIGKILL);
    call.wait_for_message("runs on as process");
    call.output.wait_for_more_lines(5);
    assert_eq!(processes::copies(&program.executable, &job.directory), [pid]);
    call.signal(Signal::SIGTERM);
    assert_eq!(call.wait(), 85, "{}", call.messages());
    ends_exactly(&job, &expected);
    assert!(!anything_printed_twice(&job));
}

#[test]
fn a_program_that_cannot_be_saved_is_ended_by_sigterm_and_that_is_said() {
    let scene = scene();
    let program = Program::victim("refused").argument("3000").argument("packet_ring");
    let job = Job::new(&scene, &program).options(&["--interval", "0", "--grace", "30"]);
    let mut call = job.call();
    let pid = call.program();
    call.output.wait_for_lines(3);
    call.signal(Signal::SIGTERM);
    assert_eq!(call.wait(), 86, "{}", call.messages());
    assert!(!processes::is_alive(pid));
    let said = call.messages();
    assert!(said.contains("no last checkpoint") && said.contains("its packets are in a ring"), "{said}");
    assert!(said.contains("the newest is none"), "{said}");
}

#[test]
fn a_program_that_ignores_sigterm_is_killed_when_its_time_is_up() {
    let scene = scene();
    let code = "import signal, socket, struct, time; signal.signal(15, signal.SIG_IGN); s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0); s.setsockopt(263, 5, struct.pack('IIII', 4096, 1, 2048, 2)); print('ready', flush=True); time.sleep(100)";
    let program = Program::at("/usr/bin/python3").argument("-c").argument(code);
    let options = ["--interval", "0", "--grace", "1", "--kill-after", "1"];
    let job = Job::new(&scene, &program).options(&options);
    let mut call = job.call();
    let pid = call.program();
    call.output.wait_for_lines(1);
    call.signal(Signal::SIGTERM);
    assert_eq!(call.wait(), 86, "{}", call.messages());
    assert!(!processes::is_alive(pid));
}

#[test]
fn a_signal_while_the_program_is_being_resumed_loses_nothing() {
    let scene = scene();
    let program = Program::victim("idle").argument("200").argument("random");
    let expected = reference(&scene, &program);
    let job = Job::new(&scene, &program).options(&["--interval", "0"]);
    let mut call = job.call();
    call.output.wait_for_lines(3);
    call.signal(Signal::SIGTERM);
    assert_eq!(call.wait(), 85, "{}", call.messages());
    for wait_ms in [0, 60, 150, 300] {
        let mut call = job.call();
        call.wait_for_message("resuming");
        std::thread::sleep(Duration::from_millis(wait_ms));
        call.signal(Signal::SIGTERM);
        assert_eq!(call.wait(), 85, "{}", call.messages());
        assert!(processes::copies(&program.executable, &job.directory).is_empty());
    }
    ends_exactly(&job, &expected);
    assert!(!anything_printed_twice(&job));
}

#[test]
fn who_asks_for_another_turn_is_called_when_there_is_to_be_one() {
    let scene = scene();
    let job = Job::new(&scene, &light(300)).options(&["--interval", "0", "--requeue-code", "99"]);
    let job = job.options(&["--requeue", "echo again >>asked"]);
    let asked = || fs::read_to_string(job.directory.join("asked")).unwrap_or_default();
    let mut call = job.call();
    call.program();
    call.output.wait_for_lines(3);
    assert_eq!(asked(), "");
    call.signal(Signal::SIGTERM);
    assert_eq!(call.wait(), 99, "{}", call.messages());
    assert_eq!(asked(), "again\n");
    assert_eq!(job.run().0, 7);
    assert_eq!(asked(), "again\n", "not when it is done");
}

#[test]
fn a_job_goes_on_in_another_container() {
    let scene = scene();
    let program = threads8(400);
    let expected = reference(&scene, &program);
    // Each time pids begin at 1, and the same ones are given to the processes before the program.
    let container = ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child"];
    let job = Job::new(&scene, &program).options(&["--interval", "0"]).under(&container);
    let mut pids = Vec::new();
    for _ in 0..3 {
        let mut call = job.call();
        let pid = call.program();
        pids.push(processes::pid_in_its_namespace(pid).expect("a pid"));
        call.output.wait_for_more_lines(5);
        let inner = processes::children(call.pid())[0];
        processes::send(inner, Signal::SIGTERM);
        assert_eq!(call.wait(), 85, "{}", call.messages());
    }
    assert!(pids[0] >= 1000 && pids.iter().all(|&pid| pid == pids[0]), "{pids:?}");
    ends_exactly(&job, &expected);
    assert!(!anything_printed_twice(&job));
}

#[test]
fn a_program_that_ckpt_itself_has_saved_is_to_be_run_again() {
    let scene = scene();
    let program = threads8(400).variable("CKPT_ON_TERM", "1");
    let expected = reference(&scene, &program);
    let job = Job::new(&scene, &program).options(&["--interval", "0"]);
    for _ in 0..2 {
        let mut call = job.call();
        let program = call.program();
        call.output.wait_for_more_lines(5);
        let parent = processes::status_field(program, "PPid").and_then(|pid| pid.parse().ok()).expect("ckpt");
        processes::send(parent, Signal::SIGTERM);
        assert_eq!(call.wait(), 85, "{}", call.messages());
        assert!(call.log().contains("SIGTERM to ckpt"), "{}", call.messages());
    }
    ends_exactly(&job, &expected);
    let own = exits(20, "code:85").variable("CKPT_ON_TERM", "1");
    let (code, said) = Job::new(&scene, &own).named("own").options(&["--again"]).run();
    assert!(code == 85 && said.contains("has ended with exit code 85"), "{code}: {said}");
}

#[test]
fn a_descriptor_that_leads_outside_is_closed_and_named() {
    let scene = scene();
    let opened = ["bash", "-c", "exec 7> >(cat); exec \"$0\" \"$@\""];
    let job = Job::new(&scene, &light(300)).options(&["--interval", "0"]).under(&opened);
    let mut call = job.call();
    call.program();
    call.output.wait_for_lines(3);
    assert!(call.messages().contains("closing descriptor 7"), "{}", call.messages());
    call.signal(Signal::SIGTERM);
    assert_eq!(call.wait(), 85, "{}", call.messages());
}

#[test]
fn what_makes_no_sense_is_said_before_anything_is_started() {
    let scene = scene();
    let folder = scene.folder("no-store");
    fs::write(folder.join("novel.txt"), "").expect("a file");
    let folder = folder.to_string_lossy().into_owned();
    let program = exits(3, "");
    for (options, named) in [
        (vec!["--max-restarts", "many"], "--max-restarts"),
        (vec!["--grace", "-1"], "--grace"),
        (vec!["--no-such-option", "1"], "--no-such-option"),
        (vec!["--name", "a/b"], "a/b"),
        (vec!["--dir", "s3://bucket/x"], "s3://bucket/x"),
        (vec!["--dir", &folder], "novel.txt"),
    ] {
        let (code, said) = Job::new(&scene, &program).options(&options).run();
        assert_eq!(code, 122, "{options:?}: {said}");
        assert!(said.contains(named), "{options:?}: {said}");
    }
    assert!(!scene.path().join("job/stdout").metadata().is_ok_and(|found| found.len() > 0), "nothing has run");
    let missing = Program { executable: "/nonexistent/app".into(), ..program };
    let (code, said) = Job::new(&scene, &missing).run();
    assert_eq!(code, 121, "{said}");
    assert!(said.contains("cannot be started"), "{said}");
}

#[test]
fn help_names_every_option_and_code() {
    let output = std::process::Command::new(script()).arg("--help").output().expect("the script");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success());
    for word in ["--max-restarts", "--grace", "--requeue", "USR1", "85", "86", "87", "121 to 125"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn what_another_host_has_left_is_named_and_its_lock_waited_for() {
    let scene = scene();
    let job = Job::new(&scene, &light(50)).options(&["--interval", "0"]);
    let lock = job.state("lock");
    fs::create_dir_all(lock.parent().expect("a folder")).expect("a folder in the scene");
    let left = "4711\n1 00000000-0000-0000-0000-000000000000 elsewhere\n";
    fs::write(&lock, left).expect("a file");
    let (code, said) = job.run();
    assert_eq!(code, 7, "{said}");
    assert!(said.contains("ran on elsewhere before"), "{said}");

    fs::write(&lock, left).expect("a file");
    let held = Flock::lock(fs::File::open(&lock).expect("a file"), FlockArg::LockExclusive).expect("its lock");
    let mut call = job.call();
    processes::wait_until("it waits", Duration::from_secs(30), || call.messages().contains("waiting up to"));
    assert!(!call.has_ended());
    drop(held);
    assert_eq!(call.wait(), 7, "{}", call.messages());
}

/// The state directory's parent and itself, made by root as the script makes them.
fn make_state(job: &Job<'_>) -> (PathBuf, PathBuf) {
    let state = job.state("lock").parent().expect("a folder").to_owned();
    let all = state.parent().expect("a folder").to_owned();
    for directory in [&all, &state] {
        DirBuilder::new().mode(0o700).create(directory).expect("the job's folder is writable");
    }
    (all, state)
}

fn give(path: &Path) {
    lchown(path, Some(USER), Some(USER)).expect("root may");
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("root may");
}

/// Puts something there, given the job and a private file of root's in a private folder.
type Trap = fn(&Job<'_>, &Path);

/// What another user can have put into the place of the state directory or of a file in it, by what the script says of it.
const TRAPS: [(&str, Trap); 14] = [
    ("store.until-done is", |job, target| {
        symlink(target.parent().expect("a folder"), job.directory.join("store.until-done")).expect("a link");
    }),
    ("store.until-done is", |job, _| give(&make_state(job).0)),
    ("store.until-done is", |job, _| set_mode(&make_state(job).0, 0o777)),
    ("store.until-done is", |job, _| set_mode(&make_state(job).0, 0o720)),
    ("store.until-done is", |job, _| {
        mkfifo(&job.directory.join("store.until-done"), Mode::S_IRWXU).expect("a pipe");
    }),
    ("store.until-done/exits is", |job, target| {
        let (_, state) = make_state(job);
        fs::remove_dir(&state).expect("it is empty");
        symlink(target.parent().expect("a folder"), &state).expect("a link");
    }),
    ("store.until-done/exits is", |job, _| give(&make_state(job).1)),
    ("store.until-done/exits is", |job, _| set_mode(&make_state(job).1, 0o1777)),
    ("store.until-done/exits/lock is", |job, target| {
        symlink(target, make_state(job).1.join("lock")).expect("a link");
    }),
    ("store.until-done/exits/lock is", |job, target| {
        fs::hard_link(target, make_state(job).1.join("lock")).expect("a link");
    }),
    ("store.until-done/exits/done is", |job, target| {
        symlink(target.with_file_name("new"), make_state(job).1.join("done")).expect("a link");
    }),
    ("store.until-done/exits/starter is", |job, _| {
        mkfifo(&make_state(job).1.join("starter"), Mode::S_IRWXU).expect("a pipe");
    }),
    ("store.until-done/exits/process is", |job, _| {
        let process = make_state(job).1.join("process");
        fs::write(&process, "1\n").expect("a file");
        give(&process);
    }),
    ("store.until-done/exits/command is", |job, _| {
        let command = make_state(job).1.join("command");
        fs::write(&command, "").expect("a file");
        set_mode(&command, 0o666);
    }),
];

#[test]
fn what_another_user_has_put_into_the_place_of_the_state_is_refused_by_name() {
    let scene = scene();
    let private = scene.folder("private");
    let target = private.join("target");
    set_mode(&private, 0o700);
    for (what, trap) in TRAPS {
        let job = Job::new(&scene, &light(1)).options(&["--interval", "0"]);
        give(&job.directory);
        set_mode(&job.directory, 0o777);
        fs::write(&target, "kept").expect("a file");
        set_mode(&target, 0o600);
        trap(&job, &target);
        let (code, said) = job.run();
        assert_eq!(code, 125, "{what}: {said}");
        assert!(said.contains(what), "{what}: {said}");
        assert_eq!(fs::read_to_string(&target).expect("a file"), "kept", "{what}");
        let left: Vec<_> =
            fs::read_dir(&private).expect("a folder").map(|entry| entry.expect("it").file_name()).collect();
        assert_eq!(left, ["target"], "{what}");
        assert_eq!(stdout(&job), b"", "nothing has run: {what}");
        fs::remove_dir_all(&job.directory).expect("root may");
    }
}

#[test]
fn what_is_remembered_is_its_users_alone_and_the_program_has_its_own_umask() {
    let scene = scene();
    let program = Program::installed("bash").argument("-c").argument("umask; exit 7");
    let before = ["sh", "-c", "umask 027; exec \"$@\"", "sh"];
    let job = Job::new(&scene, &program).under(&before).options(&["--interval", "0", "--dir", "new/folder/store"]);
    set_mode(&job.directory, 0o1777);
    let (code, said) = job.run();
    assert_eq!(code, 7, "{said}");
    assert_eq!(String::from_utf8_lossy(&stdout(&job)), "0027\n", "{said}");
    let all = job.directory.join("new/folder/store.until-done");
    let mut files = vec![all.join("bash")];
    files.extend(fs::read_dir(all.join("bash")).expect("a folder").map(|entry| entry.expect("it").path()));
    assert!(files.len() > 5, "{files:?}");
    for path in files.iter().chain([&all]) {
        let found = fs::metadata(path).expect("it is there");
        let mode = if found.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(found.mode() & 0o7777, mode, "{}", path.display());
    }
}

#[test]
fn a_state_that_others_could_read_is_closed_and_goes_on() {
    let scene = scene();
    let job = Job::new(&scene, &light(1)).options(&["--interval", "0"]);
    let (all, state) = make_state(&job);
    set_mode(&all, 0o755);
    set_mode(&state, 0o755);
    fs::write(state.join("log"), "before\n").expect("a file");
    set_mode(&state.join("log"), 0o644);
    let (code, said) = job.run();
    assert_eq!(code, 7, "{said}");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o7777;
    assert_eq!((mode(&all), mode(&state)), (0o700, 0o700));
    assert!(fs::read_to_string(state.join("log")).expect("a file").starts_with("before\n"));
}

#[test]
fn names_in_messages_are_shown_and_not_obeyed() {
    let scene = scene();
    let job = Job::new(&scene, &light(1)).options(&["--interval", "0"]);
    let hostile = "x\x1b]0;PWNED\x07\nckpt-run-until-done: done \u{202e}txt\u{9b}";
    fs::create_dir_all(job.store().path().join(hostile)).expect("a folder");
    let (code, said) = job.run();
    assert_eq!(code, 122, "{said}");
    assert!(said.contains("PWNED"), "{said}");
    assert!(!said.contains(['\x1b', '\x07', '\u{202e}', '\u{9b}']), "{said:?}");
    assert!(!said.lines().any(|line| line.starts_with("ckpt-run-until-done: done")), "{said:?}");
}

/// Runs a script that tries a recipe with the real thing, and says so where the real thing cannot be had.
fn tried(script: &str) {
    let script = product::repository().join("scripts/batch").join(script);
    let output = std::process::Command::new(script).env("CKPT", product::ckpt()).output().expect("the script");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(0) => {}
        Some(77) => ckpt_tests::skip(said.lines().last().unwrap_or("it said nothing")),
        _ => panic!("{said}"),
    }
}

#[test]
#[ignore = "minutes, and downloads Slurm"]
fn a_slurm_job_goes_on_after_its_time_limit_preemption_and_requeues() {
    tried("try-slurm");
}

#[test]
#[ignore = "minutes"]
fn a_systemd_unit_goes_on_after_a_stop_its_death_a_boot_and_power_loss() {
    tried("try-systemd");
}
