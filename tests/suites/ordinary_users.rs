//! Ordinary users, and ids that somebody else has: the program goes on in a pid namespace of its own.

use std::time::Duration;

use ckpt_tests::exact::{How, Trigger, assert_same, reference, survives, take};
use ckpt_tests::job_control;
use ckpt_tests::ordinary_user::as_ordinary_user;
use ckpt_tests::taken_id::TakenId;
use ckpt_tests::{
    Answer, Ckpt, Launch, Life, Program, Restart, Scene, Stdout, checkpoint, code_of, processes, product,
};
use nix::sys::signal::Signal;

/// Parts of the reference's lines after which checkpoints are taken, in per cent.
const MOMENTS: [usize; 3] = [5, 40, 75];

fn ckpt(scene: &Scene, arguments: &[&str]) -> Answer {
    Ckpt::new(scene, arguments).call()
}

fn threads8() -> Program {
    Program::victim("threads8").argument("120")
}

fn exits(kind: &str) -> Program {
    Program::victim("exits").argument("300").argument(kind)
}

fn goes_on_exactly(program: &Program, stdout: Stdout) {
    let scene = Scene::of_at_most(Duration::from_secs(180));
    let reference = reference(&scene, program);
    for (moment, trigger) in MOMENTS.into_iter().zip([Trigger::Command, Trigger::Signal, Trigger::Command]) {
        let line = (reference.lines() * moment / 100).max(1);
        survives(&scene, program, How { stdout, trigger, launch: Launch::Preload }, line, &reference);
    }
}

macro_rules! go_on_exactly {
    ($($test:ident: $program:ident, $victims:expr, $scripts:expr, $stdout:ident;)*) => { $(
        #[test]
        fn $test() {
            as_ordinary_user($victims, $scripts, || goes_on_exactly(&$program(), Stdout::$stdout));
        }
    )* };
}

fn python() -> Program {
    Program::python("lines.py").argument("80").writes("lines")
}

go_on_exactly! {
    eight_threads_printing_to_a_file_go_on_exactly: threads8, &["threads8"], &[], File;
    eight_threads_printing_to_a_pipe_go_on_exactly: threads8, &["threads8"], &[], Pipe;
    eight_threads_printing_to_a_terminal_go_on_exactly: threads8, &["threads8"], &[], Terminal;
    python_printing_to_a_file_goes_on_exactly: python, &[], &["lines.py"], File;
    python_printing_to_a_pipe_goes_on_exactly: python, &[], &["lines.py"], Pipe;
    python_printing_to_a_terminal_goes_on_exactly: python, &[], &["lines.py"], Terminal;
}

/// The pid that the program of `life` knows itself by.
fn own_pid(life: &Life<'_>) -> i32 {
    processes::pid_in_its_namespace(life.pid).expect("it runs")
}

/// A second life of `program`, running.
fn restarted<'scene>(scene: &'scene Scene, program: &Program, options: &[&str]) -> Life<'scene> {
    let life = Life::until_checkpoint(scene, "life", program, 5);
    let restart = options.iter().fold(Restart::of(life.store()), |restart, option| restart.option(option));
    let second = restart.begin(scene, &life.directory, life.pid);
    second.output.wait_for_more_lines(3);
    second
}

/// Every way to ask for a checkpoint of a program in a namespace of its own, a life each.
fn five_generations(options: &[&str]) {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let program = Program::victim("threads8").argument("200");
    let expected = reference(&scene, &program);
    let mut life = restarted(&scene, &program, options);
    let (pid, directory) = (own_pid(&life), life.directory.clone());
    let store = life.store();
    for asked_for in ["pid", "directory", "signal"] {
        assert_ne!(life.pid, pid, "the program has another pid outside");
        let id = match asked_for {
            "pid" => checkpoint(&scene, life.pid),
            "directory" => ckpt(&scene, &["checkpoint", &store.path().to_string_lossy()]).succeeded().number(),
            _ => take(&scene, &life, Trigger::Signal),
        };
        life.output.wait_for_more_lines(2);
        life.kill();
        let restart = options.iter().fold(Restart::of(&store).id(id), |restart, option| restart.option(option));
        life = restart.begin(&scene, &directory, pid);
        life.output.wait_for_more_lines(2);
        assert_eq!(own_pid(&life), pid);
    }
    assert_eq!(code_of(life.wait()), expected.code, "{}", life.errors());
    assert_same(&life.output.bytes(), &expected.stdout, "the output of all lives");
}

#[test]
fn a_program_in_a_namespace_is_checkpointed_by_pid_directory_and_signal_and_restarted_again_and_again() {
    as_ordinary_user(&["threads8"], &[], || five_generations(&[]));
}

