//! Triggers start agents, and the program notices nothing.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{PATIENCE, Victim, until};

/// A directory with a victim, a stand-in for the agent, and what the stand-in has recorded.
struct Scene {
    directory: tempfile::TempDir,
    program: PathBuf,
}

impl Scene {
    fn new(victim: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = support::compile(directory.path(), victim);
        support::compile(directory.path(), "agent");
        Self { directory, program }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = support::preloaded(&self.program);
        command.current_dir(self.directory.path());
        command.env("CKPT_AGENT", self.path("agent")).env("CKPT_TEST_RECORD", self.path("record"));
        command
    }

    /// One map per agent started so far, by what is recorded.
    fn agents(&self) -> Vec<HashMap<String, String>> {
        let text = std::fs::read_to_string(self.path("record")).unwrap_or_default();
        // The last line may still be on its way.
        let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        let fields = |line: &str| line.split('|').filter_map(|field| field.split_once(['=', ':'])).map(owned).collect();
        complete.lines().map(fields).collect()
    }

    fn agent(&self) -> HashMap<String, String> {
        until("an agent", || self.agents().into_iter().next())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("ckpt-store/log")).unwrap_or_default()
    }
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.trim().to_owned())
}

fn ready(command: Command) -> Victim {
    let victim = Victim::start(command);
    assert_eq!(victim.line(), "ready");
    victim
}

#[test]
fn a_thousand_signals_under_load_leave_no_trace() {
    let scene = Scene::new("load");
    let mut victim = ready(scene.command());
    for _ in 0..1000 {
        victim.signal(libc::SIGUSR1);
        std::thread::yield_now();
    }
    // Signals that arrive while one waits are one signal, so a busy machine may have made few of the thousand.
    until("ten agents", || {
        victim.signal(libc::SIGUSR1);
        (scene.agents().len() >= 10).then_some(())
    });
    victim.close_input();
    assert_eq!(victim.line(), "sigchld 0, children 0, errno 0, descriptors +0, mask same");
    assert!(victim.wait().success());
    assert_eq!(scene.log(), "", "no agent failed");
}

#[test]
fn the_agent_is_started_as_an_ordinary_daemon() {
    let scene = Scene::new("odd");
    let mut command = scene.command();
    command.env("CKPT_NAME", "a name").env("SECRET", "password").env("CKPT_LOG", "other.log");
    command.env("CKPT_KEY", "keys/mine");
    let victim = ready(command);
    victim.signal(libc::SIGUSR1);
    let agent = scene.agent();
    assert_eq!(agent["args"], format!("ckpt agent --pid {} --trigger signal", victim.pid()));
    assert_eq!(agent["leads"], "1", "it leads a session of its own");
    assert_eq!(agent["cwd"], "/");
    assert_eq!(agent["fds"], "0:/dev/null,1:/dev/null,2:/dev/null,");
    assert_eq!(agent["SigBlk"], "0000000000000000");
    assert_eq!(agent["SigIgn"], "0000000000000000");
    let root = scene.directory.path().canonicalize().unwrap();
    assert_eq!(agent["env CKPT_NAME"], "a name");
    assert_eq!(Path::new(&agent["env CKPT_DIR"]), root.join("ckpt-store"));
    assert_eq!(Path::new(&agent["env CKPT_KEY"]), root.join("keys/mine"));
    assert_eq!(Path::new(&agent["env CKPT_LOG"]), root.join("other.log"));
    assert_eq!(agent["env CKPT_JOB"].len(), 16);
    assert!(agent.contains_key("env PATH"));
    assert!(!agent.contains_key("env SECRET") && !agent.contains_key("env LD_PRELOAD"));
}

#[test]
fn the_agent_is_nobodys_child_in_the_job() {
    let scene = Scene::new("odd");
    let hold = scene.path("hold");
    std::fs::write(&hold, "").unwrap();
    let mut command = scene.command();
    command.env("CKPT_TEST_HOLD", &hold);
    let mut victim = ready(command);
    victim.signal(libc::SIGUSR1);
    let agent: i32 = scene.agent()["pid"].parse().unwrap();
    victim.write("x");
    assert_eq!(victim.line(), "again");
    let pid = victim.pid();
    assert_ne!(support::status_field(agent, "PPid").unwrap(), pid.to_string());
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    assert_eq!(children, "");
    // `./app | cat` ends when app ends, though the agent lives.
    victim.close_input();
    assert!(victim.wait().success());
    let begin = std::time::Instant::now();
    assert!(victim.output_ends() && begin.elapsed() < PATIENCE / 2, "the agent holds the program's output");
    assert!(support::status_field(agent, "PPid").is_some(), "the agent ended too early for this test");
    std::fs::remove_file(hold).unwrap();
    until("the agent to end", || support::status_field(agent, "PPid").is_none().then_some(()));
}

