//! Pseudo-terminals whose master is in the job: terminals that one of its processes shows, and that others work at.

use serde::{Deserialize, Serialize};

/// A pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PseudoTerminal {
    /// N of /dev/pts/N.
    pub number: u32,
    /// Permission bits of /dev/pts/N.
    pub mode: u32,
    /// Its user and group.
    pub owner: (u32, u32),
    /// Modes of the line.
    pub line: LineModes,
    /// Rows, columns, width and height in pixels; 0 where nobody had said.
    pub size: [u16; 4],
    /// Whether the master reads packets (`TIOCPKT`).
    pub packets: bool,
    /// Whether others are kept from opening it (`TIOCEXCL`).
    pub exclusive: bool,
    /// Whether nobody may open it yet (`unlockpt`).
    pub locked: bool,
    /// Whether its slave side has been open, now or before: where that is closed again, the master reads an error.
    pub opened: bool,
    /// The session that it controls: its leader is in the job.
    pub session: Option<i32>,
    /// The process group in its foreground.
    pub foreground: Option<i32>,
    /// Processes of that session that it does not control: they were there before, or have given it up.
    pub uncontrolled: Vec<i32>,
    /// What was written to it and the master had not read, as the master reads it.
    #[serde(with = "serde_bytes")]
    pub output: Vec<u8>,
    /// What the master had written and nobody had read, as it is read.
    #[serde(with = "serde_bytes")]
    pub input: Vec<u8>,
    /// Where in `input` a read ends without a character that says so (^D), ascending.
    pub input_ends: Vec<u32>,
    /// Output stands still because ^S was typed.
    pub stopped: bool,
    /// Output stands still by `tcflow`.
    pub suspended: bool,
}

/// `struct termios2`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineModes {
    /// `c_iflag`.
    pub input: u32,
    /// `c_oflag`.
    pub output: u32,
    /// `c_cflag`.
    pub control: u32,
    /// `c_lflag`.
    pub local: u32,
    /// `c_cc`.
    pub characters: [u8; 19],
    /// `c_ispeed` and `c_ospeed`.
    pub speeds: (u32, u32),
}
