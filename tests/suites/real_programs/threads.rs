//! Languages whose programs are many threads or more: Rust with channels, Go with goroutines.

use ckpt_tests::{Program, Stdout};

use crate::{BOTH, BY_COMMAND, FIVE, TWO, goes_on};

fn rust() -> Program {
    Program::rust("channels").argument("80")
}

fn go() -> Program {
    Program::go("channels").argument("80")
}

#[test]
fn rust_with_channels_goes_on_exactly() {
    goes_on(&rust(), Stdout::Pipe, &TWO, BOTH);
}

#[test]
#[ignore = "long: five moments, to a file, a pipe and a terminal; scripts/test --all"]
fn rust_with_channels_goes_on_exactly_wherever_it_prints_to() {
    for stdout in [Stdout::File, Stdout::Pipe, Stdout::Terminal] {
        goes_on(&rust(), stdout, &FIVE, BOTH);
        goes_on(&rust(), stdout, &TWO, BY_COMMAND);
    }
}

#[test]
#[ignore = "needs Go, 450 MB; scripts/test --all installs it"]
fn go_with_goroutines_goes_on_exactly() {
    // Go's own handlers, set by raw system calls, take the place of that for SIGUSR1.
    for stdout in [Stdout::File, Stdout::Pipe, Stdout::Terminal] {
        goes_on(&go(), stdout, &FIVE, BY_COMMAND);
    }
}