#[test]
fn so_is_one_of_root() {
    five_generations(&["--namespace", "always"]);
}

#[test]
fn a_program_has_the_rights_in_a_namespace_that_it_had_before() {
    as_ordinary_user(&["exits"], &[], || {
        const FIELDS: [&str; 11] = [
            "Uid",
            "Gid",
            "Groups",
            "CapInh",
            "CapPrm",
            "CapEff",
            "CapBnd",
            "CapAmb",
            "NoNewPrivs",
            "Seccomp",
            "Umask",
        ];
        let rights = |pid| FIELDS.map(|field| processes::status_field(pid, field).expect("it runs"));
        let scene = Scene::new();
        let mut life = Life::preloaded(&scene, "life", &exits("code:5"));
        life.output.wait_for_lines(5);
        let before = rights(life.pid);
        checkpoint(&scene, life.pid);
        life.kill();
        let mut second = Restart::of(life.store()).begin(&scene, &life.directory, life.pid);
        assert_eq!(rights(second.pid), before);
        assert_eq!(processes::executable(second.pid), Some(exits("").executable), "{}", second.errors());
        second.kill();
    });
}

#[test]
fn what_is_given_up_is_said_in_one_line_with_the_pid_outside() {
    as_ordinary_user(&["exits"], &[], || {
        let scene = Scene::new();
        let mut life = restarted(&scene, &exits("code:5"), &[]);
        let said = life.errors();
        let is_of_files = |line: &&str| line.contains(" again as ");
        assert_eq!(said.trim_end().lines().filter(|line| !is_of_files(line)).count(), 1, "{said}");
        for word in ["namespace", "set-user-ID", "groups", &format!(" {} outside", life.pid), "CAP_CHECKPOINT_RESTORE"]
        {
            assert!(said.contains(word), "{word:?} is missing: {said}");
        }
        life.kill();
    });
}

#[test]
fn detach_prints_the_pid_that_the_caller_sees() {
    as_ordinary_user(&["exits"], &[], || {
        let scene = Scene::new();
        let life = Life::until_checkpoint(&scene, "life", &exits("code:5"), 5);
        let dir = life.store().path().to_string_lossy().into_owned();
        let printed = ckpt(&scene, &["restart", "--detach", &dir]).succeeded().number();
        let pid = i32::try_from(printed).expect("a pid");
        assert_eq!(processes::pid_in_its_namespace(pid), Some(life.pid));
        life.output.wait_for_more_lines(3);
        checkpoint(&scene, pid);
        processes::send(pid, Signal::SIGTERM);
        processes::wait_until("it ends", Duration::from_secs(5), || !processes::is_alive(pid));
    });
}

#[test]
fn the_exit_status_passes_through() {
    as_ordinary_user(&["exits"], &[], || {
        let scene = Scene::new();
        for (kind, code) in [("code:0", 0), ("code:42", 42), ("signal:15", 143), ("signal:6", 134)] {
            let program = Program::victim("exits").argument("40").argument(kind);
            let life = Life::until_checkpoint(&scene, kind, &program, 5);
            let mut second = Restart::of(life.store()).begin(&scene, &life.directory, life.pid);
            assert_eq!(code_of(second.wait()), code, "{kind}: {}", second.errors());
        }
        let mut killed = restarted(&scene, &exits(""), &[]);
        processes::send(killed.pid, Signal::SIGKILL);
        assert_eq!(killed.wait().code(), Some(137));
    });
}

#[test]
fn signals_sent_to_ckpt_restart_reach_the_program() {
    as_ordinary_user(&["exits"], &[], || {
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR2, Signal::SIGWINCH] {
            let scene = Scene::new();
            let mut life = restarted(&scene, &exits("catch"), &[]);
            processes::send(life.child.id().cast_signed(), signal);
            assert_eq!(code_of(life.wait()), signal as i32, "{}", life.errors());
        }
    });
}

#[test]
fn control_c_at_the_terminal_reaches_the_program() {
    as_ordinary_user(&["exits"], &[], || {
        let scene = Scene::new();
        let mut life = Life::start(&scene, "life", &exits("catch"), &Launch::Preload, Stdout::Terminal);
        life.output.wait_for_lines(5);
        checkpoint(&scene, life.pid);
        life.kill();
        let restart = Restart::of(life.store()).stdout(Stdout::SessionTerminal);
        let mut second = restart.begin(&scene, &life.directory, life.pid);
        second.output.wait_for_lines(3);
        second.type_in("\x03");
        assert_eq!(code_of(second.wait()), Signal::SIGINT as i32, "{}{}", second.output.text(), second.errors());
        second.output.wait_for_line("caught 2");
    });
}

