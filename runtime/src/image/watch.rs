//! What an inotify instance watches.

use serde::{Deserialize, Serialize};

/// A watch of an inotify instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// The number by which the program knows it.
    pub number: i32,
    /// `IN_*`.
    pub mask: u32,
    /// What it watches.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
}
