//! The terminal of a process: what the one that it has after a restart should be told, and should tell it.

use serde::{Deserialize, Serialize};

use super::{JobImage, ProcessImage};

/// The terminal that controls a process, if the process has it open; otherwise one at 0, 1 or 2.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalImage {
    /// What it was, for people: `/dev/pts/3`.
    #[serde(with = "serde_bytes")]
    pub was: Vec<u8>,
    /// Whether it controlled the process, so that ^C and ^Z typed there could be for it.
    pub controlling: bool,
    /// Its modes, where they can be taken for those that the process works in: it had the foreground, and could both
    /// read and print there. In the background they are the shell's; in a pipe, those of whoever shows its output.
    pub modes: Option<TerminalModes>,
    /// Rows; 0 where nobody had said.
    pub rows: u16,
    /// Columns; 0 where nobody had said.
    pub columns: u16,
    /// The process group in its foreground, if it controlled the process.
    #[serde(default)]
    pub foreground: Option<i32>,
}

/// What a job finds again at the terminal that its first process was controlled by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtTerminal {
    /// The modes in which one of its processes worked there.
    pub modes: Option<TerminalModes>,
    /// The process group of the job that had the foreground, if it was not that of the first process.
    pub foreground: Option<i32>,
}

impl AtTerminal {
    /// Of `job`.
    pub fn of(job: &JobImage) -> AtTerminal {
        let root = job.root();
        let controls = |process: &&ProcessImage| {
            let terminal = process.terminal.as_ref();
            process.family.session == root.family.session && terminal.is_some_and(|terminal| terminal.controlling)
        };
        let mut there = job.processes.iter().filter(controls).filter_map(|process| process.terminal.as_ref());
        let modes = there.find_map(|terminal| terminal.modes.clone());
        let foreground = root.terminal.as_ref().and_then(|terminal| terminal.foreground);
        let is_of_another = |group: &i32| {
            *group != root.family.group && job.processes.iter().any(|process| process.family.group == *group)
        };
        AtTerminal { modes, foreground: foreground.filter(is_of_another) }
    }
}

/// `struct termios` without what belongs to the line (speed, size of characters, parity).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalModes {
    /// `c_iflag`.
    pub input: u32,
    /// `c_oflag`.
    pub output: u32,
    /// `c_lflag`.
    pub local: u32,
    /// `c_cc`, by `VINTR`, `VMIN` ...
    #[serde(with = "serde_bytes")]
    pub characters: Vec<u8>,
}
