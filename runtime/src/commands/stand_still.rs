//! `ckpt stand-still`: has the threads of a program stand still while its keeper moves memory that they use. It does as its
//! standard input says, and if that ends it waits until no memory is on its way.

use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use super::print;
use crate::capture::{Program, moves_memory, stand_still};
use crate::core_dumps;
use crate::error::{Result, exit_code};
use crate::keeper::MOVING_WITHIN;
use crate::proc::oom;
use crate::stillness::{GO, STOP};

/// How long the keeper may take from what it was told last until it is moving memory.
const BEGINS_WITHIN: Duration = Duration::from_millis(20);
/// How often it is asked whether it still is.
const LOOKS_EVERY: Duration = Duration::from_millis(1);

/// Stop the threads of a program while managed memory is moved
#[derive(Args)]
pub struct Arguments {
    /// The program
    pid: i32,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    core_dumps::forbid();
    oom::end_like(arguments.pid);
    let program = Program::find(arguments.pid)?;
    let mut wishes = std::io::stdin().lock();
    let mut wish = [0];
    let mut still = Vec::new();
    while wishes.read_exact(&mut wish).is_ok() {
        match wish {
            [STOP] => {
                still = stand_still(&program)?;
                print(&char::from(STOP).to_string())?;
            }
            [GO] => {
                still.clear();
                print(&char::from(GO).to_string())?;
            }
            _ => {}
        }
    }
    if !still.is_empty() {
        let end = Instant::now() + MOVING_WITHIN;
        thread::sleep(BEGINS_WITHIN);
        while moves_memory(&program) && Instant::now() < end {
            thread::sleep(LOOKS_EVERY);
        }
    }
    Ok(exit_code::DONE)
}
