//! Programs at terminals, before and after a restart: modes, size, job control; and restarts where there is no terminal.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use ckpt_tests::ordinary_user::as_ordinary_user;
use ckpt_tests::output::Output;
use ckpt_tests::{
    Ckpt, Desk, Launch, Life, Program, Restart, Scene, Stdout, checkpoint, code_of, fault, processes, product,
};
use nix::sys::signal::Signal;
use nix::sys::termios::LocalFlags;

const SMALL: (u16, u16) = (24, 80);
const LARGE: (u16, u16) = (40, 132);
const LIMIT: Duration = Duration::from_secs(20);

fn keys(kind: &str) -> Program {
    Program::victim("keys").argument("4000").argument(kind)
}

/// Types a key that asks the program something, and waits for its `number`th report.
/// Right after `fg` the key may come before the program has its modes back, and be echoed in front of the answer.
fn ask(desk: &mut Desk, key: &str, number: usize, answer: &str) {
    desk.shell.type_in(key);
    desk.shell.output.wait_for_text(&format!("{number} {answer}"));
}

#[test]
fn a_raw_program_is_raw_again_at_another_terminal_and_leaves_it_as_it_was() {
    let scene = Scene::new();
    let program = keys("raw");
    let mut desk = Desk::new(&scene, "first", &program, SMALL);
    let pid = desk.start("{}");
    ask(&mut desk, "m", 1, "modes keys silent bytes as-is");
    ask(&mut desk, "s", 2, "size 24 80");
    desk.checkpoint_and_kill(pid);
    assert_eq!(desk.status(), 137);
    desk.leave();

    let mut desk = Desk::new(&scene, "second", &program, LARGE);
    let before = desk.modes_for_jobs();
    desk.restart("{}");
    desk.shell.output.wait_for_line("ckpt: restarting keys: checkpoint 1 of ");
    desk.shell.output.wait_for_line("3 size 40 132");
    ask(&mut desk, "m", 4, "modes keys silent bytes as-is");
    ask(&mut desk, "\x03", 5, "key 3");
    desk.shell.type_in("q");
    desk.shell.output.wait_for_line("bye");
    assert_eq!(desk.status(), 5);
    assert_eq!(desk.modes_for_jobs(), before, "the program puts back what its first terminal had");

    let pid = desk.restart("{}");
    processes::wait_until("it is raw", LIMIT, || !desk.modes().local_flags.contains(LocalFlags::ISIG));
    desk.kill(pid);
    assert_eq!(desk.status(), 137);
    assert_eq!(desk.modes_for_jobs(), before, "a killed program cannot, so the restarter does");
    desk.leave();
}

#[test]
fn a_program_that_collects_lines_does_so_again_and_takes_control_c() {
    let scene = Scene::new();
    let program = keys("cooked");
    let mut desk = Desk::new(&scene, "first", &program, SMALL);
    let pid = desk.start("{}");
    ask(&mut desk, "m\n", 1, "modes lines echo signals output");
    desk.checkpoint_and_kill(pid);
    assert_eq!(desk.status(), 137);

    let pid = desk.restart("{}");
    ask(&mut desk, "m\n", 3, "modes lines echo signals output");
    ask(&mut desk, "g\n", 4, "job foreground own");
    desk.shell.type_in("\x03");
    assert_eq!(desk.status(), 130);
    assert!(!processes::is_alive(pid));
    desk.leave();
}

#[test]
fn in_the_background_the_modes_are_the_shells_and_are_not_taken_for_the_programs() {
    let scene = Scene::new();
    let program = keys("cooked");
    let mut desk = Desk::new(&scene, "first", &program, SMALL);
    let pid = desk.start("{} &");
    // Behind the prompt, so it is no line of its own.
    processes::wait_until("it runs", LIMIT, || desk.shell.output.text().contains("ready"));
    let at_the_prompt = || !desk.modes().local_flags.contains(LocalFlags::ICANON);
    processes::wait_until("the shell reads a command", LIMIT, at_the_prompt);
    desk.checkpoint_and_kill(pid);
    desk.leave();

    let mut desk = Desk::new(&scene, "second", &program, SMALL);
    desk.restart("{}");
    ask(&mut desk, "m\n", 1, "modes lines echo signals output");
    desk.shell.type_in("\x03");
    assert_eq!(desk.status(), 130);
    desk.leave();
}

