//! Seccomp filters that a program has added itself, where they cannot be read or put back, and where the agent dies. That they are kept
//! is in the table of kept_state.rs.

use std::time::Duration;

use ckpt_tests::exact::{assert_same, reference};
use ckpt_tests::{Ckpt, Life, Program, Restart, Scene, checkpoint, code_of, fault, processes};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(10);
const ADDED: &str = "a seccomp filter that the program has added";

fn filtered() -> Program {
    Program::victim("filters").argument("60")
}

#[test]
fn an_agent_below_the_filter_refuses_and_the_next_command_does_not() {
    let scene = Scene::new();
    let program = filtered();
    let expected = reference(&scene, &program);
    let taken = scene.path().join("taken");
    let mut life = Life::preloaded(&scene, "life", &program.waiting(20, &taken));
    life.output.wait_for_lines(5);
    let store = life.store();
    // The program starts it, so it is under the program's filters.
    processes::send(life.pid, Signal::SIGUSR1);
    let log = store.path().join("log");
    let is_refused = || std::fs::read_to_string(&log).is_ok_and(|log| log.contains(ADDED));
    processes::wait_until("the refusal is in the log", LIMIT, is_refused);
    let failed = || store.rows(&scene).into_iter().find(|row| row.state == "failed");
    processes::wait_until("the refusal is a row of the list", LIMIT, || failed().is_some());
    let reason = failed().map(|row| row.reason).unwrap_or_default();
    assert!(reason.contains(ADDED) && reason.contains("`ckpt run`"), "{reason}");
    // That one ends, and root's command starts another, outside of them.
    checkpoint(&scene, life.pid);
    std::fs::write(taken, "").expect("a file in the scene");
    assert_eq!(code_of(life.wait()), expected.code, "{}", life.errors());
    assert_same(&life.output.bytes(), &expected.stdout, "a program that was refused once");
}

#[test]
fn filters_are_not_put_back_where_they_cannot_be() {
    let scene = Scene::new();
    let mut life = Life::preloaded(&scene, "life", &filtered().waiting(10, &scene.path().join("never")));
    life.output.wait_for_lines(5);
    checkpoint(&scene, life.pid);
    life.kill();
    let confined = Program::victim("confined").executable;
    let confined = confined.to_str().expect("a path in the target folder");
    let without_rights = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", "--"];
    for (by, why) in [
        (&[confined, "bpf=EPERM", "--"][..], "cannot be put back: we live under a seccomp filter"),
        (&without_rights[..], "cannot be put back: we lack CAP_SYS_ADMIN"),
    ] {
        let mut refused = Restart::of(life.store()).by(by).spawn(&scene, &life.directory);
        assert_eq!(code_of(refused.wait()), 125, "{}", refused.errors());
        assert!(refused.errors().contains(why), "{why} is missing: {}", refused.errors());
    }
}

#[test]
fn a_program_outlives_an_agent_that_dies_while_its_filters_are_suspended() {
    const POINTS: [&str; 3] = ["ptrace.getfilter", "ptrace.setoptions", "ptrace.syscall"];
    let scene = Scene::new();
    let expected = reference(&scene, &filtered());
    let trace = scene.path().join("trace");
    let mut life = Life::preloaded(&scene, "life", &filtered().waiting(10, &scene.path().join("never")));
    life.output.wait_for_lines(5);
    Ckpt::new(&scene, ["checkpoint", &life.pid.to_string()]).variable(fault::TRACE, &trace).call().succeeded();
    life.kill();
    let mut passages = fault::passages(&trace);
    passages.retain(|name, _| POINTS.contains(&name.as_str()));
    assert_eq!(passages.len(), POINTS.len(), "{passages:?}");
    let faults = fault::plan(&passages, 6);
    let (planned, mut died) = (faults.len(), 0);
    for (number, fault) in faults.into_iter().enumerate() {
        let survived = scene.path().join(format!("survived-{number}"));
        let mut life = Life::preloaded(&scene, "life", &filtered().waiting(20, &survived));
        life.output.wait_for_lines(10);
        let pid = life.pid.to_string();
        let answer = Ckpt::new(&scene, ["checkpoint", &pid]).variable(fault::KILL, &fault).call();
        // A checkpoint of another moment may pass the point less often.
        died += usize::from(answer.code != 0);
        std::fs::write(survived, "").expect("a file in the scene");
        assert_eq!(code_of(life.wait()), expected.code, "{fault}: {}", life.output.text());
        assert_same(&life.output.bytes(), &expected.stdout, &fault);
        std::fs::remove_dir_all(&life.directory).expect("it has ended");
    }
    assert!(2 * died > planned, "the agent has died at {died} of {planned} points");
}
