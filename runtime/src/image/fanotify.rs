//! What a fanotify group watches.

use serde::{Deserialize, Serialize};

/// A fanotify group without unread events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fanotify {
    /// What `fanotify_init` was given: `FAN_CLASS_*`, `FAN_REPORT_*`, `FAN_UNLIMITED_*`.
    pub flags: u32,
    /// `O_*` of the descriptors that come with events.
    pub event_flags: u32,
    /// Its marks.
    pub marks: Vec<Mark>,
}

/// A mark of a fanotify group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// How far it reaches from its path.
    pub reach: Reach,
    /// `FAN_MARK_IGNORED_SURV_MODIFY`, `FAN_MARK_EVICTABLE`, `FAN_MARK_IGNORE`.
    pub flags: u32,
    /// `FAN_*` that are told.
    pub told: u64,
    /// `FAN_*` that are not, though another mark would have them told.
    pub ignored: u64,
    /// What it marks, or a path that leads there.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
}

/// How far a mark reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// A file or directory.
    Inode,
    /// All that is reached by one mount.
    Mount,
    /// All of a file system (`FAN_MARK_FILESYSTEM`).
    FileSystem,
}
