//! The commands, one file each: what a person types, and what they read.
//!
//! A command's `execute` returns the exit status; standard output carries only what the command is for, because
//! scripts read it. Everything said to a person goes to standard error.

pub mod agent;
pub mod checkpoint;
pub mod copy;
pub mod devices;
pub mod diff;
pub mod doctor;
pub mod extract;
pub mod fault_points;
pub mod flatten;
pub mod keep_memory;
pub mod key;
pub mod list;
pub mod prune;
pub mod ps;
pub mod restart;
pub mod rm;
mod row_words;
pub mod run;
pub mod saved;
pub mod show;
pub mod stand_still;
mod store_owner;
pub mod verify;

mod default_store;
mod executable;
mod first_pid;
mod growth;
mod installation;
mod interval;
mod memory;
mod method;
mod on_term;
mod pid_file;
mod progress_bar;
mod table;
mod which_checkpoint;
mod which_program;
mod with_dir;

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, exit_code};
use crate::units::printable_lines;

/// Our own exit code where the program's passes through.
pub fn status_beside_program(code: u8) -> u8 {
    code.saturating_add(exit_code::OFFSET_BESIDE_PROGRAM)
}

/// Writes text for a person to standard output.
fn print(text: &str) -> Result<()> {
    print_raw(&printable_lines(text))
}

/// Writes `value` to standard output as JSON.
fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::io("write", PathBuf::from("JSON"), std::io::Error::other(error)))?;
    text.push('\n');
    print_raw(&text)
}

fn print_raw(text: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
        .map_err(|source| Error::io("write", PathBuf::from("standard output"), source))
}

/// `path` from the root, so that it means the same after a change of directory.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|source| Error::io("resolve", path, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_a_program_our_codes_are_121_to_125() {
        let codes = [exit_code::FAILED, exit_code::USAGE, exit_code::CORRUPT, 4, 5].map(status_beside_program);
        assert_eq!(codes, [121, 122, 123, 124, 125]);
        assert_eq!(Error::Usage("x".to_owned()).exit_code(), exit_code::USAGE);
        assert_eq!(Error::unsupported("x", "y", "z").exit_code(), exit_code::UNSUPPORTED);
        assert_eq!(Error::environment("x", "y", "z").exit_code(), exit_code::ENVIRONMENT);
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        assert_eq!(status_beside_program(Error::io("start", "x", missing).exit_code()), 121);
    }
}
