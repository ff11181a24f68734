//! `ckpt fault-points`: names the places where a test may make ckpt die, one a line.

use super::print;
use crate::error::{Result, exit_code};

/// Runs the command.
pub fn execute() -> Result<u8> {
    let mut names = String::new();
    for name in crate::fault::FAULT_POINTS.iter().chain(ckpt_store::fault::FAULT_POINTS) {
        names.push_str(name);
        names.push('\n');
    }
    print(&names)?;
    Ok(exit_code::DONE)
}
