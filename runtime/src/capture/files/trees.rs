//! All that is in a directory.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use walkdir::{DirEntry, WalkDir};

use super::held::HeldFiles;
use super::hold::Holder;
use super::record::{about, regular};
use super::wishes::Wishes;
use crate::error::{Error, Result};
use crate::image::CapturedKind;
use crate::rights::Rights;
use crate::saved_name::is_saved_name;
use crate::without_links;

/// Captures the directories that are wished for. What is in the store, and what earlier restarts have saved, stays out.
pub fn hold(wishes: &Wishes, holder: &mut Holder<'_>, held: &mut HeldFiles) -> Result<()> {
    for (named, rights) in &wishes.trees {
        let tree = match act(rights, || fs::canonicalize(named)) {
            Ok(tree) => tree,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                log::warn!("{}: the directory is not there, and in no checkpoint", named.display());
                continue;
            }
            Err(source) => return Err(Error::io("find the directory", named, source)),
        };
        hold_tree((&tree, rights), wishes, holder, held)
            .map_err(|source| Error::io("capture the directory", &tree, source))?;
        held.trees.push(tree);
    }
    Ok(())
}

fn act<T>(rights: &Option<Rights>, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    match rights {
        Some(rights) => rights.act(work),
        None => work(),
    }
}

fn hold_tree(
    (tree, rights): (&Path, &Option<Rights>),
    wishes: &Wishes,
    holder: &mut Holder<'_>,
    held: &mut HeldFiles,
) -> io::Result<()> {
    act(rights, || fs::read_dir(tree).map(drop))?;
    let store = fs::canonicalize(&wishes.store).unwrap_or_else(|_| wishes.store.clone());
    let stays_out = |entry: &DirEntry| entry.path() == store || entry.depth() > 0 && is_saved_name(entry.file_name());
    for entry in WalkDir::new(tree).sort_by_file_name().into_iter().filter_entry(|entry| !stays_out(entry)) {
        let outcome = entry.map_err(io::Error::from).and_then(|entry| hold_entry(&entry, rights, holder, held));
        match outcome {
            Ok(()) => {}
            // Another process has removed it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn hold_entry(
    entry: &DirEntry,
    rights: &Option<Rights>,
    holder: &mut Holder<'_>,
    held: &mut HeldFiles,
) -> io::Result<()> {
    let path = entry.path();
    let bytes = path.as_os_str().as_bytes();
    if held.paths.contains(bytes) {
        return Ok(()); // the program may write to it
    }
    let metadata = entry.metadata()?;
    let of_kind = |kind| about(bytes.to_vec(), &metadata, kind);
    if metadata.is_file() {
        let file = act(rights, || open(path))?;
        let metadata = file.metadata()?;
        let content = holder.hold(file, false)?;
        held.add(about(bytes.to_vec(), &metadata, regular(&metadata)), Some(content));
    } else if metadata.is_dir() {
        held.add(of_kind(CapturedKind::Directory), None);
    } else if metadata.is_symlink() {
        let target = fs::read_link(path)?.into_os_string().into_vec();
        held.add(of_kind(CapturedKind::SymbolicLink { target }), None);
    } else {
        log::warn!("{}: neither file, directory nor symbolic link, and in no checkpoint", path.display());
    }
    Ok(())
}

/// Opens a file that may have become something else meanwhile. A directory on the way may have become a link to where this agent may
/// look and the program may not.
fn open(path: &Path) -> io::Result<File> {
    let file = without_links::open(path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY, 0)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}
