//! The terminal of a process: what the one that it has after a restart should be told, and should tell it.

use serde::{Deserialize, Serialize};

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
