//! Files whose content is in the checkpoint: they get it back.
//!
//! What differs is found, and verified in the store, before anything is built ([`compare`]). When the restart is certain to
//! succeed, the content of today is saved (saved_copy) of each file that differs, which is then changed in place, so that
//! the file stays the one that others have open or linked. Of a file that has only grown, the part behind its end is saved
//! alone.

mod compare;
mod missing;
mod put_back;

use std::path::PathBuf;

use ckpt_store::PageKey;

use crate::image::{CapturedFile, JobImage};

pub use put_back::write_content;

/// The number of a page in its file, and what it holds.
type NumberedPage = (u64, PageKey);

/// How the files of today differ from the captured ones.
#[derive(Debug, Default)]
pub struct CapturedFiles {
    /// By the index in `Objects::captured_files`, ascending: directories come before what is in them.
    differences: Vec<(usize, Difference)>,
    /// What is in captured directories and was not there at the checkpoint.
    additions: Vec<PathBuf>,
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
enum Difference {
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
