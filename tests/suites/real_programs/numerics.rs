//! Programs that compute: numpy, R, octave, torch on the CPU.

use ckpt_tests::program::source;
use ckpt_tests::{Program, Stdout};

use crate::{BOTH, BY_COMMAND, FIVE, TWO, goes_on};

fn numpy() -> Program {
    Program::python("arrays.py").argument("50").writes("mapped")
}

fn torch() -> Program {
    Program::python("training.py").argument("50").writes("weights")
}

/// R itself: the command `R` is a script in front of it.
fn r() -> Program {
    let home = std::path::Path::new("/usr/lib/R");
    let program = Program::at(home.join("bin/exec/R")).variable("R_HOME", home);
    let program = program.variable("LD_LIBRARY_PATH", home.join("lib"));
    let file = source("lines.R").into_os_string().into_string().expect("a path in UTF-8");
    let arguments = ["--no-echo", "--no-restore", &format!("--file={file}"), "--args", "50"];
    arguments.iter().fold(program, Program::argument).writes("lines")
}

fn octave() -> Program {
    let quiet = ["--no-init-file", "--norc", "--no-history"];
    let program = quiet.iter().fold(Program::installed("octave-cli"), Program::argument);
    program.argument(source("lines.m")).argument("50").writes("lines")
}

#[test]
fn python_with_numpy_goes_on_exactly() {
    goes_on(&numpy(), Stdout::Pipe, &TWO, BOTH);
}

#[test]
#[ignore = "long: five moments; scripts/test --all"]
fn python_with_numpy_goes_on_exactly_at_any_moment() {
    goes_on(&numpy(), Stdout::File, &FIVE, BOTH);
    goes_on(&numpy(), Stdout::Pipe, &FIVE, BY_COMMAND);
}

#[test]
#[ignore = "needs torch and all that it depends on; scripts/test --all installs it"]
fn python_with_torch_goes_on_exactly() {
    goes_on(&torch(), Stdout::File, &FIVE, BOTH);
    goes_on(&torch(), Stdout::Pipe, &FIVE, BY_COMMAND);
}

#[test]
#[ignore = "needs R and all that it depends on; scripts/test --all installs it"]
fn r_goes_on_exactly() {
    goes_on(&r(), Stdout::File, &FIVE, BY_COMMAND);
    goes_on(&r(), Stdout::Pipe, &FIVE, BY_COMMAND);
}

#[test]
#[ignore = "needs octave and all that it depends on; scripts/test --all installs it"]
fn octave_goes_on_exactly() {
    goes_on(&octave(), Stdout::File, &FIVE, BY_COMMAND);
    goes_on(&octave(), Stdout::Pipe, &FIVE, BY_COMMAND);
}
