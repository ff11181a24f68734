//! TEMPORARY: the interface of the restorer, so that the command line compiles without it.

use std::path::PathBuf;

use ckpt_store::Store;

use crate::error::{Error, Result};
use crate::image::ProcessImage;

/// How to restore.
#[derive(Default)]
pub struct RestoreOptions {
    /// The store.
    pub store_dir: PathBuf,
    /// Restore despite changed files.
    pub force: bool,
    /// More to come.
    pub reserved: (),
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reading the state.
    Reading,
    /// Verifying pages.
    Verifying,
    /// Mapping memory.
    Mapping,
    /// Making threads.
    Threads,
}

/// A program that is complete and stopped.
pub struct Rebuilt {
    pid: i32,
    image: ProcessImage,
}

impl Rebuilt {
    /// Its pid here.
    pub fn pid(&self) -> i32 {
        self.pid
    }
    /// What it was made from.
    pub fn image(&self) -> &ProcessImage {
        &self.image
    }
    /// Lets it run.
    pub fn release(self) -> Result<()> {
        Ok(())
    }
}

/// Rebuilds checkpoint `id`.
pub fn rebuild(
    _store: &Store,
    id: u64,
    _options: &RestoreOptions,
    _progress: &mut dyn FnMut(Stage, u64, u64),
) -> Result<Rebuilt> {
    Err(Error::BadImage { id, why: "nothing restores yet".to_owned() })
}
