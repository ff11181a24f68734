//! Files that hold still, and what is remembered of them until the next checkpoint.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::PathBuf;

use ckpt_store::PageList;

use crate::file_stamp::FileStamp;
use crate::image::CapturedFile;

/// What is remembered of the files of the last sealed checkpoint, by device and inode.
pub type Known = HashMap<(u64, u64), KnownFile>;

/// What a file held at the last sealed checkpoint.
#[derive(Clone, Debug)]
pub struct KnownFile {
    pub(super) stamp: FileStamp,
    pub(super) content: PageList,
}

/// Files that hold still, and are not in the store yet.
#[derive(Debug, Default)]
pub struct HeldFiles {
    /// Those with a path. Of regular files the content is missing in the record.
    pub(super) captured: Vec<(CapturedFile, Option<Held>)>,
    /// Their paths.
    pub(super) paths: HashSet<Vec<u8>>,
    /// The directories that are there with all that is in them.
    pub(super) trees: Vec<PathBuf>,
    /// The content of the job's unlinked files, in their order.
    pub(super) unlinked: Vec<Held>,
}

/// The content of a regular file that holds still.
#[derive(Debug)]
pub struct Held {
    pub(super) bytes: u64,
    pub(super) content: Content,
    /// How it can be told that it has not changed, if it can.
    pub(super) stamp: Option<FileStamp>,
}

impl HeldFiles {
    /// Bytes that are still to be read, at most.
    pub fn bytes_to_read(&self) -> u64 {
        let captured = self.captured.iter().filter_map(|(_, held)| held.as_ref());
        captured.chain(&self.unlinked).map(Held::bytes_to_read).sum()
    }
}

impl Held {
    /// Bytes that are still to be read, at most.
    pub fn bytes_to_read(&self) -> u64 {
        match self.content {
            Content::Known(_) => 0,
            _ => self.bytes,
        }
    }
}

/// Content that holds still.
#[derive(Debug)]
pub enum Content {
    /// It is in the store already.
    Known(PageList),
    /// A copy in memory.
    Copy(Vec<u8>),
    /// A file that nobody writes to: a copy, or the file itself while the program stands still.
    File(File),
}

impl HeldFiles {
    /// Adds what a path leads to, unless it is there.
    pub(super) fn add(&mut self, file: CapturedFile, content: Option<Held>) {
        if self.paths.insert(file.path.clone()) {
            self.captured.push((file, content));
        }
    }
}
