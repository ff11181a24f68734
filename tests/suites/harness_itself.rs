//! The harness with plain programs: what the other suites rely on, shown without ckpt.

use ckpt_tests::exact::{assert_same, reference};
use ckpt_tests::{Launch, Life, Program, Scene, Stdout, code_of, fault, processes};

const VICTIMS: [&str; 12] = [
    "threads8",
    "avx512",
    "registers",
    "blocked_calls",
    "files",
    "pipes_epoll",
    "mappings",
    "signals",
    "signal_storm",
    "churn",
    "self_usr1",
    "introspect",
];

fn is_deterministic(program: &Program) {
    let first = Scene::new();
    let second = Scene::new();
    let one = reference(&first, program);
    let other = reference(&second, program);
    assert!(one.lines() > 10, "{program:?} prints too little");
    assert_same(&other.stdout, &one.stdout, "the second of two uninterrupted runs");
    assert_eq!(one.code, other.code);
    assert_eq!(one.files, other.files);
}

#[test]
fn every_victim_prints_the_same_in_two_runs() {
    for name in VICTIMS {
        is_deterministic(&Program::victim(name));
    }
}

#[test]
fn the_scripts_print_the_same_in_two_runs() {
    is_deterministic(&Program::python("lines.py").argument("20").writes("lines"));
    is_deterministic(&Program::node("lines.js").argument("20"));
    is_deterministic(&Program::java("Lines").argument("20"));
}

#[test]
fn output_arrives_from_a_file_a_pipe_a_socket_and_a_terminal_alike() {
    let scene = Scene::new();
    let program = Program::victim("churn").argument("10");
    let expected = reference(&scene, &program);
    for stdout in [Stdout::File, Stdout::Pipe, Stdout::Socket, Stdout::Terminal] {
        let mut life = Life::start(&scene, &format!("{stdout:?}"), &program, &Launch::Plain, stdout);
        life.output.wait_for_lines(3);
        assert_eq!(code_of(life.wait()), 7);
        life.output.wait_for_the_end(std::time::Duration::from_secs(5));
        assert_same(&life.output.bytes(), &expected.stdout, &format!("{stdout:?}"));
    }
}

#[test]
fn a_program_has_no_descriptors_but_0_1_and_2() {
    let scene = Scene::new();
    let mut life = Life::start(&scene, "life", &Program::victim("churn"), &Launch::Plain, Stdout::Pipe);
    life.output.wait_for_line("ready");
    assert_eq!(processes::descriptors(life.pid), [0, 1, 2]);
    life.kill();
    assert!(!processes::is_alive(life.pid));
}

#[test]
fn a_scene_finds_what_its_programs_have_left_behind() {
    let scene = Scene::new();
    let script = "sleep 1000 & echo $!; echo end";
    let program = Program::at("/bin/sh").argument("-c").argument(script);
    let mut life = Life::start(&scene, "life", &program, &Launch::Plain, Stdout::File);
    life.wait();
    let sleeper: i32 = life.output.text().lines().next().expect("a pid").parse().expect("a number");
    assert_eq!(processes::of_scene(scene.path()), [sleeper]);
    processes::send(sleeper, nix::sys::signal::Signal::SIGKILL);
}

#[test]
fn a_fault_plan_has_the_first_and_the_last_passage_of_each_point() {
    let passages = [("seize".to_owned(), 9), ("rename".to_owned(), 1)].into();
    assert_eq!(fault::plan(&passages, 0), ["rename:1", "seize:1", "seize:9"]);
    assert_eq!(fault::plan(&passages, 1), ["rename:1", "seize:1", "seize:5", "seize:9"]);
}

#[test]
fn a_session_terminal_turns_control_z_into_a_stop() {
    let scene = Scene::new();
    let program = Program::victim("exits");
    let script = "$VICTIM 300 code:5; echo stopped $?; read continue; fg > /dev/null; echo ended $?";
    let shell = Program::at("/bin/sh").argument("-m").argument("-c").argument(script);
    let shell = shell.variable("VICTIM", &program.executable);
    let mut session = Life::start(&scene, "shell", &shell, &Launch::Plain, Stdout::SessionTerminal);
    session.output.wait_for_lines(3);
    let pid = session.find_program(|pid| processes::executable(pid).as_ref() == Some(&program.executable));
    session.type_in("\x1a");
    session.output.wait_for_line("stopped 148");
    assert!(processes::is_stopped(pid));
    session.type_in("\n");
    session.output.wait_for_line("ended 5");
    session.wait();
}
