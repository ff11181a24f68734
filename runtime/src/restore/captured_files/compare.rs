//! Finding out what differs, without changing anything.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ckpt_store::{PAGE_BYTES, PageKey, Store};
use walkdir::WalkDir;

use super::difference::{CapturedFiles, Difference, NumberedPage};
use crate::error::{Error, Result};
use crate::image::{CapturedFile, CapturedKind, FileContent, JobImage, path_of};
use crate::restore::file_comparison::read_padded;
use crate::restore::reach::{self, Holders, Identity, Rights, Spot};
use crate::saved_name::is_saved_name;
use crate::sparse;

/// Pages compared, or verified, at a time.
const BATCH_PAGES: u64 = 2048;
const PAGE: u64 = PAGE_BYTES as u64;

impl CapturedFiles {
    /// Compares the files of today with the captured ones, and verifies in the store what is to be written.
    ///
    /// # Errors
    /// When a file cannot be read, or cannot be written although it differs, or the store is damaged.
    pub fn compare(job: &JobImage, store: &Store) -> Result<CapturedFiles> {
        let (objects, holders) = (&job.objects, Holders::of(job));
        let mut found = CapturedFiles::default();
        let mut replaced: Vec<&Path> = Vec::new();
        for (index, file) in objects.captured_files.iter().enumerate() {
            let path = path_of(&file.path);
            let difference = match replaced.iter().any(|directory| path.starts_with(directory)) {
                true => missing(file, store)?,
                false => difference(file, &holders.of_path(&file.path), store)?,
            };
            if let (CapturedKind::Directory, Some(Difference::Other)) = (&file.kind, &difference) {
                replaced.push(path);
            }
            match (&file.kind, difference) {
                (
                    &CapturedKind::Regular { device, inode, .. },
                    Some(Difference::Content { has_only_grown: true, .. }),
                ) if objects.others_append_to(device, inode) => found.left.push(path.to_owned()),
                (_, difference) => found.differences.extend(difference.map(|difference| (index, difference))),
            }
        }
        let is_directory = |file: &CapturedFile| matches!(file.kind, CapturedKind::Directory);
        let known = objects.captured_files.iter().map(|file| (file.path.as_slice(), is_directory(file))).collect();
        for tree in &objects.captured_trees {
            found.additions.extend(additions(path_of(tree), &known, store)?);
        }
        Ok(found)
    }
}

fn difference(file: &CapturedFile, holders: &[Rights], store: &Store) -> Result<Option<Difference>> {
    let path = path_of(&file.path);
    let found = Spot::reach(path, holders).and_then(|spot| Ok((spot.look()?, spot)));
    let (metadata, spot) = match found {
        Ok(found) => found,
        // Or a directory on the way to it has become something else.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return missing(file, store);
        }
        Err(source) => return Err(reach::failed("examine", path, source)),
    };
    match &file.kind {
        CapturedKind::Directory => Ok((!metadata.is_dir()).then_some(Difference::Other)),
        CapturedKind::SymbolicLink { target } => {
            let is_same = metadata.is_symlink() && spot.link_target().is_ok_and(|now| now == *target);
            Ok((!is_same).then_some(Difference::Other))
        }
        CapturedKind::Regular { content, .. } if metadata.is_file() => content_difference(&spot, file, content, store),
        CapturedKind::Regular { content, .. } => {
            verify(&pages_of(content, store)?, store)?;
            Ok(Some(Difference::Other))
        }
    }
}

/// Which file it was, where the image says so.
pub fn identity(kind: &CapturedKind) -> Option<Identity> {
    match *kind {
        CapturedKind::Regular { device, inode, .. } => Some(Identity { device, inode }),
        CapturedKind::Directory | CapturedKind::SymbolicLink { .. } => None,
    }
}

fn missing(file: &CapturedFile, store: &Store) -> Result<Option<Difference>> {
    if let CapturedKind::Regular { content, .. } = &file.kind {
        verify(&pages_of(content, store)?, store)?;
    }
    Ok(Some(Difference::Missing))
}

fn content_difference(
    spot: &Spot,
    captured: &CapturedFile,
    content: &FileContent,
    store: &Store,
) -> Result<Option<Difference>> {
    let failed = |source| reach::failed("compare with the checkpoint", spot.path(), source);
    let identity = identity(&captured.kind);
    let file = match spot.open_regular(false, identity) {
        // Removed a moment ago.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return missing(captured, store),
        opened => opened.map_err(failed)?,
    };
    let bytes_now = file.metadata().map_err(failed)?.len();
    let pages = different_pages(&file, content, store, &failed)?;
    if pages.is_empty() && bytes_now == content.bytes {
        return Ok(None);
    }
    spot.open_regular(true, identity)
        .map_err(|source| reach::failed("write, as it was at the checkpoint,", spot.path(), source))?;
    verify(&pages, store)?;
    let has_only_grown = pages.is_empty() && bytes_now > content.bytes;
    Ok(Some(Difference::Content { pages, has_only_grown }))
}

