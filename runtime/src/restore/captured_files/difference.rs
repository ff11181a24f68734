//! How the files of today differ from the captured ones.

use std::path::PathBuf;

use ckpt_store::PageKey;

use crate::image::{CapturedFile, JobImage};

/// The number of a page in its file, and what it holds.
pub type NumberedPage = (u64, PageKey);

/// How the files of today differ from the captured ones.
#[derive(Debug, Default)]
pub struct CapturedFiles {
    /// By the index in `Objects::captured_files`, ascending: directories come before what is in them.
    pub(super) differences: Vec<(usize, Difference)>,
    /// What is in captured directories and was not there at the checkpoint.
    pub(super) additions: Vec<PathBuf>,
    /// Logs that have only grown, and that others append to, too: they stay as they are.
    pub left: Vec<PathBuf>,
}

impl CapturedFiles {
    /// Regular files that are there and are to be changed, or moved out of the way.
    pub fn changed<'a>(&'a self, job: &'a JobImage) -> impl Iterator<Item = &'a CapturedFile> {
        let is_there = |difference: &Difference| !matches!(difference, Difference::Missing);
        let there = self.differences.iter().filter(move |(_, difference)| is_there(difference));
        there.map(|(index, _)| &job.objects.captured_files[*index])
    }
}

/// How a path of today differs from what it was.
#[derive(Debug)]
pub enum Difference {
    /// It leads nowhere.
    Missing,
    /// It leads to something of another kind, or a symbolic link leads elsewhere.
    Other,
    /// A regular file has another content.
    Content {
        /// Pages to be written, and what they are to hold.
        pages: Vec<NumberedPage>,
        /// Whether all that the file had is there, and more behind it.
        has_only_grown: bool,
    },
}
