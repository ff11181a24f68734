//! Puts the files on disk in step with the memory, when nothing else can fail any more.
//!
//! The standard streams are never touched: they are the restarter's.

use ckpt_store::Store;

use super::captured_files::CapturedFiles;
use super::file_mappings::MappingPlan;
use super::grown_files::cut_back;
use super::shared_pages::SharedPages;
use super::unlinked_files;
use crate::error::Result;
use crate::image::{FileKind, ProcessImage, path_of};

/// What is to be changed on disk, found and verified before anything is built.
#[derive(Debug)]
pub struct Changes {
    shared: SharedPages,
    captured: CapturedFiles,
}

impl Changes {
    /// Compares the files with the checkpoint, and verifies in the store what differs.
    pub fn find(image: &ProcessImage, plan: &MappingPlan, store: &Store) -> Result<Changes> {
        Ok(Changes { shared: SharedPages::find(image, plan, store)?, captured: CapturedFiles::compare(image, store)? })
    }

    /// Makes what is missing, empty, so that it can be opened; it goes again with the guard, unless that is told to keep it.
    pub fn prepare(&self, image: &ProcessImage) -> Result<super::captured_files::Prepared> {
        self.captured.prepare(image)
    }

    /// Changes the files. `id` names the checkpoint in the names of what is saved.
    pub fn settle(self, id: u64, image: &ProcessImage, plan: &MappingPlan, store: &Store) -> Result<()> {
        unlinked_files::complete(image, plan)?;
        self.shared.write(image, plan, store)?;
        self.captured.put_back(id, image, store)?;
        let is_captured = |path: &[u8]| image.captured_files.iter().any(|file| file.path == path);
        for file in image.files.iter().filter(|file| file.is_writable()) {
            if let FileKind::Regular { path, size, .. } = &file.kind
                && !is_captured(path)
            {
                cut_back(path_of(path), *size, id)?;
            }
        }
        Ok(())
    }
}