#[test]
fn control_z_stops_the_program_and_fg_resumes_it() {
    as_ordinary_user(&["exits"], &[], job_control::control_z_stops_a_restarted_program_and_fg_resumes_it);
}

#[test]
fn a_program_whose_ckpt_restart_is_killed_runs_on_and_is_checkpointed_again() {
    as_ordinary_user(&["threads8"], &[], || {
        let scene = Scene::new();
        let program = Program::victim("threads8").argument("150");
        let expected = reference(&scene, &program);
        let mut life = restarted(&scene, &program, &[]);
        let pid = own_pid(&life);
        processes::send(life.child.id().cast_signed(), Signal::SIGKILL);
        life.wait();
        life.output.wait_for_more_lines(5);
        assert!(processes::is_alive(life.pid));
        let id = checkpoint(&scene, life.pid);
        life.output.wait_for_more_lines(2);
        processes::send(life.pid, Signal::SIGKILL);
        processes::wait_until("it is gone", Duration::from_secs(5), || !processes::is_alive(life.pid));
        let mut last = Restart::of(life.store()).id(id).begin(&scene, &life.directory, pid);
        assert_eq!(code_of(last.wait()), expected.code, "{}", last.errors());
        assert_same(&last.output.bytes(), &expected.stdout, "the output of all lives");
    });
}

#[test]
fn a_restart_that_dies_before_the_program_runs_leaves_nothing() {
    as_ordinary_user(&["exits"], &[], || {
        let scene = Scene::new();
        let program = exits("code:5");
        let life = Life::until_checkpoint(&scene, "life", &program, 5);
        let store = life.store().path().to_string_lossy().into_owned();
        for point in ["ptrace.seize:1", "ptrace.setregset:5", "ptrace.setoptions:1"] {
            let dying = Ckpt::new(&scene, ["restart", &store]).variable("CKPT_FAULT", point).call();
            assert_eq!(dying.code, 121, "{point}: {dying:?}");
            assert!(dying.stderr.contains("ended unexpectedly"), "{point}: {dying:?}");
            let none = || processes::copies(&program.executable, &life.directory).is_empty();
            processes::wait_until("nothing is left of the program", Duration::from_secs(5), none);
        }
    });
}

#[test]
fn every_command_of_everyday_use_works() {
    as_ordinary_user(&["exits"], &[], || {
        let scene = Scene::new();
        // However busy the machine is, the first life must not end by itself.
        let restarted = scene.path().join("restarted");
        let program =
            exits("code:5").waiting(150, &restarted).variable("CKPT_INTERVAL", "1").variable("CKPT_KEEP", "3");
        let mut life = Life::start(&scene, "life", &program, &Launch::Run(Vec::new()), Stdout::File);
        let store = life.store();
        let dir = store.path().to_string_lossy().into_owned();
        store.wait_for_sealed(&scene, 1);
        let id = ckpt(&scene, &["checkpoint", &dir]).succeeded().number().to_string();
        for command in [
            &["list", &dir][..],
            &["show", &dir, &id],
            &["show", &life.pid.to_string()],
            &["verify", &dir],
            &["doctor", &dir],
            &["checkpoint", "--no-wait", &life.pid.to_string()],
            &["checkpoint", "--kill", &life.pid.to_string()],
            &["prune", &dir, "--keep", "1"],
        ] {
            ckpt(&scene, command).succeeded();
        }
        assert_eq!(code_of(life.wait()), 137, "{}", life.errors());
        let mut second = Restart::of(&store).begin(&scene, &life.directory, life.pid);
        ckpt(&scene, &["show", &second.pid.to_string()]).succeeded();
        std::fs::write(restarted, "").expect("a file in the scene");
        assert_eq!(code_of(second.wait()), 5, "{}", second.errors());
    });
}

#[test]
fn a_directory_names_the_program_only_where_there_is_one() {
    as_ordinary_user(&["exits"], &[], || {
        let scene = Scene::new();
        let shared = scene.path().join("shared");
        let dir = shared.to_string_lossy().into_owned();
        let program = exits("code:5").variable("CKPT_DIR", &shared);
        let none = ckpt(&scene, &["checkpoint", &dir]).failed_with(2);
        assert!(none.stderr.contains("neither a pid nor a directory"), "{none:?}");
        let lives = ["one", "other"].map(|name| Life::preloaded(&scene, name, &program));
        lives.iter().for_each(|life| life.output.wait_for_lines(3));
        let several = ckpt(&scene, &["checkpoint", &dir]).failed_with(2);
        for life in &lives {
            assert!(several.stderr.contains(&format!("{} (exits)", life.pid)), "{several:?}");
        }
        let [mut one, mut other] = lives;
        other.kill();
        assert_eq!(ckpt(&scene, &["checkpoint", &dir]).succeeded().number(), 1);
        one.kill();
        let none = ckpt(&scene, &["checkpoint", &dir]).failed_with(5);
        assert!(none.stderr.contains("no program runs"), "{none:?}");
    });
}

