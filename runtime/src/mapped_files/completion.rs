//! Completing a checkpoint: the pages that it lacks are read from the files that have them.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ckpt_store::{Attempt, AttemptRow, Completed, PAGE_BYTES, PageList, Store, StoreError};

use super::MappedFiles;
use crate::error::{Error, Result};
use crate::fault;
use crate::file_stamp::FileStamp;
use crate::image::{self, Backing, JobImage, PageRange, Pending, Region, path_of};
use crate::page_set::PageSet;

const PAGE: u64 = PAGE_BYTES as u64;
/// Pages that are read at once: 4 MiB.
const BATCH_PAGES: u64 = 1024;

/// Pages of a file that are in the store, counted from its beginning.
#[derive(Clone, Debug, Default)]
pub struct StoredFile {
    /// What they are.
    pub list: PageList,
    /// Which.
    pub pages: PageSet,
}

/// What has been stored of files. It is not read again.
pub type StoredFiles = HashMap<FileStamp, StoredFile>;

/// Completes checkpoint `id` by `attempt`, which was begun for that. `written` is told how many bytes are done, of how many. Gives
/// its row, unless it was dropped meanwhile.
///
/// # Errors
/// When a file is not held, or has changed: by name, and the checkpoint is as it was. The store's.
pub fn complete(
    store: &Store,
    mut attempt: Attempt,
    id: u64,
    files: &MappedFiles,
    stored: &mut StoredFiles,
    written: &mut dyn FnMut(u64, u64),
) -> Result<Option<AttemptRow>> {
    let manifest = match store.manifest(id) {
        Err(StoreError::NoSuchCheckpoint { .. }) => return Ok(None),
        manifest => manifest?,
    };
    let mut image = image::job_of(&manifest)?;
    let wanted = wanted(&image, stored);
    let total_bytes = wanted.values().map(|(_, pages)| pages.len() * PAGE).sum();
    let (mut done_bytes, mut new) = (0, StoredFiles::default());
    for (stamp, (path, pages)) in wanted {
        let file = files.get(&stamp).ok_or_else(|| changed(id, &path))?;
        let known = stored.get(&stamp).cloned().unwrap_or_default();
        let (mut list, all) = (known.list, known.pages.union(&pages));
        store_pages(&mut attempt, (file, &path), &pages, &mut list, &mut |bytes| {
            done_bytes += bytes;
            written(done_bytes, total_bytes);
        })?;
        let metadata = file.metadata().map_err(|source| Error::io("look at", &path, source))?;
        if !stamp.is_content_of(&metadata) {
            return Err(changed(id, &path));
        }
        new.insert(stamp, StoredFile { list, pages: all });
    }
    let mut memory_bytes = manifest.row.memory_bytes.saturating_sub(manifest.row.pending_bytes);
    let mut roots = Vec::new();
    for region in image.processes.iter_mut().flat_map(|process| &mut process.regions) {
        let Some(pending) = region.pending.take() else { continue };
        let mut list = store.page_list(&region.pages)?;
        memory_bytes += add(&mut list, region, &pending, &new) * PAGE;
        region.pages = attempt.write_page_list(&list)?;
        roots.push(region.pages.clone());
    }
    image.set_version();
    let completed = Completed { id, memory_bytes, state: image::encode(&image), roots };
    let rows = attempt.complete(&[completed])?;
    // Not before: without the attempt they are nowhere.
    stored.extend(new);
    Ok(rows.into_iter().next())
}

/// The file that `region` maps, and its first page in it.
fn place(region: &Region) -> (PathBuf, u64) {
    match &region.backing {
        Backing::PrivateFile(file) | Backing::SharedFile { file, .. } => {
            (path_of(&file.path).to_owned(), file.offset / PAGE)
        }
        Backing::Anonymous | Backing::SharedObject { .. } => (PathBuf::new(), 0),
    }
}

/// The pages that are to be read of each file, each once.
fn wanted(image: &JobImage, stored: &StoredFiles) -> HashMap<FileStamp, (PathBuf, PageSet)> {
    let mut wanted: HashMap<FileStamp, (PathBuf, PageSet)> = HashMap::new();
    for (region, pending) in image.pending() {
        let (path, first) = place(region);
        let (_, pages) = wanted.entry(pending.file).or_insert_with(|| (path, PageSet::default()));
        *pages = pages.union(&set_of(&pending.pages).shifted(first));
    }
    for (stamp, (_, pages)) in &mut wanted {
        if let Some(known) = stored.get(stamp) {
            *pages = pages.difference(&known.pages);
        }
    }
    wanted
}

fn set_of(ranges: &[PageRange]) -> PageSet {
    let mut set = PageSet::default();
    ranges.iter().for_each(|range| set.push(range.first..range.first + range.count));
    set
}

/// Stores these pages of a file.
fn store_pages(
    attempt: &mut Attempt,
    (file, path): (&File, &Path),
    pages: &PageSet,
    list: &mut PageList,
    written: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut buffer = Vec::new();
    for run in pages.ranges() {
        for first in run.clone().step_by(BATCH_PAGES as usize) {
            let batch = first..run.end.min(first + BATCH_PAGES);
            buffer.clear();
            buffer.resize(((batch.end - batch.start) * PAGE) as usize, 0);
            read_up_to_end(file, &mut buffer, batch.start * PAGE).map_err(|source| Error::io("read", path, source))?;
            list.set_run(batch.start, &attempt.write_pages(&buffer)?);
            fault::hit(fault::point::MAPPED_FILE_STORED);
            written(buffer.len() as u64);
        }
    }
    Ok(())
}

/// Reads from `offset` on; what is behind the end of the file stays as it is.
fn read_up_to_end(file: &File, mut into: &mut [u8], mut offset: u64) -> std::io::Result<()> {
    while !into.is_empty() {
        match file.read_at(into, offset) {
            Ok(0) => break,
            Ok(bytes) => {
                into = &mut into[bytes..];
                offset += bytes as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Adds what `region` lacks to its list. Gives how many of these pages are not zero.
fn add(list: &mut PageList, region: &Region, pending: &Pending, stored: &StoredFiles) -> u64 {
    let (_, first) = place(region);
    let Some(file) = stored.get(&pending.file) else { return 0 };
    let before = list.page_count();
    set_of(&pending.pages).ranges().flatten().for_each(|page| list.set(page, file.list.get(first + page)));
    list.page_count() - before
}

/// The error for a file that is not what it was.
pub(super) fn changed(id: u64, path: &Path) -> Error {
    Error::environment(
        format!("checkpoint {id}"),
        format!("it lacks pages of {}, which has changed since", path.display()),
        "restart an older one",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_the_end_of_a_file_is_zero() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 5000], 0).unwrap();
        let mut read = [0; 8192];
        read_up_to_end(&file, &mut read, 0).unwrap();
        assert!(read[..5000].iter().all(|byte| *byte == 7) && read[5000..].iter().all(|byte| *byte == 0));
    }
}