#[test]
fn control_z_gives_the_terminal_to_the_shell_and_fg_gives_it_back_in_the_programs_modes() {
    let scene = Scene::new();
    let program = keys("cbreak");
    let mut desk = Desk::new(&scene, "first", &program, SMALL);
    let pid = desk.start("{}");
    ask(&mut desk, "m", 1, "modes keys silent signals as-is");
    desk.checkpoint_and_kill(pid);
    assert_eq!(desk.status(), 137);
    let before = desk.modes_for_jobs();

    let pid = desk.restart("{}");
    desk.shell.output.wait_for_line("2 size 24 80");
    ask(&mut desk, "m", 3, "modes keys silent signals as-is");
    desk.resize(30, 90);
    desk.shell.output.wait_for_line("4 size 30 90");
    desk.shell.type_in("\x1a");
    assert_eq!(desk.status(), 148);
    assert!(processes::is_stopped(pid));
    assert_eq!(desk.modes_for_jobs(), before);
    desk.enter("fg");
    processes::wait_until("fg resumes it", LIMIT, || !processes::is_stopped(pid));
    ask(&mut desk, "m", 5, "modes keys silent signals as-is");
    ask(&mut desk, "g", 6, "job foreground own");
    desk.shell.type_in("\x03");
    assert_eq!(desk.status(), 130);
    assert_eq!(desk.modes_for_jobs(), before);
    desk.leave();
}

#[test]
fn a_restart_in_the_background_waits_for_the_terminal_and_gets_the_programs_modes_with_fg() {
    let scene = Scene::new();
    let program = keys("cbreak");
    let mut desk = Desk::new(&scene, "first", &program, SMALL);
    let pid = desk.start("{}");
    ask(&mut desk, "m", 1, "modes keys silent signals as-is");
    desk.checkpoint_and_kill(pid);
    assert_eq!(desk.status(), 137);

    let before = desk.modes_for_jobs();
    let pid = desk.restart("{} &");
    assert_eq!(desk.modes_for_jobs(), before);
    desk.enter("fg");
    // The shell has set its own modes and says which job this is: a key is no line, and the program does not see it.
    desk.shell.output.wait_for_line("$CKPT restart $STORE");
    ask(&mut desk, "g", 3, "job foreground own");
    ask(&mut desk, "m", 4, "modes keys silent signals as-is");
    desk.kill(pid);
    assert_eq!(desk.status(), 137);
    assert_eq!(desk.modes_for_jobs(), before);
    desk.leave();
}

#[test]
fn a_program_that_led_the_session_of_its_terminal_is_a_job_of_the_shell_after_a_restart() {
    let scene = Scene::new();
    let program = keys("cbreak");
    let store = scene.path().join("store");
    let alone = program.clone().variable("CKPT_DIR", &store);
    let mut life = Life::start(&scene, "alone", &alone, &Launch::Preload, Stdout::SessionTerminal);
    life.type_in("g");
    life.output.wait_for_line("1 job foreground own");
    checkpoint(&scene, life.pid);
    life.kill();

    let mut desk = Desk::new(&scene, "desk", &program, SMALL);
    let pid = desk.restart("{}");
    ask(&mut desk, "g", 3, "job foreground own");
    desk.shell.type_in("\x1a");
    assert_eq!(desk.status(), 148);
    assert!(processes::is_stopped(pid));
    desk.enter("fg");
    ask(&mut desk, "m", 4, "modes keys silent signals as-is");
    desk.shell.type_in("\x03");
    assert_eq!(desk.status(), 130);
    desk.leave();
}

#[test]
fn what_a_program_reads_from_dev_tty_comes_from_the_terminal_of_the_restart() {
    let scene = Scene::new();
    let program = keys("raw-tty");
    let mut desk = Desk::new(&scene, "first", &program, SMALL);
    let pid = desk.start("{} < /dev/null | cat");
    ask(&mut desk, "m", 1, "modes keys silent bytes as-is");
    desk.checkpoint_and_kill(pid);
    assert_eq!(desk.status(), 0, "the status of cat");
    desk.leave();

    let mut desk = Desk::new(&scene, "second", &program, LARGE);
    desk.restart("{} < /dev/null | cat");
    ask(&mut desk, "m", 3, "modes keys silent bytes as-is");
    ask(&mut desk, "s", 4, "size 40 132");
    desk.shell.type_in("q");
    desk.shell.output.wait_for_line("bye");
    assert_eq!(desk.status(), 0);
    desk.leave();
}

