//! Programs that make terminals, and shells that work there.

use std::process::Command;
use std::time::{Duration, Instant};

use ckpt_tests::exact::survives_once;
use ckpt_tests::ordinary_user::as_ordinary_user;
use ckpt_tests::processes::{self, wait_until};
use ckpt_tests::program::source;
use ckpt_tests::{Launch, Life, Program, Restart, Scene, Stdout, checkpoint, code_of};

const SHELL: [&str; 4] = ["bash", "--norc", "--noprofile", "-i"];
const LIMIT: Duration = Duration::from_secs(20);

/// A shell with job control in a terminal of the job's own, while a program of its has the foreground there: the shell's
/// variables, who gets what is typed, ^C, ^Z, and how both end.
fn a_shell_goes_on_in(program: &Program) {
    let scene = Scene::of_at_most(Duration::from_secs(120));
    let program = program.clone().variable("TERM", "dumb").variable("PS1", "$ ").variable("HISTFILE", "");
    let mut first = Life::start(&scene, "life", &program, &Launch::Preload, Stdout::OrdinaryTerminal);
    // Python forgets what is typed before it has the terminal.
    wait_until("the shell is there", LIMIT, || first.output.text().contains(['$', '#']));
    type_and_see(&mut first, "x=40; echo is $x\n", "is 40");
    first.type_in("cat\n");
    wait_for_child(&first, "cat");
    type_and_see(&mut first, "before\n", "before\r\nbefore");
    let id = checkpoint(&scene, first.pid);
    type_and_see(&mut first, "lost\n", "lost\r\nlost");
    first.kill();

    let restart = Restart::of(first.store()).id(id).stdout(Stdout::OrdinaryTerminal);
    let mut second = restart.begin(&scene, &first.directory, first.pid);
    type_and_see(&mut second, "after\n", "after\r\nafter");
    type_and_see(&mut second, "\x03", "^C");
    type_and_see(&mut second, "echo status $? sum $((x + 2)) $(tty)\n", "status 130 sum 42 /dev/pts/");
    second.type_in("sleep 1000\n");
    wait_for_child(&second, "sleep");
    type_and_see(&mut second, "\x1a", "Stopped");
    // The next checkpoint has a job that is stopped.
    let id = checkpoint(&scene, second.pid);
    second.kill();

    let restart = Restart::of(first.store()).id(id).stdout(Stdout::OrdinaryTerminal);
    let mut third = restart.begin(&scene, &first.directory, first.pid);
    type_and_see(&mut third, "jobs; echo sum $((x + 3))\n", "sum 43");
    wait_until("the stopped job is shown", LIMIT, || third.output.text().contains("Stopped"));
    let stopped = wait_for_child(&third, "sleep");
    assert!(processes::is_stopped(stopped), "{}", third.output.text());
    third.type_in("fg\n");
    wait_until("it goes on", LIMIT, || !processes::is_stopped(stopped));
    type_and_see(&mut third, "\x03", "^C");
    third.type_in("exit 3\n");
    assert_eq!(code_of(third.wait()), 3, "{}\n{}", third.output.text(), third.errors());
}

