//! A restarted program as a job of a shell: the test that root and ordinary users share.

use std::time::Duration;

use crate::life::{Launch, Life, Stdout};
use crate::program::Program;
use crate::scene::Scene;
use crate::{checkpoint, processes, product};

const LIMIT: Duration = Duration::from_secs(20);

/// Restarts a program from a shell, stops it by ^Z, resumes it by `fg`, and lets it end with a code of its own.
///
/// # Panics
/// If the shell or the program does not see what it would see without us.
pub fn control_z_stops_a_restarted_program_and_fg_resumes_it() {
    let scene = Scene::new();
    let program = Program::victim("exits").argument("300").argument("code:5");
    let mut life = Life::start(&scene, "life", &program, &Launch::Preload, Stdout::Terminal);
    life.output.wait_for_lines(5);
    checkpoint(&scene, life.pid);
    life.kill();
    // A shell with job control, as at a terminal.
    let script = "$CKPT restart $STORE; echo stopped $?; read continue; fg > /dev/null; echo ended $?";
    let shell = Program::at("/bin/sh").argument("-m").argument("-c").argument(script);
    let shell = shell.variable("CKPT", product::ckpt()).variable("STORE", life.store().path());
    let mut session = Life::start(&scene, "shell", &shell, &Launch::Plain, Stdout::SessionTerminal);
    session.output.wait_for_lines(3);
    let pid = session.find_program(|pid| processes::executable(pid).as_ref() == Some(&program.executable));
    session.type_in("\x1a");
    session.output.wait_for_line("stopped 148");
    processes::wait_until("^Z stops the program", LIMIT, || processes::is_stopped(pid));
    session.type_in("\n");
    processes::wait_until("fg resumes it", LIMIT, || !processes::is_stopped(pid));
    session.output.wait_for_line("ended 5");
    session.wait();
}
