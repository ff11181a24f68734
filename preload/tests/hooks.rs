//! Programs that touch the trigger signal themselves.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use support::Victim;

#[test]
fn a_program_sees_the_same_with_and_without_the_library() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "actions");
    let without = support::output(&mut support::plain(&program));
    let with = support::output(support::preloaded(&program).current_dir(directory.path()));
    assert_eq!(with, without);
    assert!(with.lines().count() > 25 && !with.contains("stranger"), "{with}");
    let refused = support::output(support::preloaded(&program).current_dir(directory.path()).env("CKPT_SIGNAL", "?"));
    assert_eq!(refused, without);
    let mut command = support::preloaded(&program);
    let elsewhere = support::output(command.current_dir(directory.path()).env("CKPT_SIGNAL", "USR2"));
    assert_eq!(elsewhere.replace("masks usr2", ""), without.replace("masks usr2", ""));
}

fn handler_in_place(pid: i32) -> bool {
    let caught = u64::from_str_radix(&support::status_field(pid, "SigCgt").unwrap(), 16).unwrap();
    caught >> (libc::SIGUSR1 - 1) & 1 == 1
}

#[test]
fn a_program_that_goes_back_to_the_default_can_be_checkpointed_again() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "actions");
    let agent = support::compile(directory.path(), "agent");
    let record = directory.path().join("record");
    let mut command = support::preloaded(&program);
    command.arg("default").current_dir(directory.path());
    command.env("CKPT_AGENT", agent).env("CKPT_TEST_RECORD", &record);
    let mut victim = Victim::start(command);
    let lines: Vec<String> = std::iter::from_fn(|| Some(victim.line())).take_while(|line| line != "ready").collect();
    assert_eq!(lines.last().unwrap(), "alive");
    assert!(handler_in_place(victim.pid()));
    support::until("an agent", || record.exists().then_some(()));
    victim.close_input();
    assert!(victim.wait().success());
}

#[test]
fn a_program_with_a_handler_of_its_own_is_named_in_the_log_once() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "actions");
    let mut command = support::preloaded(&program);
    command.arg("taken").current_dir(directory.path()).env("CKPT_NAME", "mine");
    let mut victim = Victim::start(command);
    while victim.line() != "ready" {}
    let log = std::fs::read_to_string(directory.path().join("ckpt-store/log")).unwrap();
    let pid = victim.pid();
    let expected = format!(
        "libckpt[{pid}] {pid} (mine) uses SIGUSR1 itself; take checkpoints with `ckpt checkpoint {pid}` or choose \
         another CKPT_SIGNAL\n"
    );
    assert_eq!(log.split_once(' ').unwrap().1, expected);
    victim.close_input();
    assert!(victim.wait().success());
}

#[test]
fn hooks_work_before_our_constructor_and_it_respects_what_was_set() {
    let directory = tempfile::tempdir().unwrap();
    let program = support::compile(directory.path(), "control");
    let early = directory.path().join("early.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/victims/early.c");
    support::output(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&early).arg(source));
    for (what, taken) in [("set", "1"), ("default", "0")] {
        let mut command = support::plain(&program);
        command.current_dir(directory.path()).env("EARLY", what);
        command.env("LD_PRELOAD", format!("{}:{}", support::library().display(), early.display()));
        let text = support::output(&mut command);
        let control: HashMap<&str, &str> = text.lines().filter_map(|line| line.split_once(' ')).collect();
        assert_eq!(control["signal_taken"], taken, "{what}");
        assert_eq!(control["state"], "1");
    }
}

/// Starts an interpreter of this machine, if it is there.
fn interpreter(name: &str, script: &str) -> Option<Command> {
    let path = std::env::var("PATH").unwrap_or_default();
    let program = std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file());
    let Some(program) = program else {
        eprintln!("SKIPPED: no {name} on this machine");
        return None;
    };
    let mut command = support::preloaded(&program);
    command.args(["-e", script]);
    Some(command)
}

#[test]
fn node_resets_all_signals_and_keeps_our_handler_on_usr2() {
    let Some(mut command) = interpreter("node", "console.log('ready'); process.stdin.resume()") else { return };
    let directory = tempfile::tempdir().unwrap();
    command.current_dir(directory.path()).env("CKPT_SIGNAL", "USR2");
    let mut victim = Victim::start(command);
    assert_eq!(victim.line(), "ready");
    let caught = u64::from_str_radix(&support::status_field(victim.pid(), "SigCgt").unwrap(), 16).unwrap();
    assert_eq!(caught >> (libc::SIGUSR2 - 1) & 1, 1);
    victim.close_input();
    assert!(victim.wait().success());
}

#[test]
fn perl_may_handle_the_signal_and_give_it_back() {
    let script = r#"$| = 1; $SIG{USR1} = sub { print "mine\n" }; kill USR1 => $$; $SIG{USR1} = 'DEFAULT';
        kill USR1 => $$; print "alive\n""#;
    let Some(mut command) = interpreter("perl", script) else { return };
    let directory = tempfile::tempdir().unwrap();
    command.current_dir(directory.path()).env("CKPT_AGENT", "/bin/true");
    assert_eq!(support::output(&mut command), "mine\nalive\n");
}
