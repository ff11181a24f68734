//! Files that are held open until all of their pages are stored: whatever happens to their paths.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::Arc;

use crate::file_stamp::FileStamp;

/// Open files by their stamps. A clone holds the same files.
#[derive(Clone, Debug, Default)]
pub struct MappedFiles(HashMap<FileStamp, Arc<File>>);

impl MappedFiles {
    /// Holds `file`, whose stamp this is.
    pub fn hold(&mut self, stamp: FileStamp, file: File) {
        self.0.insert(stamp, Arc::new(file));
    }

    /// Closes the files of these inodes.
    pub fn leave_out(&mut self, inodes: &HashSet<u64>) {
        self.0.retain(|stamp, _| !inodes.contains(&stamp.inode));
    }

    /// The file of this stamp.
    pub fn get(&self, stamp: &FileStamp) -> Option<&File> {
        self.0.get(stamp).map(Arc::as_ref)
    }

    /// Whether the file of this stamp is held.
    pub fn has(&self, stamp: &FileStamp) -> bool {
        self.0.contains_key(stamp)
    }
}