fn type_and_see(life: &mut Life<'_>, keys: &str, answer: &str) {
    life.type_in(keys);
    let end = Instant::now() + LIMIT;
    while !life.output.text().contains(answer) {
        assert!(Instant::now() < end, "{answer:?} is not shown:\n{}\n{}", life.output.text(), life.errors());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The descendant of this name, when it waits for something.
fn wait_for_child(life: &Life<'_>, name: &str) -> i32 {
    let has_name =
        |pid: i32| processes::executable(pid).is_some_and(|path| path.file_name().is_some_and(|it| it == name));
    // Stopped before that it would never be one that can be captured.
    let maps = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let is_loaded = |pid: i32| maps(pid).contains("libckpt.so");
    let waits = |pid: i32| processes::thread_states(pid).iter().all(|state| matches!(state, 'S' | 'T'));
    let is_it = |&pid: &i32| has_name(pid) && is_loaded(pid) && waits(pid);
    wait_until(&format!("{name} runs"), LIMIT, || processes::descendants(life.pid).iter().any(is_it));
    processes::descendants(life.pid).into_iter().find(is_it).expect("just seen")
}

fn script() -> Program {
    let program = Program::installed("script").argument("--quiet").argument("--return");
    program.argument("--command").argument(SHELL.join(" ")).argument("/dev/null")
}

#[test]
fn a_shell_in_script_goes_on() {
    a_shell_goes_on_in(&script());
}

#[test]
fn a_shell_in_script_goes_on_as_an_ordinary_user() {
    as_ordinary_user(&[], &[], || a_shell_goes_on_in(&script()));
}

#[test]
fn a_shell_that_python_has_spawned_goes_on() {
    let python = Program::python("spawns.py");
    a_shell_goes_on_in(&SHELL.into_iter().fold(python, Program::argument));
}

#[test]
fn a_dialogue_of_expect_goes_on_exactly() {
    let dialogue = Program::installed("expect").argument("-f").argument(source("dialogue.exp")).argument("60");
    for line in [3, 30] {
        survives_once(&dialogue, line);
    }
}

#[test]
fn an_editor_in_script_goes_on_in_the_middle_of_typing() {
    let scene = Scene::of_at_most(Duration::from_secs(60));
    let program = Program::installed("script").argument("--quiet").argument("--return").argument("--command");
    let program = program.argument("nano --ignorercfiles text").argument("/dev/null");
    let program = program.variable("TERM", "xterm").variable("LC_ALL", "C.UTF-8");
    let mut first = Life::start(&scene, "life", &program, &Launch::Preload, Stdout::OrdinaryTerminal);
    wait_until("nano is there", LIMIT, || first.output.text().contains("[ New File ]"));
    type_and_see(&mut first, "begun in the first life", "first life");
    let id = checkpoint(&scene, first.pid);
    type_and_see(&mut first, " and lost", "lost");
    first.kill();

    let restart = Restart::of(first.store()).id(id).stdout(Stdout::OrdinaryTerminal);
    let mut second = restart.begin(&scene, &first.directory, first.pid);
    second.type_in(", and done in the second\x18y\r");
    assert_eq!(code_of(second.wait()), 0, "{}\n{}", second.output.text(), second.errors());
    let written = std::fs::read_to_string(first.directory.join("text")).expect("nano has saved it");
    assert_eq!(written, "begun in the first life, and done in the second\n");
}

/// Asks the tmux of a scene, from outside of its job.
fn tmux(scene: &Scene, words: &[&str]) -> String {
    let mut command = Command::new("tmux");
    command.args(["-L", "ckpt"]).args(words).env("TMUX_TMPDIR", scene.path()).env("TERM", "xterm");
    let answer = command.output().expect("tmux is installed");
    assert!(answer.status.success(), "tmux {words:?}: {}", String::from_utf8_lossy(&answer.stderr));
    String::from_utf8_lossy(&answer.stdout).into_owned()
}

#[test]
fn an_editor_in_tmux_goes_on_and_is_attached_again() {
    let scene = Scene::of_at_most(Duration::from_secs(60));
    // The server itself, in the foreground.
    let server =
        Program::installed("tmux").argument("-D").argument("-L").argument("ckpt").argument("-f").argument("/dev/null");
    let server = server.variable("TMUX_TMPDIR", scene.path()).variable("TERM", "xterm").variable("LC_ALL", "C.UTF-8");
    let mut first = Life::start(&scene, "life", &server, &Launch::Preload, Stdout::File);
    let shows = |text: &str| {
        let shown = || tmux(&scene, &["capture-pane", "-p", "-t", "work"]).contains(text);
        wait_until(&format!("{text:?} is shown"), LIMIT, shown);
    };
    let has_a_socket =
        || scene.path().read_dir().into_iter().flatten().flatten().any(|entry| entry.path().join("ckpt").exists());
    wait_until("the server listens", LIMIT, has_a_socket);
    let directory = first.directory.to_string_lossy().into_owned();
    let editor = "nano --ignorercfiles text";
    tmux(&scene, &["new-session", "-d", "-s", "work", "-x", "80", "-y", "24", "-c", &directory, editor]);
    shows("[ New File ]");
    tmux(&scene, &["send-keys", "-t", "work", "begun in the first life"]);
    shows("first life");
    let id = checkpoint(&scene, first.pid);
    tmux(&scene, &["send-keys", "-t", "work", " and lost"]);
    shows("lost");
    first.kill();

    let mut second = Restart::of(first.store()).id(id).begin(&scene, &first.directory, first.pid);
    shows("first life");
    tmux(&scene, &["send-keys", "-t", "work", ", and done in the second", "C-x", "y", "Enter"]);
    let saved = || std::fs::read_to_string(first.directory.join("text")).unwrap_or_default();
    wait_until("nano has saved it", LIMIT, || saved() == "begun in the first life, and done in the second\n");
    // In the foreground it stays without a session.
    tmux(&scene, &["kill-server"]);
    assert_eq!(code_of(second.wait()), 0, "{}\n{}", second.output.text(), second.errors());
}
