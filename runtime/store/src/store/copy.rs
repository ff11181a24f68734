//! Copying a checkpoint to another store: only what is missing there travels.
//!
//! Page lists are the same in both stores, because nodes are named by their content, so the state is copied as it is.
//! Every page is proved when it is read and named anew when it is written.

use super::{Shared, Store};
use crate::{
    Attempt, AttemptEnd, AttemptRow, AttemptStart, PAGE_BYTES, PageKey, PageList, Result, StoreError,
    files::Kind,
    format::manifest::{self, Contents},
};

/// Pages copied at once: 32 MiB.
const WINDOW_PAGES: usize = 1 << 13;

/// A checkpoint in the store it was copied to.
#[derive(Clone, Debug)]
pub struct Copied {
    /// Its row there. What it says of times and sizes is that of the original, but for the bytes written.
    pub row: AttemptRow,
    /// It was there already, and nothing was written.
    pub was_there: bool,
}

/// A checkpoint's root record, whole.
struct Original {
    row: AttemptRow,
    contents: Contents,
    state: Vec<u8>,
}

impl Store {
    /// Copies checkpoint `id` to the store `to`, under the next number there. One that is there already (same job, same
    /// time, same content) is not copied again.
    ///
    /// `progress` is told how many more pages are done: in all, as many as the checkpoint's lists have.
    pub fn copy_checkpoint(&self, id: u64, to: &Store, progress: &mut dyn FnMut(u64)) -> Result<Copied> {
        if self.digest() != to.digest() {
            let (path, found, needed) = (to.dir().into(), to.digest(), self.digest());
            return Err(StoreError::OtherDigest { path, found, needed });
        }
        let original = self.original(id)?;
        if let Some(row) = to.found_copy(&original)? {
            progress(original.contents.roots.iter().map(|root| root.pages).sum());
            return Ok(Copied { row, was_there: true });
        }
        let Original { row, contents, state } = original;
        let mut attempt = to.begin(AttemptStart {
            job: row.job,
            name: row.name,
            trigger: row.trigger,
            started_unix_ms: row.started_unix_ms,
            processes: row.processes,
            depth: row.depth,
        })?;
        for root in &contents.roots {
            let list = self.page_list(root)?;
            copy_pages(self, &mut attempt, &list, progress)?;
            attempt.write_page_list(&list)?;
        }
        let AttemptRow { memory_bytes, pending_bytes, stop_ms, stop_phases_ms, total_ms, processes, .. } = row;
        let end = AttemptEnd { memory_bytes, pending_bytes, stop_ms, stop_phases_ms, total_ms, processes };
        let row = attempt.seal_at(row.sealed_unix_s, end, &state)?;
        Ok(Copied { row, was_there: false })
    }

    fn original(&self, id: u64) -> Result<Original> {
        let Shared { files, header, .. } = &*self.shared;
        let Some(input) = files.open_if_there(&Kind::Manifest.name(id))? else {
            return Err(self.no_such_checkpoint(id)?);
        };
        let (row, contents, state) = manifest::read(&input, &header.store_id, id)?;
        Ok(Original { row, contents, state })
    }

    /// The row of a checkpoint that is `original` in all that matters.
    fn found_copy(&self, original: &Original) -> Result<Option<AttemptRow>> {
        let row = &original.row;
        let same_start = |found: &AttemptRow| (&found.job, found.started_unix_ms) == (&row.job, row.started_unix_ms);
        let sealed = self.sealed()?;
        for found in self.attempts()?.into_iter().filter(|found| sealed.contains(&found.id) && same_start(found)) {
            let there = self.original(found.id)?;
            if there.state == original.state && there.contents.roots == original.contents.roots {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

fn copy_pages(from: &Store, attempt: &mut Attempt, list: &PageList, progress: &mut dyn FnMut(u64)) -> Result<()> {
    let mut room = Vec::new();
    let keys: Vec<PageKey> = list.iter().map(|(_, key)| key).collect();
    for window in keys.chunks(WINDOW_PAGES) {
        let missing = attempt.missing_pages(window)?;
        copy_window(from, attempt, &missing, &mut room)?;
        progress(window.len() as u64);
    }
    Ok(())
}

/// Reads pages, each proved by its digests, into `room`, and writes them into `attempt`.
pub(super) fn copy_window(from: &Store, attempt: &mut Attempt, keys: &[PageKey], room: &mut Vec<u8>) -> Result<()> {
    room.resize(keys.len() * PAGE_BYTES, 0);
    from.read_pages(keys, room)?;
    attempt.write_pages(room).map(drop)
}
