//! Between checkpoints a program cannot tell that libckpt is there.

use std::time::Duration;

use ckpt_tests::exact::{Trigger, assert_same, reference, take};
use ckpt_tests::{Launch, Life, Program, Scene, Stdout, checkpoint, code_of, processes, product};

#[test]
fn a_program_sees_the_same_of_itself_with_and_without_libckpt_and_around_checkpoints() {
    let scene = Scene::new();
    let program = Program::victim("introspect").argument("200");
    let reference = reference(&scene, &program);
    let mut undisturbed = Life::preloaded(&scene, "undisturbed", &program);
    assert_eq!(code_of(undisturbed.wait()), reference.code, "{}", undisturbed.output.text());
    assert_same(&undisturbed.output.bytes(), &reference.stdout, "the view with libckpt");

    let mut life = Life::preloaded(&scene, "checkpointed", &program);
    life.output.wait_for_line("step 10");
    checkpoint(&scene, life.pid);
    life.output.wait_for_line("step 30");
    take(&scene, &life, Trigger::Signal);
    assert_eq!(code_of(life.wait()), reference.code, "{}", life.output.text());
    assert_same(&life.output.bytes(), &reference.stdout, "the view around two checkpoints");
    assert_eq!(life.errors(), "", "nothing is written to the program's own stderr");
}

#[test]
fn the_outside_sees_no_descriptor_thread_child_or_mapping_of_ours() {
    let scene = Scene::new();
    let program = Program::victim("threads8").argument("400");
    let plain = Life::start(&scene, "plain", &program, &Launch::Plain, Stdout::Pipe);
    let life = Life::start(&scene, "preloaded", &program, &Launch::Preload, Stdout::Pipe);
    plain.output.wait_for_lines(10);
    life.output.wait_for_lines(10);
    let view = |pid: i32| (processes::descriptors(pid), processes::threads(pid).len(), processes::children(pid));
    assert_eq!(view(life.pid), view(plain.pid));
    checkpoint(&scene, life.pid);
    checkpoint(&scene, life.pid);
    processes::wait_until("no descriptor, thread or child of ours is left", Duration::from_secs(5), || {
        view(life.pid) == view(plain.pid)
    });
    let files = |pid: i32| {
        let mut names = processes::mapping_names(pid);
        names.retain(|name| name.contains('/'));
        names
    };
    assert_eq!(files(life.pid), files(plain.pid));
    assert_eq!(processes::status_field(life.pid, "TracerPid").as_deref(), Some("0"));
}

#[test]
fn a_pipeline_ends_when_the_program_ends() {
    for trigger in [Trigger::Command, Trigger::Signal] {
        let scene = Scene::new();
        let program = Program::victim("churn").argument("120");
        let mut life = Life::start(&scene, "life", &program, &Launch::Preload, Stdout::Pipe);
        life.output.wait_for_lines(10);
        take(&scene, &life, trigger);
        assert_eq!(code_of(life.wait()), 7);
        life.output.wait_for_the_end(Duration::from_secs(2));
    }
}

#[test]
fn a_shell_pipeline_into_cat_ends_when_the_program_ends() {
    let scene = Scene::new();
    let victim = Program::victim("churn");
    let script = format!(
        "LD_PRELOAD={} {} 120 | cat; echo the pipeline has ended",
        product::library().display(),
        victim.executable.display()
    );
    let shell = Program::at("/bin/sh").argument("-c").argument(script);
    let mut life = Life::start(&scene, "life", &shell, &Launch::Plain, Stdout::File);
    life.output.wait_for_lines(10);
    let pid = processes::copies(&victim.executable, &life.directory)[0];
    processes::send(pid, nix::sys::signal::Signal::SIGUSR1);
    life.store().wait_for_sealed(&scene, 1);
    assert_eq!(code_of(life.wait()), 0);
    assert!(life.output.text().ends_with("verified\nthe pipeline has ended\n"));
}

#[test]
fn the_agent_ends_with_the_program() {
    let scene = Scene::new();
    let life = Life::until_checkpoint(&scene, "life", &Program::victim("churn").argument("300"), 10);
    processes::wait_until("the agent ends with its program", Duration::from_secs(5), || {
        processes::agents_of(life.pid).is_empty() && processes::of_scene(scene.path()).is_empty()
    });
}

#[test]
fn an_agent_holds_nothing_of_the_program_open() {
    let scene = Scene::new();
    let life = Life::start(&scene, "life", &Program::victim("churn").argument("300"), &Launch::Preload, Stdout::Pipe);
    life.output.wait_for_lines(10);
    checkpoint(&scene, life.pid);
    let pipe = std::fs::read_link(format!("/proc/{}/fd/1", life.pid)).expect("its stdout");
    for agent in processes::agents_of(life.pid) {
        for number in processes::descriptors(agent) {
            let held = std::fs::read_link(format!("/proc/{agent}/fd/{number}")).unwrap_or_default();
            assert_ne!(held, pipe, "the agent holds the program's stdout as {number}");
        }
        let environment = std::fs::read(format!("/proc/{agent}/environ")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&environment).contains("LD_PRELOAD="), "the agent is preloaded itself");
        assert!(!processes::children(life.pid).contains(&agent), "the agent is a child of the program");
    }
}

#[test]
fn programs_without_descriptors_run_as_without_libckpt() {
    let scene = Scene::new();
    for kind in ["none", "full"] {
        let program = Program::victim("no_fds").argument("200").argument(kind).writes("lines");
        let mut life = Life::preloaded(&scene, kind, &program);
        let output = ckpt_tests::output::Output::File(life.directory.join("lines"));
        output.wait_for_lines(20);
        take(&scene, &life, Trigger::Signal);
        checkpoint(&scene, life.pid);
        assert_eq!(code_of(life.wait()), 7);
        assert_eq!(output.lines(), 202, "ready, 200 steps and verified");
    }
}

#[test]
fn a_program_that_uses_sigusr1_itself_keeps_working() {
    let scene = Scene::new();
    let program = Program::victim("self_usr1").argument("300");
    let reference = reference(&scene, &program);
    let mut life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(20);
    checkpoint(&scene, life.pid);
    assert_eq!(code_of(life.wait()), reference.code);
    assert_same(&life.output.bytes(), &reference.stdout, "the output");
    let log = std::fs::read_to_string(life.directory.join("store/log")).unwrap_or_default();
    let told = log.lines().filter(|line| line.contains("USR1")).count();
    assert_eq!(told, 1, "it is told once, in the log:\n{log}");
}

#[test]
fn another_signal_can_be_the_trigger() {
    let scene = Scene::new();
    let program = Program::victim("self_usr1").argument("200").variable("CKPT_SIGNAL", "USR2");
    let life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(20);
    processes::send(life.pid, nix::sys::signal::Signal::SIGUSR2);
    life.store().wait_for_sealed(&scene, 1);
    life.output.wait_for_more_lines(3);
}

#[test]
fn node_is_checkpointed_by_the_signal_that_was_chosen_for_it() {
    let scene = Scene::new();
    let program = Program::node("lines.js").argument("2000").variable("CKPT_SIGNAL", "USR2");
    let life = Life::preloaded(&scene, "life", &program);
    life.output.wait_for_lines(10);
    processes::send(life.pid, nix::sys::signal::Signal::SIGUSR2);
    life.store().wait_for_sealed(&scene, 1);
    life.output.wait_for_more_lines(3);
}
