//! Files that are held open until all of their pages are stored: whatever happens to their paths.

use std::collections::{HashMap, HashSet};
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use crate::file_stamp::FileStamp;

/// Open files by their stamps. A clone holds the same files.
#[derive(Clone, Debug, Default)]
pub struct MappedFiles(HashMap<FileStamp, Arc<File>>);

/// Opens a regular file to be read, whatever has been put in its place meanwhile.
pub fn open_regular(path: &Path) -> Option<(File, Metadata)> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let metadata = file.metadata().ok().filter(Metadata::is_file)?;
    Some((file, metadata))
}

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
