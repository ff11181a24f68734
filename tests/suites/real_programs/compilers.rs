//! A compiler in the middle of a large file.

use std::fmt::Write;
use std::process::Command;

use ckpt_tests::{Program, Stdout};

use crate::{BOTH, BY_COMMAND, FIVE, ONE, TWO, goes_on, goes_on_working};

/// A C file of many functions, each with something to optimise.
fn source(functions: u32) -> String {
    let mut text = String::from("typedef unsigned long word;\nword table[64];\n");
    for number in 0..functions {
        let (step, shift, before) = (number % 7 + 1, number % 23 + 3, number.saturating_sub(1));
        let call = if number == 0 { "b".into() } else { format!("f{before}(b, a)") };
        writeln!(
            text,
            "word f{number}(word a, word b)\n{{\n\tword sum = {number};\n\tfor (word i = 0; i < 64; i += {step}) {{\n\
             \t\tsum += (table[i] ^ a) * (b >> {shift});\n\t\tif (sum & {number})\n\t\t\ttable[(i + sum) % 64] -= sum;\n\
             \t\tswitch (sum % 5) {{ case 0: a += i; break; case 3: b ^= sum; break; default: sum++; }}\n\
             \t}}\n\treturn sum ? {call} : sum;\n}}"
        )
        .expect("a string takes everything");
    }
    text
}

/// The compiler proper: gcc itself only starts it and waits.
fn cc1() -> Program {
    let printed = Command::new("gcc").arg("-print-prog-name=cc1").output();
    let printed = printed.expect("gcc is missing; scripts/test installs it").stdout;
    let path = String::from_utf8(printed).expect("a path in UTF-8");
    let arguments = ["-quiet", "-O2", "large.c", "-o", "large.s"];
    let program = arguments.iter().fold(Program::at(path.trim()), Program::argument);
    program.input("large.c", source(130).into_bytes()).writes("large.s")
}

#[test]
fn gcc_goes_on_exactly() {
    goes_on_working(&cc1(), Stdout::File, &TWO, BOTH);
}

#[test]
#[ignore = "long: five moments; scripts/test --all"]
fn gcc_goes_on_exactly_at_any_moment() {
    goes_on_working(&cc1(), Stdout::File, &FIVE, BOTH);
    goes_on_working(&cc1(), Stdout::File, &TWO, BY_COMMAND);
}

/// Many compilers, born and ended all the time, and the binary that they have made in the end.
fn make() -> Program {
    // What compilers have made lies in files that nobody has open any more: a compiler that ends after the checkpoint, and is
    // restarted from before its end, finds them as they were then.
    Program::python("building.py").argument("40").variable("CKPT_WITH_DIR", "project")
}

#[test]
fn make_with_four_compilers_at_a_time_goes_on_exactly() {
    goes_on(&make(), Stdout::File, &ONE, BY_COMMAND);
}

#[test]
#[ignore = "long: five moments; scripts/test --all"]
fn make_goes_on_from_five_moments() {
    goes_on(&make(), Stdout::File, &FIVE, BOTH);
}
