//! What `ckpt show` says about the large allocations of a program, running and checkpointed, over its lives.

use std::time::Duration;

use ckpt_tests::{Ckpt, Life, Program, Restart, Scene, checkpoint, code_of, processes};
use nix::sys::signal::Signal;
use serde_json::Value;

fn scene() -> Scene {
    Scene::of_at_most(Duration::from_secs(120))
}

/// `ckpt show PID --json`.
fn live(scene: &Scene, pid: i32) -> Value {
    let answer = Ckpt::new(scene, ["show", &pid.to_string(), "--json"]).call().succeeded();
    serde_json::from_str(&answer.stdout).expect("show --json prints JSON")
}

/// Id, bytes and function of the victim's own allocations, by id. The libraries may have some too.
fn own(view: &Value) -> Vec<(u64, u64, String)> {
    let of = |allocation: &Value| {
        assert_eq!(allocation["kind"], "host", "{allocation}");
        let site = &allocation["call_site"];
        let function = site["function"].as_str()?.to_owned();
        let module = site["module"].as_str()?;
        module.ends_with("allocations").then_some((allocation["id"].as_u64()?, allocation["bytes"].as_u64()?, function))
    };
    let mut own: Vec<_> = view["allocations"].as_array().expect("a list").iter().filter_map(of).collect();
    own.sort();
    own
}

fn sizes(own: &[(u64, u64, String)]) -> Vec<(u64, &str)> {
    own.iter().map(|(_, bytes, function)| (*bytes, function.as_str())).collect()
}

const AT_FIRST: [(u64, &str); 3] =
    [(5_000_000, "allocate_grid"), (100_000, "size_table"), (70_000, "replace_fleeting")];
const LATER: [(u64, &str); 3] =
    [(5_000_000, "allocate_grid"), (30_000_000, "size_table"), (80_000, "replace_fleeting")];

#[test]
fn allocations_are_shown_of_running_programs_and_checkpoints_and_keep_their_numbers_over_a_restart() {
    let scene = scene();
    let program = Program::victim("allocations").argument("3");
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_line("step 1");
    let first = own(&live(&scene, life.pid));
    assert_eq!(sizes(&first), AT_FIRST);
    let one = checkpoint(&scene, life.pid);
    processes::send(life.pid, Signal::SIGUSR2);
    life.output.wait_for_line("step 2");
    let second = own(&live(&scene, life.pid));
    assert_eq!(sizes(&second), LATER);
    // The table has grown; what was freed and allocated again is another allocation.
    let ids = |own: &[(u64, u64, String)]| own.iter().map(|(id, ..)| *id).collect::<Vec<_>>();
    let (before, after) = (ids(&first), ids(&second));
    assert_eq!(after[..2], before[..2]);
    assert!(after[2] > before[2]);
    let two = checkpoint(&scene, life.pid);
    let store = life.store();
    assert_eq!(own(&store.show(&scene, one)), first);
    assert_eq!(own(&store.show(&scene, two)), second);
    life.kill();

    let mut next = Restart::of(store.path()).id(one).begin(&scene, &life.directory, life.pid);
    assert_eq!(own(&live(&scene, next.pid)), first, "after a restart");
    processes::send(next.pid, Signal::SIGUSR2);
    next.output.wait_for_line("step 2");
    assert_eq!(own(&live(&scene, next.pid)), second, "the program does the same again");
    processes::send(next.pid, Signal::SIGUSR2);
    assert_eq!(code_of(next.wait()), 7, "{}", next.output.text());
}

#[test]
fn people_see_sizes_and_functions() {
    let scene = scene();
    let mut life = Life::preloaded(&scene, "life", &Program::victim("allocations").argument("2"));
    life.output.wait_for_line("step 1");
    let text = Ckpt::new(&scene, ["show", &life.pid.to_string()]).call().succeeded().stdout;
    let line = text.lines().find(|line| line.contains("allocate_grid")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("4.8 MiB") && line.contains("host"), "{line}");
    assert!(text.contains(&format!("Process {}", life.pid)), "{text}");
    life.kill();
}

#[test]
fn a_program_without_libckpt_and_one_that_is_gone_are_refused() {
    let scene = scene();
    let own_pid = std::process::id().to_string();
    let answer = Ckpt::new(&scene, ["show", &own_pid]).call().failed_with(5);
    assert!(answer.stderr.contains("libckpt.so"), "{answer:?}");
    // Beyond what any system gives out.
    let answer = Ckpt::new(&scene, ["show", "2000000000"]).call();
    assert!(answer.code != 0 && answer.stderr.contains("2000000000"), "{answer:?}");
}
