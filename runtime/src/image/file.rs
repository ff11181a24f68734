//! Files whose content is part of a checkpoint.

use ckpt_store::PageListRef;
use serde::{Deserialize, Serialize};

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileContent {
    /// Its length.
    pub bytes: u64,
    /// Its pages; zeros where there are none, and behind its end.
    pub pages: PageListRef,
}

/// What a path led to at the checkpoint, to be there again after a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedFile {
    /// The path.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// What it led to.
    pub kind: CapturedKind,
    /// Permission bits.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// Last change of the content, ns since the epoch.
    pub modified_ns: i64,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CapturedKind {
    /// A regular file.
    Regular {
        /// Device (major, minor).
        device: (u32, u32),
        /// Inode number.
        inode: u64,
        /// What is in it.
        content: FileContent,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    SymbolicLink {
        /// Where it leads to.
        #[serde(with = "serde_bytes")]
        target: Vec<u8>,
    },
}

/// A regular file that no path led to, and that the program had open: a deleted one, or a memory file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnlinkedFile {
    /// The path that it had last; the name of a memory file.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Of a memory file (`memfd_create`): its seals, `F_SEAL_*`.
    pub memory_seals: Option<i32>,
    /// Of one of huge pages: bytes of a page; else 0.
    #[serde(default)]
    pub huge_page_bytes: u64,
    /// Permission bits.
    pub mode: u32,
    /// What is in it.
    pub content: FileContent,
    /// Index into `Objects::memory`, if it is mapped shared.
    pub object: Option<u32>,
    /// When it was read and written last, ns since the epoch; none in an older image.
    #[serde(default)]
    pub times_ns: Option<[i64; 2]>,
}