#[test]
fn an_interval_starts_an_agent_at_once() {
    let scene = Scene::new("odd");
    let mut command = scene.command();
    command.env("CKPT_INTERVAL", "10m");
    let victim = ready(command);
    assert_eq!(scene.agent()["args"], format!("ckpt agent --pid {} --trigger interval", victim.pid()));
    assert_eq!(scene.agent()["env CKPT_INTERVAL"], "10m");
}

#[test]
fn an_interval_leaves_the_work_to_an_agent_that_runs() {
    let scene = Scene::new("odd");
    std::fs::write(scene.path("hold"), "").unwrap();
    let mut other = Command::new(scene.path("agent")).env("CKPT_TEST_HOLD", scene.path("hold")).spawn().unwrap();
    let mut command = scene.command();
    command.env("CKPT_INTERVAL", "10m").env("CKPT_AGENT_PID", other.id().to_string());
    let mut victim = ready(command);
    // The next trigger is the first: an agent of the interval would have been recorded before.
    victim.signal(libc::SIGUSR1);
    assert!(scene.agent()["args"].ends_with("--trigger signal"));
    victim.close_input();
    assert!(victim.wait().success());
    assert_eq!(scene.agents().len(), 1);
    std::fs::remove_file(scene.path("hold")).unwrap();
    other.wait().unwrap();
}

#[test]
fn the_api_starts_an_agent_and_reports_what_hinders_it() {
    let scene = Scene::new("odd");
    assert_eq!(support::output(scene.command().arg("api")), "0 - 0\n");
    assert!(scene.agent()["args"].ends_with("--trigger api"));
    let missing = support::output(scene.command().arg("api").env("CKPT_AGENT", "/nonexistent/ckpt"));
    assert_eq!(missing, "-1 No such file or directory 0\n");
    let refused = support::output(scene.command().arg("api").env("CKPT_INTERVAL", "x"));
    assert_eq!(refused, "-1 Operation not supported 0\n");
    assert_eq!(support::output(support::plain(&scene.program).arg("api")), "-2 Success -1\n");
}

#[test]
fn an_agent_that_cannot_be_started_is_a_line_in_the_log() {
    let scene = Scene::new("odd");
    let mut command = scene.command();
    command.env("CKPT_AGENT", "/nonexistent/ckpt");
    let mut victim = ready(command);
    victim.signal(libc::SIGUSR1);
    let log = until("a log", || Some(scene.log()).filter(|log| log.ends_with('\n')));
    let expected = format!(
        "libckpt[{}] no checkpoint: cannot start /nonexistent/ckpt: execve failed with errno 2 (no such file); \
         set CKPT_AGENT to the ckpt executable\n",
        victim.pid()
    );
    let (time, text) = log.split_once(' ').unwrap();
    assert_eq!(text, expected);
    let today = support::output(Command::new("date").args(["-u", "+%Y-%m-%d"]));
    assert!(time.len() == 20 && time.ends_with('Z') && time.starts_with(&today.trim()[..7]), "{time} on {today}");
    let mode = |name| scene.path(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("ckpt-store"), mode("ckpt-store/log")), (0o700, 0o600));
    victim.close_input();
    assert!(victim.wait().success());
}

#[test]
fn the_log_does_not_follow_a_link_and_does_not_wait_for_a_pipe() {
    for obstacle in ["ln -s target ckpt-store/log", "mkfifo ckpt-store/log"] {
        let scene = Scene::new("odd");
        let prepare = format!("mkdir ckpt-store && {obstacle}");
        support::output(Command::new("sh").args(["-c", &prepare]).current_dir(scene.directory.path()));
        let mut command = scene.command();
        command.env("CKPT_AGENT", "/nonexistent/ckpt").arg("api");
        assert_eq!(support::output(&mut command), "-1 No such file or directory 0\n");
        assert!(!scene.path("ckpt-store/target").exists());
    }
}

fn survives_triggers_as(mode: &str) {
    let scene = Scene::new("odd");
    let mut command = scene.command();
    command.arg(mode);
    let mut victim = ready(command);
    for round in 1..=3 {
        let pid: i32 = match mode {
            "vfork" => child_of(victim.pid()),
            _ => victim.pid(),
        };
        // SAFETY: our child, or its child, which lives until its input ends.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGUSR1) }, 0);
        until("an agent", || (scene.agents().len() >= round).then_some(()));
        victim.write("x");
        assert_eq!(victim.line(), "again");
        assert!(scene.agents()[round - 1]["args"].contains(&format!("--pid {pid} ")));
        assert_eq!(scene.agents()[round - 1]["fds"], "0:/dev/null,1:/dev/null,2:/dev/null,");
    }
    victim.close_input();
    assert!(victim.wait().success());
    assert_eq!(scene.log(), "");
}