#[test]
fn a_user_who_may_make_no_namespaces_is_told_which_setting_forbids_it() {
    as_ordinary_user(&["exits"], &[], || {
        let scene = Scene::new();
        let life = Life::until_checkpoint(&scene, "life", &exits("code:5"), 5);
        // The limit is one of a user namespace of the test's: nobody else's.
        let script = "echo 0 >/proc/sys/user/max_user_namespaces && \
                      exec setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all \"$CKPT\" restart \"$STORE\"";
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-current-user", "--keep-caps", "sh", "-c", script]);
        command.env("CKPT", product::ckpt()).env("STORE", life.store().path());
        let output = command.output().expect("util-linux");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.contains("user.max_user_namespaces is 0"), "{said}");
        assert!(said.contains("sysctl user.max_user_namespaces=") && said.contains("CAP_CHECKPOINT_RESTORE"), "{said}");
        let refused = ckpt(&scene, &["restart", "--namespace", "never", &life.store().path().to_string_lossy()]);
        assert!(refused.failed_with(125).stderr.contains("it needs CAP_CHECKPOINT_RESTORE"));
    });
}

/// Neither beside the first life nor beside a second one in a namespace.
fn one_life_at_a_time() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &exits("code:5"));
    life.output.wait_for_lines(3);
    checkpoint(&scene, life.pid);
    let dir = life.store().path().to_string_lossy().into_owned();
    let refused = |pid: i32, option: &str| {
        let answer = ckpt(&scene, &["restart", "--namespace", option, &dir]).failed_with(125);
        let said = format!("by a life of the same program that runs already, process {pid};");
        assert!(answer.stderr.contains(&said), "{answer:?}");
    };
    refused(life.pid, "auto");
    refused(life.pid, "always");
    life.kill();
    let restart = Restart::of(life.store()).option("--namespace").option("always");
    let mut second = restart.begin(&scene, &life.directory, life.pid);
    refused(second.pid, "auto");
    second.kill();
}

#[test]
fn a_user_has_one_life_of_a_program_at_a_time() {
    as_ordinary_user(&["exits"], &[], one_life_at_a_time);
}

#[test]
fn so_has_root() {
    one_life_at_a_time();
}

/// Restarts a program one of whose ids somebody has: in a namespace, or not at all where that is wished.
fn goes_on_although_an_id_is_taken(which: fn(&[i32]) -> i32) {
    let scene = Scene::new();
    let program = threads8();
    let expected = reference(&scene, &program);
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(20);
    let ids = processes::threads(life.pid);
    checkpoint(&scene, life.pid);
    life.kill();
    let id = which(&ids);
    let holder = TakenId::new(id);
    let dir = life.store().path().to_string_lossy().into_owned();
    let refused = ckpt(&scene, &["restart", "--namespace", "never", &dir]).failed_with(125);
    assert!(refused.stderr.contains(&format!("pid {id} is in use")), "{refused:?}");
    let mut second = Restart::of(life.store()).begin(&scene, &life.directory, life.pid);
    assert_eq!(code_of(second.wait()), expected.code, "{}", second.errors());
    let said = second.errors();
    assert!(said.contains("namespace") && said.contains(&format!("pid {id} is in use")), "{said}");
    assert!(!said.contains("set-user-ID"), "root gives up less: {said}");
    assert_same(&second.output.bytes(), &expected.stdout, "the output of both lives");
    drop(holder);
}

#[test]
fn a_program_of_root_whose_pid_is_taken_goes_on_in_a_namespace() {
    goes_on_although_an_id_is_taken(|ids| ids[0]);
}

#[test]
fn a_program_of_root_one_of_whose_tids_is_taken_goes_on_in_a_namespace() {
    goes_on_although_an_id_is_taken(|ids| ids[3]);
}

#[test]
fn a_store_that_cannot_be_made_is_said_with_the_user() {
    as_ordinary_user(&["registers"], &[], || {
        let scene = Scene::new();
        let program = Program::victim("registers").argument("100000").variable("CKPT_DIR", "/proc/no-store");
        let life = Life::start(&scene, "life", &program, &Launch::Preload, Stdout::File);
        life.output.wait_for_lines(1);
        let said = Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).call().failed_with(5).stderr;
        assert!(said.contains("cannot create /proc/no-store as user 65534"), "{said}");
    });
}