/// The pages in which a file differs from a content, ascending, each with what it should hold.
fn different_pages(
    file: &File,
    content: &FileContent,
    store: &Store,
    failed: &dyn Fn(io::Error) -> Error,
) -> Result<Vec<NumberedPage>> {
    let list = store.page_list(&content.pages)?;
    let mut pages = Vec::new();
    let mut buffer = vec![0; (BATCH_PAGES.min(content.bytes.div_ceil(PAGE)) * PAGE) as usize];
    // Pages below this one have been dealt with.
    let mut done = 0;
    let missing = |from: u64, to: u64| {
        list.slice(from, to.saturating_sub(from)).iter().map(|(page, key)| (from + page, key)).collect::<Vec<_>>()
    };
    for range in sparse::data(file, content.bytes).map_err(failed)? {
        let first = (range.start / PAGE).max(done);
        pages.extend(missing(done, first));
        let mut at = first * PAGE;
        while at < range.end {
            let wanted =
                (content.bytes - at).min(buffer.len() as u64).min(range.end.next_multiple_of(PAGE) - at) as usize;
            let (now, padding) = buffer[..wanted.next_multiple_of(PAGE_BYTES)].split_at_mut(wanted);
            read_padded(file, at, now).map_err(failed)?;
            padding.fill(0);
            let keys = store.digest().keys_of(&buffer[..wanted.next_multiple_of(PAGE_BYTES)]);
            let different = (at / PAGE..).zip(keys).filter(|(page, key)| list.get(*page) != *key);
            pages.extend(different.map(|(page, _)| (page, list.get(page))));
            at += wanted as u64;
        }
        done = at.div_ceil(PAGE).max(done);
    }
    pages.extend(missing(done, content.bytes.div_ceil(PAGE)));
    Ok(pages)
}

/// The pages of a content that are not zero.
pub fn pages_of(content: &FileContent, store: &Store) -> Result<Vec<NumberedPage>> {
    let list = store.page_list(&content.pages)?;
    Ok(list.iter().filter(|(page, key)| *page < content.bytes.div_ceil(PAGE) && !key.is_zero()).collect())
}

fn verify(pages: &[NumberedPage], store: &Store) -> Result<()> {
    read_batches(pages, store, &mut |_, _| Ok(()))
}

/// Gets some pages and their content.
type TakePages<'a> = dyn FnMut(&[NumberedPage], &[u8]) -> Result<()> + 'a;

/// Reads pages from the store, which verifies them; `take` gets each batch with its content.
pub fn read_batches(pages: &[NumberedPage], store: &Store, take: &mut TakePages<'_>) -> Result<()> {
    let mut buffer = Vec::new();
    for batch in pages.chunks(BATCH_PAGES as usize) {
        buffer.resize(batch.len() * PAGE_BYTES, 0);
        let keys: Vec<PageKey> = batch.iter().map(|(_, key)| *key).collect();
        store.read_pages(&keys, &mut buffer)?;
        take(batch, &buffer)?;
    }
    Ok(())
}

/// What is in `tree` and not known; nothing within a directory that was none, or was not there. `known` says by its path what
/// was a directory.
fn additions(tree: &Path, known: &HashMap<&[u8], bool>, store: &Store) -> Result<Vec<PathBuf>> {
    let store_dir = fs::canonicalize(store.dir()).unwrap_or_else(|_| store.dir().to_owned());
    let mut additions = Vec::new();
    let mut walk = WalkDir::new(tree).follow_root_links(false).sort_by_file_name().into_iter();
    while let Some(entry) = walk.next() {
        let entry = match entry.map_err(io::Error::from) {
            Ok(entry) => entry,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(Error::io("compare with the checkpoint", tree, source)),
        };
        let (path, is_dir) = (entry.path(), entry.file_type().is_dir());
        let stays = path == store_dir || entry.depth() > 0 && is_saved_name(entry.file_name());
        let known = known.get(path.as_os_str().as_bytes());
        if known.is_none() && !stays && has_content(&entry) {
            additions.push(path.to_owned());
        }
        if is_dir && (stays || known != Some(&true)) {
            walk.skip_current_dir();
        }
    }
    Ok(additions)
}

/// Sockets, pipes and devices are in no checkpoint, and stay where they are.
fn has_content(entry: &walkdir::DirEntry) -> bool {
    let kind = entry.file_type();
    kind.is_file() || kind.is_dir() || kind.is_symlink()
}