/// A program that people work with: what is typed before the checkpoint, and what shows that it goes on.
struct Interactive {
    program: Program,
    before: (&'static str, &'static str),
    after: (&'static str, &'static str),
    end: &'static str,
}

/// Types `keys` when the program reads keys, and waits for `answer`, which may stand behind a prompt or a control sequence.
fn type_to(desk: &mut Desk, (keys, answer): (&str, &str)) {
    wait_until(desk, "it reads keys", |desk| !desk.modes().local_flags.contains(LocalFlags::ICANON));
    desk.shell.type_in(keys);
    wait_until(desk, answer, |desk| desk.shell.output.text().contains(answer));
}

fn wait_until(desk: &Desk, what: &str, condition: impl Fn(&Desk) -> bool) {
    let end = Instant::now() + LIMIT;
    while !condition(desk) {
        assert!(Instant::now() < end, "waited in vain for {what:?}; the output is:\n{}", desk.shell.output.text());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn python_bash_and_less_go_on_at_another_terminal() {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let text: String = (1..=300).map(|line| format!("line {line}\n")).collect();
    fs::write(scene.path().join("text"), text).expect("the scene is writable");
    let mut python = Program::python("lines.py");
    python.arguments = vec!["-q".into()];
    let bash = Program::at("/bin/bash").argument("--norc").argument("--noprofile").argument("-i");
    let less = Program::at("/usr/bin/less").argument(scene.path().join("text"));
    let programs = [
        Interactive {
            program: python,
            before: ("x = 40; print('is', x)\n", "is 40"),
            after: ("print('sum', x + 2)\n", "sum 42"),
            end: "exit()\n",
        },
        Interactive {
            program: bash,
            before: ("x=40; echo is $x\n", "is 40"),
            after: ("(exit 3); echo sum $((x + 2)) $?\n", "sum 42 3"),
            end: "exit 0\n",
        },
        Interactive { program: less, before: (" ", "line 40"), after: (" ", "line 90"), end: "q" },
    ];
    for (number, case) in programs.iter().enumerate() {
        let mut desk = Desk::new(&scene, &format!("first-{number}"), &case.program, SMALL);
        let pid = desk.start("TERM=xterm {}");
        type_to(&mut desk, case.before);
        desk.checkpoint_and_kill(pid);
        desk.leave();

        let mut desk = Desk::new(&scene, &format!("second-{number}"), &case.program, LARGE);
        let before = desk.modes_for_jobs();
        desk.restart("{}");
        type_to(&mut desk, case.after);
        desk.shell.type_in(case.end);
        assert_eq!(desk.status(), 0, "{}", desk.shell.output.text());
        assert_eq!(desk.modes_for_jobs(), before);
        desk.leave();
        fs::remove_dir_all(scene.path().join("store")).expect("the store of this program");
    }
}

#[test]
fn under_nohup_a_restarted_program_outlives_its_terminal() {
    let scene = Scene::new();
    let program = keys("cooked-ticks");
    let mut desk = Desk::new(&scene, "first", &program, SMALL);
    let pid = desk.start("{}");
    desk.shell.output.wait_for_line("tick 2");
    desk.checkpoint_and_kill(pid);

    // Without nohup it is ended by the hang-up.
    let pid = desk.restart("{}");
    processes::send(desk.shell.pid, Signal::SIGHUP);
    processes::wait_until("the hang-up ends it", LIMIT, || !processes::is_alive(pid));
    desk.shell.wait();

    let mut desk = Desk::new(&scene, "second", &program, SMALL);
    let pid = desk.restart("nohup {}");
    let printed = Output::File(desk.shell.directory.join("nohup.out"));
    printed.wait_for_lines(3);
    processes::send(desk.shell.pid, Signal::SIGHUP);
    desk.shell.wait();
    printed.wait_for_more_lines(3);
    desk.kill(pid);
}

/// A program that has been checkpointed at a terminal where 0, 1 and 2 were one open file description.
fn checkpointed_at_a_terminal(scene: &Scene, kind: &str) -> i32 {
    let mut desk = Desk::new(scene, "terminal", &keys(kind), SMALL);
    let pid = desk.start("{}");
    desk.shell.output.wait_for_line("tick 2");
    desk.checkpoint_and_kill(pid);
    desk.leave();
    pid
}

#[test]
fn a_program_from_a_terminal_prints_into_the_pipe_that_cron_gives_it() {
    for kind in ["cooked-ticks", "raw-tty-ticks"] {
        let scene = Scene::new();
        let pid = checkpointed_at_a_terminal(&scene, kind);
        let store = scene.path().join("store");
        // No controlling terminal, nothing to read, output in a pipe.
        let cron = Program::at("/usr/bin/setsid").argument("--wait").argument(product::ckpt());
        let cron = cron.argument("restart").argument(&store);
        let mut life = Life::start(&scene, "cron", &cron, &Launch::Plain, Stdout::Pipe);
        life.output.wait_for_lines(3);
        assert!(life.output.text().starts_with("tick "), "{}", life.output.text());
        processes::send(pid, Signal::SIGTERM);
        assert_eq!(code_of(life.wait()), 143, "{}", life.errors());
    }
}

#[test]
fn in_a_pipe_of_a_shell_a_program_prints_there_and_takes_control_c() {
    let scene = Scene::new();
    checkpointed_at_a_terminal(&scene, "cooked-ticks");
    let mut desk = Desk::new(&scene, "pipe", &keys("cooked-ticks"), SMALL);
    let pid = desk.restart("{} | sed s/^/piped-/");
    desk.shell.output.wait_for_line("piped-tick ");
    desk.shell.type_in("\x03");
    assert_eq!(desk.command("true"), 0);
    processes::wait_until("^C ends it", LIMIT, || !processes::is_alive(pid));
    desk.leave();
}

#[test]
fn stdio_with_a_file_appends_there_what_led_to_a_terminal_and_reads_nothing() {
    let scene = Scene::new();
    let pid = checkpointed_at_a_terminal(&scene, "cooked-ticks");
    let path = scene.path().join("log");
    fs::write(&path, "before\n").expect("the scene is writable");
    let restart = Restart::of(scene.path().join("store")).option("--stdio").option(&path.to_string_lossy());
    let mut life = restart.stdout(Stdout::Pipe).begin(&scene, scene.path(), pid);
    let printed = Output::File(path);
    printed.wait_for_lines(4);
    assert!(printed.text().starts_with("before\ntick "), "{}", printed.text());
    let leads_to = |number: i32| fs::read_link(format!("/proc/{pid}/fd/{number}")).expect("it is open");
    assert_eq!(leads_to(0).to_str(), Some("/dev/null"));
    assert_eq!((leads_to(1), leads_to(2)), (scene.path().join("log"), scene.path().join("log")));
    // It is a file of the program's from here on.
    checkpoint(&scene, pid);
    life.kill();
    assert_eq!(life.output.text(), "", "nothing is printed elsewhere");
    let second = Restart::of(scene.path().join("store")).begin(&scene, scene.path(), pid);
    printed.wait_for_more_lines(2);
    drop(second);
}

#[test]
fn stdio_with_a_file_leaves_alone_what_was_a_file() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &keys("cooked-ticks"));
    life.output.wait_for_lines(3);
    checkpoint(&scene, life.pid);
    life.kill();
    let path = scene.path().join("log");
    let restart = Restart::of(life.store()).option("--stdio").option(&path.to_string_lossy());
    let second = restart.begin(&scene, &life.directory, life.pid);
    second.output.wait_for_more_lines(3);
    assert_eq!(fs::read(&path).expect("it was made"), b"");
    assert_eq!(fs::metadata(&path).expect("it was made").permissions().mode() & 0o777, 0o600);
}

