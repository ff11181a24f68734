//! Directories that a restart needs, and may have to make again.

use serde::{Deserialize, Serialize};

/// Whose a directory is, and who may do what there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryRights {
    /// Mode bits.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
}

/// A directory that the path of something of the job leads through or to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    /// Its path.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Its owner and mode.
    pub rights: DirectoryRights,
}