fn child_of(pid: i32) -> i32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.trim().parse().unwrap()
}

#[test]
fn a_program_without_descriptors_keeps_its_numbers() {
    survives_triggers_as("closed");
}

#[test]
fn a_program_that_may_open_nothing_is_triggered_all_the_same() {
    survives_triggers_as("nofiles");
}

#[test]
fn the_handler_fits_on_a_small_alternate_stack() {
    survives_triggers_as("smallstack");
}

#[test]
fn the_child_of_a_vfork_is_triggered_like_any_program() {
    survives_triggers_as("vfork");
}

#[test]
fn a_fork_in_the_middle_of_a_trigger_does_not_disable_the_child() {
    let scene = Scene::new("odd");
    let mut command = scene.command();
    command.arg("forked");
    let mut victim = ready(command);
    let status = until("the victim to end", || {
        if victim.ended().is_none() {
            // It may have ended since; it is not reaped before `ended` says so.
            victim.signal(libc::SIGUSR1);
        }
        victim.ended()
    });
    assert!(status.success(), "{status}");
}

#[test]
fn a_job_has_one_mark_and_starts_one_agent_while_that_lives() {
    let scene = Scene::new("job");
    std::fs::write(scene.path("hold"), "").unwrap();
    let mut command = scene.command();
    command.env("CKPT_INTERVAL", "1h").env("CKPT_TEST_HOLD", scene.path("hold"));
    let mut victim = Victim::start(command);
    let own = victim.line();
    assert!(own.starts_with("mark ") && own.ends_with(", agent 10"), "{own}");
    for _ in 0..5 {
        assert_eq!(victim.line(), own);
    }
    assert_eq!(victim.line(), "done");
    assert_eq!(scene.agents().len(), 1, "the programs that are executed find the one that there is");
    assert_eq!(format!("mark {}", scene.agent()["env CKPT_MARK"].rsplit_once('-').unwrap().0), own[..38]);
    // When it is gone, they start one again.
    let agent = PathBuf::from("/proc").join(&scene.agent()["pid"]);
    std::fs::remove_file(scene.path("hold")).unwrap();
    until("its end", || std::fs::read_link(agent.join("exe")).is_err().then_some(()));
    victim.close_input();
    assert!(victim.wait().success());
    until("other agents", || (scene.agents().len() > 1).then_some(()));
}

#[test]
fn children_of_a_fork_name_the_agent_too_where_the_kernel_asks_for_it() {
    let scene = Scene::new("ptracers");
    let own = std::process::id().to_string();
    let names = |yama: &str| {
        let mut command = Command::new(&scene.program);
        command.arg(support::library()).arg(yama).current_dir(scene.directory.path());
        command.env("CKPT_AGENT_PID", &own).env("CKPT_SIGNAL", "none").env("CKPT_TEST_FORKS", "yes");
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert!(text.ends_with("ends 0\n"), "{text}");
        text.lines().filter(|line| *line == format!("names {own}")).count()
    };
    assert_eq!(names("yama"), 3, "the program, its child, and the child of that");
    assert_eq!(names("none"), 1, "there is nothing to be allowed");
}

/// Anybody, for `PR_SET_PTRACER`.
const ANYBODY: &str = "names -1";

#[test]
fn the_agent_and_nobody_else_may_trace_the_program() {
    let scene = Scene::new("ptracers");
    let run = |variables: &[(&str, &str)]| {
        let mut command = Command::new(&scene.program);
        command.arg(support::library()).current_dir(scene.directory.path()).envs(variables.iter().copied());
        command.env("CKPT_AGENT", scene.path("agent")).env("CKPT_TEST_RECORD", scene.path("record"));
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert!(!lines.iter().any(|line| line == ANYBODY), "{lines:?}");
        lines
    };
    // Without an agent it names nobody, and then the one that the signal has started.
    let lines = run(&[]);
    let agent = scene.agent();
    assert_eq!(lines, [format!("names {}", agent["pid"]), "ends 0".to_owned()], "{agent:?}");
    // One that runs already is named at the start.
    let own = std::process::id().to_string();
    let lines = run(&[("CKPT_AGENT_PID", &own), ("CKPT_SIGNAL", "none")]);
    assert_eq!(lines.first(), Some(&format!("names {own}")), "{lines:?}");
}
