//! How a checkpoint is asked for, and what is told of it while it is taken.

use std::path::{Path, PathBuf};

use super::kin::LeftOut;
use super::tree::Options as TreeOptions;
use crate::error::Result;
use crate::image::JobImage;

/// How a checkpoint is to be taken.
#[derive(Clone, Debug)]
pub struct Request {
    /// What asked for it, for the row: `signal`, `command`, `interval`, `api`.
    pub trigger: String,
    /// End the program once the checkpoint is sealed, without letting it run on.
    pub kill: bool,
    /// Directories to be captured with all that is in them, beside those that the program's environment names.
    pub with_dirs: Vec<PathBuf>,
}

/// What a checkpoint is taken with.
pub struct Settings<'a> {
    /// How memory is stored that is stored finer than a page: that of devices is always.
    pub tree: &'a TreeOptions,
    /// Name of a socket at which the program's keepers of devices can reach us, or at one that is a little longer.
    pub socket: &'a Path,
    /// Refuses what could not be restarted. It is asked before anything is sealed.
    pub check: fn(u64, &JobImage) -> Result<()>,
}

/// What happens while a checkpoint is taken.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// The program runs again, after so many milliseconds.
    Resumed {
        /// How long it was stopped.
        stop_ms: f64,
        /// The id that the checkpoint will have.
        id: u64,
    },
    /// So much of what has to be read has been written.
    Writing {
        /// Bytes done.
        done_bytes: u64,
        /// Bytes in all.
        total_bytes: u64,
    },
    /// A process with the job's mark is not in the checkpoint: it cannot be told from a stranger.
    LeftOut(LeftOut),
}
