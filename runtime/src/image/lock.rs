//! Locks on files.

use serde::{Deserialize, Serialize};

/// A lock that the program holds on a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLock {
    /// Number of a descriptor through which it can be set again.
    pub descriptor: i32,
    /// What it belongs to.
    pub kind: LockKind,
    /// Whether it is exclusive.
    pub exclusive: bool,
    /// First byte.
    pub start: u64,
    /// Last byte; none: to the end of the file, however long that becomes.
    pub end: Option<u64>,
}

/// What a lock belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockKind {
    /// The process (`fcntl` with `F_SETLK`).
    Process,
    /// The open file description (`fcntl` with `F_OFD_SETLK`).
    Description,
    /// The open file description, and covers all of the file (`flock`).
    Whole,
    /// The open file description, which is told of others who open the file (`F_SETLEASE`).
    Lease,
}
