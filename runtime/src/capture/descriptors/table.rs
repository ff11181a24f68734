//! The descriptor table of one process.

use crate::image::{Descriptor, FileLock};

/// The table of one process.
#[derive(Debug, Default)]
pub struct Table {
    /// Numbers.
    pub descriptors: Vec<Descriptor>,
    /// Locks on files.
    pub locks: Vec<FileLock>,
}