#[test]
fn stdio_inherit_takes_the_streams_of_the_restart_in_place_of_files() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &keys("cooked-ticks"));
    life.output.wait_for_lines(3);
    checkpoint(&scene, life.pid);
    life.output.wait_for_more_lines(2);
    life.kill();
    let grown = life.output.bytes();
    let restart = Restart::of(life.store()).option("--stdio").option("inherit").stdout(Stdout::Pipe);
    let second = restart.begin(&scene, &life.directory, life.pid);
    second.output.wait_for_lines(3);
    assert!(second.output.text().starts_with("tick "), "{}", second.output.text());
    assert_eq!(life.output.bytes(), grown, "the file is none of the program's any more, and is not cut back");
}

#[test]
fn stdio_refuses_what_cannot_be_written_to_and_builds_nothing() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &keys("cooked-ticks"));
    life.output.wait_for_lines(3);
    checkpoint(&scene, life.pid);
    life.output.wait_for_more_lines(2);
    life.kill();
    let grown = life.output.bytes();
    let store = life.store();
    let restart = |file: &str| {
        let arguments = ["restart", &store.path().to_string_lossy(), "--stdio", file].map(str::to_owned);
        Ckpt::new(&scene, arguments).call()
    };
    let folder = scene.folder("folder");
    let answer = restart(&folder.to_string_lossy()).failed_with(125);
    assert!(answer.stderr.contains("--stdio") && answer.stderr.contains("directory"), "{}", answer.stderr);
    restart(&folder.join("no/such").to_string_lossy()).failed_with(125);
    restart("").failed_with(122);
    assert_eq!(life.output.bytes(), grown);
}

