//! gzip, in the middle of a file.

use std::fmt::Write;

use ckpt_tests::{Program, Stdout};

use crate::{BOTH, BY_COMMAND, FIVE, TWO, goes_on_working};

/// Something between prose and noise, the same each time.
fn text(lines: u32) -> Vec<u8> {
    let mut text = String::new();
    let mut state = 1_u64;
    for line in 0..lines {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (word, noise) = (state >> 59, state >> 20);
        writeln!(text, "{line} the {word}th word of {noise:x} is {}", "lorem ipsum ".repeat(word as usize % 5))
            .expect("a string takes everything");
    }
    text.into_bytes()
}

/// Writes `text.gz` beside `text`.
fn gzip() -> Program {
    // Without name and time, which would be in the compressed file.
    let options = ["-k", "-n", "-9", "text"];
    options.iter().fold(Program::installed("gzip"), Program::argument).input("text", text(180_000)).writes("text.gz")
}

#[test]
fn gzip_goes_on_exactly() {
    goes_on_working(&gzip(), Stdout::File, &TWO, BOTH);
}

#[test]
#[ignore = "long: five moments, and on to a file and a pipe; scripts/test --all"]
fn gzip_goes_on_exactly_wherever_it_writes_to() {
    goes_on_working(&gzip(), Stdout::File, &FIVE, BOTH);
    goes_on_working(&gzip(), Stdout::File, &TWO, BY_COMMAND);
    let filter = Program::installed("gzip").argument("-9").argument("-n").reads("text", text(180_000));
    for stdout in [Stdout::File, Stdout::Pipe] {
        goes_on_working(&filter, stdout, &FIVE, BOTH);
    }
}
