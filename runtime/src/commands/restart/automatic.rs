//! Automatic checkpoints go on after a restart. In the first life libckpt.so sees to that from the program's start; here there is
//! none.

use crate::agent;
use crate::capture::Program;
use crate::error::Error;

/// Starts the agent of process `pid`, if the program wants checkpoints at an interval.
pub fn go_on(pid: i32) {
    let interval_ms = Program::find(pid).and_then(|program| program.control()).map(|control| control.interval_ms);
    // A program that has ended meanwhile, or had no libckpt.so, has no interval either.
    if interval_ms.is_ok_and(|interval_ms| interval_ms > 0)
        && let Err(error) = agent::start(pid)
        && !matches!(error, Error::ProgramGone { .. })
    {
        crate::say!("the program runs without its automatic checkpoints: {error}");
    }
}
