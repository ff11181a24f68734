//! Writing the content of files into the store, while the program runs.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;

use ckpt_store::{Attempt, PAGE_BYTES, PageList};
use serde_bytes::ByteBuf;

use super::held::{Content, Held, HeldFiles, Known, KnownFile};
use crate::error::{Error, Result};
use crate::image::{CapturedKind, FileContent, Objects, path_of};
use crate::sparse;

const PAGE: u64 = PAGE_BYTES as u64;

/// Writes what is held into `attempt` and `objects`; gives what the next checkpoint can build on. `written` is told the bytes of
/// each part.
pub fn store(
    held: HeldFiles,
    attempt: &mut Attempt,
    objects: &mut Objects,
    written: &mut dyn FnMut(u64),
) -> Result<Known> {
    let mut known = HashMap::new();
    for (mut file, content) in held.captured {
        if let (CapturedKind::Regular { content: stored, .. }, Some(content)) = (&mut file.kind, content) {
            *stored = store_content(content, attempt, &mut known, written)
                .map_err(|source| failed(source, path_of(&file.path).display().to_string()))?;
        }
        objects.captured_files.push(file);
    }
    for (file, content) in objects.unlinked_files.iter_mut().zip(held.unlinked) {
        file.content = store_content(content, attempt, &mut known, written)
            .map_err(|source| failed(source, path_of(&file.path).display().to_string()))?;
    }
    let trees = held.trees.into_iter().map(|tree| ByteBuf::from(tree.into_os_string().into_vec()));
    objects.captured_trees = trees.collect();
    Ok(known)
}

/// What can go wrong with one file.
enum Failure {
    Reading(io::Error),
    Storing(ckpt_store::StoreError),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Reading(error)
    }
}

impl From<ckpt_store::StoreError> for Failure {
    fn from(error: ckpt_store::StoreError) -> Failure {
        Failure::Storing(error)
    }
}

fn failed(failure: Failure, path: String) -> Error {
    match failure {
        Failure::Reading(source) => Error::io("read", path, source),
        Failure::Storing(error) => error.into(),
    }
}

fn store_content(
    held: Held,
    attempt: &mut Attempt,
    known: &mut Known,
    written: &mut dyn FnMut(u64),
) -> std::result::Result<FileContent, Failure> {
    let list = match held.content {
        Content::Known(list) => list,
        Content::Copy(mut content) => {
            written(held.bytes);
            content.resize(content.len().next_multiple_of(PAGE_BYTES), 0);
            let mut list = PageList::new();
            list.set_run(0, &attempt.write_pages(&content)?);
            list
        }
        Content::File(file) => store_file(&file, held.bytes, attempt, written)?,
    };
    let pages = attempt.write_page_list(&list)?;
    if let Some(stamp) = held.stamp {
        known.insert(stamp.place(), KnownFile { stamp, content: list });
    }
    Ok(FileContent { bytes: held.bytes, pages })
}

fn store_file(
    file: &File,
    bytes: u64,
    attempt: &mut Attempt,
    written: &mut dyn FnMut(u64),
) -> std::result::Result<PageList, Failure> {
    let mut list = PageList::new();
    let mut buffer = vec![0; attempt.best_call_bytes().next_multiple_of(PAGE_BYTES)];
    for range in sparse::data(file, bytes)? {
        let mut at = range.start / PAGE * PAGE;
        while at < range.end {
            let wanted = (range.end - at).min(buffer.len() as u64) as usize;
            let (content, padding) = buffer[..wanted.next_multiple_of(PAGE_BYTES)].split_at_mut(wanted);
            file.read_exact_at(content, at)?;
            padding.fill(0);
            let keys = attempt.write_pages(&buffer[..wanted.next_multiple_of(PAGE_BYTES)])?;
            list.set_run(at / PAGE, &keys);
            written(wanted as u64);
            at += wanted as u64;
        }
    }
    Ok(list)
}