/// A shell at the user's terminal, with job control, while a program of its has the foreground.
fn a_shell_gives_the_foreground_to_its_own_program() {
    let scene = Scene::of_at_most(Duration::from_secs(60));
    let bash = Program::at("/bin/bash").argument("--norc").argument("--noprofile").argument("-i");
    let mut desk = Desk::new(&scene, "first", &bash, SMALL);
    let pid = desk.start("{}");
    type_to(&mut desk, ("x=40; cat; echo x is $((x + 2)), status $?\n", "x=40"));
    wait_until(&desk, "cat runs", |_| !processes::children(pid).is_empty());
    wait_until(&desk, "it reads lines", |desk| desk.modes().local_flags.contains(LocalFlags::ICANON));
    let lines = |desk: &Desk, line: &str| desk.shell.output.text().lines().filter(|it| *it == line).count();
    desk.shell.type_in("before\n");
    wait_until(&desk, "it is echoed and printed", |desk| lines(desk, "before") == 2);
    let family = processes::descendants(pid);
    checkpoint(&scene, pid);
    family.iter().for_each(|&child| processes::send(child, Signal::SIGKILL));
    desk.kill(pid);

    let mut desk = Desk::new(&scene, "second", &bash, LARGE);
    desk.restart("{}");
    wait_until(&desk, "it reads lines", |desk| desk.modes().local_flags.contains(LocalFlags::ICANON));
    desk.shell.type_in("after\n");
    wait_until(&desk, "it is echoed and printed", |desk| lines(desk, "after") == 2);
    desk.shell.type_in("\x03");
    type_to(&mut desk, ("echo then $((x + 3)) $?; exit 4\n", "then 43 130"));
    assert_eq!(desk.status(), 4, "{}", desk.shell.output.text());
    desk.leave();
}

#[test]
fn a_program_that_had_the_foreground_from_a_shell_of_the_job_has_it_again() {
    a_shell_gives_the_foreground_to_its_own_program();
}

#[test]
fn a_program_that_had_the_foreground_from_a_shell_of_the_job_has_it_again_as_an_ordinary_user() {
    as_ordinary_user(&[], &[], a_shell_gives_the_foreground_to_its_own_program);
}

#[test]
fn what_waits_in_terminals_of_the_job_outlives_the_agent() {
    let scene = Scene::of_at_most(Duration::from_secs(150));
    let (over, trace) = (scene.path().join("over"), scene.path().join("trace"));
    let program = Program::victim("pseudo_terminals").argument("1500").waiting(1490, &over);
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("step 5");
    checkpoint(&scene, life.pid);
    processes::end_agents(life.pid);
    let ask = |name: &str, value: &OsStr| {
        Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).variable(name, value).call()
    };
    ask(fault::TRACE, trace.as_os_str()).succeeded();
    let faults = fault::plan(&fault::passages(&trace), 1);
    for name in faults.iter().step_by(faults.len().div_ceil(12)) {
        processes::end_agents(life.pid);
        ask(fault::KILL, name.as_ref());
        // It checks in each step what waits, and in which state each process is.
        life.output.wait_for_more_lines(2);
    }
    processes::end_agents(life.pid);
    checkpoint(&scene, life.pid);
    fs::write(&over, "").expect("a file in the scene");
    assert_eq!(code_of(life.wait()), 7, "{}\n{}", life.output.text(), life.errors());
}

#[test]
fn a_terminal_whose_name_somebody_else_has_by_now_gets_another_and_it_is_said() {
    let scene = Scene::new();
    let program = Program::victim("pseudo_terminals");
    let life = Life::until_checkpoint(&scene, "life", &program, 5);
    // Whoever makes terminals gets the lowest names.
    let _others: Vec<_> = (0..12).map(|_| nix::pty::openpty(None, None).expect("a terminal")).collect();
    let mut second = Restart::of(life.store()).begin(&scene, &life.directory, life.pid);
    assert_eq!(code_of(second.wait()), 7, "{}\n{}", second.output.text(), second.errors());
    assert!(second.errors().contains("somebody else has the old one"), "{}", second.errors());
}
