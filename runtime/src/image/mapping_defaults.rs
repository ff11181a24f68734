//! What a process has decided for mappings that it will make.

use serde::{Deserialize, Serialize};

/// What a process has decided for all its mappings, also those that it will make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingDefaults {
    /// What `PR_GET_THP_DISABLE` says: 0 where transparent huge pages are allowed, else 1 and flags.
    pub huge_pages_disabled: u64,
    /// `PR_GET_MEMORY_MERGE`: equal pages may be merged.
    pub merged: bool,
    /// Whether new mappings are locked in memory.
    pub locked: NewLocks,
}

/// Whether new mappings are locked in memory (`mlockall`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewLocks {
    /// They are not.
    #[default]
    No,
    /// `MCL_FUTURE`.
    AtOnce,
    /// `MCL_FUTURE | MCL_ONFAULT`: each page when it is touched first.
    OnFault,
}
