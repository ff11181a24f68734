//! Puts the files on disk in step with the memory, when nothing else can fail any more.
//!
//! The standard streams are never touched: they are the restarter's.

use ckpt_store::Store;

use super::captured_files::CapturedFiles;
use super::grown_files::cut_back;
use super::mapping_plan::MappingPlan;
use super::open_files::identity;
use super::reach::Holders;
use super::saved_copy::SavedCopies;
use super::shared_pages::SharedPages;
use super::unlinked_files;
use crate::error::Result;
use crate::image::{FileKind, JobImage, path_of};

/// What is to be changed on disk, found and verified before anything is built.
#[derive(Debug)]
pub struct Changes {
    shared: SharedPages,
    captured: CapturedFiles,
}

impl Changes {
    /// Compares the mapped files with the checkpoint, and verifies in the store what differs.
    pub fn find(job: &JobImage, plan: &MappingPlan, captured: CapturedFiles, store: &Store) -> Result<Changes> {
        Ok(Changes { shared: SharedPages::find(job, plan, store)?, captured })
    }

    /// Changes the files, of which `copies` are saved.
    pub fn settle(mut self, copies: &SavedCopies, job: &JobImage, plan: &MappingPlan, store: &Store) -> Result<()> {
        let objects = &job.objects;
        let mut left = std::mem::take(&mut self.captured.left);
        unlinked_files::complete(job, plan)?;
        self.shared.write(job, plan, store)?;
        self.captured.put_back(copies, job, store)?;
        let is_captured = |path: &[u8]| objects.captured_files.iter().any(|file| file.path == path);
        let holders = Holders::of(job);
        for (index, file) in objects.files.iter().enumerate().filter(|(_, file)| file.is_writable()) {
            if let &FileKind::Regular { ref path, size, device, inode, .. } = &file.kind
                && !is_captured(path)
            {
                let path = path_of(path);
                match objects.others_append_to(device, inode) {
                    true if left.iter().any(|known| known == path) => {}
                    true => left.push(path.to_owned()),
                    false => cut_back(path, &holders.of_file(index), identity(&file.kind), size, copies)?,
                }
            }
        }
        copies.tell();
        for log in left {
            let path = log.display();
            crate::say!(
                "others append to {path}, too: it stays as it is, with what this program has written since the checkpoint"
            );
        }
        Ok(())
    }
}
