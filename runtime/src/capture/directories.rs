//! Directories: those that the paths of a job lead through, and those that have been removed and are still open or entered.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::image::{Backing, Directory, DirectoryRights, FileKind, Objects, ProcessImage, path_of};
use crate::net::Address;
use crate::proc::{DELETED, is_the_kernels};

/// A directory that a link of /proc leads to, whose target is `target`: its path, and its rights if it has been removed.
///
/// # Errors
/// When the process has ended.
pub fn place(link: &Path, target: Vec<u8>) -> Result<(Vec<u8>, Option<DirectoryRights>)> {
    let Some(path) = target.strip_suffix(DELETED) else { return Ok((target, None)) };
    let metadata = std::fs::metadata(link).map_err(|source| Error::io("examine", link, source))?;
    // It may be called so.
    let leads_there = std::fs::metadata(OsStr::from_bytes(&target))
        .is_ok_and(|named| (named.ino(), named.dev()) == (metadata.ino(), metadata.dev()));
    Ok(if leads_there { (target, None) } else { (path.to_vec(), Some(rights(&metadata))) })
}

/// The directories that lead to what a restart opens, makes or enters by its path, parents before their children.
pub fn on_the_way<'a>(objects: &'a Objects, processes: impl Iterator<Item = &'a ProcessImage>) -> Vec<Directory> {
    let mut all = BTreeSet::new();
    for file in &objects.files {
        match &file.kind {
            FileKind::Regular { path, .. } | FileKind::Named { path, .. } => add_above(&mut all, path_of(path)),
            FileKind::Directory { path, removed: None, .. } => add(&mut all, path_of(path)),
            FileKind::Fanotify(group) => group.marks.iter().for_each(|mark| add(&mut all, path_of(&mark.path))),
            FileKind::Inotify { watches } => watches.iter().for_each(|watch| add(&mut all, path_of(&watch.path))),
            FileKind::Socket(socket) if socket.bound_file.is_some() => {
                if let Some(path) = Address(&socket.name).path() {
                    add_above(&mut all, &path_of(&socket.directory).join(path_of(path)));
                }
            }
            _ => {}
        }
    }
    let fifos = objects.pipes.iter().filter_map(|pipe| pipe.fifo.as_ref());
    fifos.for_each(|fifo| add_above(&mut all, path_of(&fifo.path)));
    objects.captured_files.iter().for_each(|file| add_above(&mut all, path_of(&file.path)));
    for process in processes {
        if !process.root_directory.is_empty() {
            add(&mut all, path_of(&process.root_directory));
        }
        if process.working_directory_removed.is_none() {
            add(&mut all, path_of(&process.working_directory));
        }
        for region in &process.regions {
            if let Backing::SharedFile { file, .. } = &region.backing {
                add_above(&mut all, path_of(&file.path));
            }
        }
    }
    all.into_iter().filter_map(|path| of(&path)).collect()
}

fn of(path: &Path) -> Option<Directory> {
    let metadata = std::fs::symlink_metadata(path).ok().filter(Metadata::is_dir)?;
    Some(Directory { path: path.as_os_str().as_bytes().to_vec(), rights: rights(&metadata) })
}

fn rights(metadata: &Metadata) -> DirectoryRights {
    DirectoryRights { mode: metadata.mode() & 0o7777, user: metadata.uid(), group: metadata.gid() }
}

fn add_above(all: &mut BTreeSet<PathBuf>, path: &Path) {
    if let Some(parent) = path.parent() {
        add(all, parent);
    }
}

fn add(all: &mut BTreeSet<PathBuf>, path: &Path) {
    let is_wanted = |path: &&Path| path.parent().is_some() && path.is_absolute() && !is_the_kernels(path);
    for path in path.ancestors().filter(is_wanted) {
        if !all.insert(path.to_owned()) {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::OpenFile;

    #[test]
    fn each_directory_on_the_way_is_there_once_and_parents_come_first() {
        let directory = |removed| {
            let kind = FileKind::Directory { path: b"/usr/lib".to_vec(), offset: 0, removed };
            Objects {
                files: vec![OpenFile { kind: kind.clone(), flags: 0 }, OpenFile { kind, flags: 0 }],
                ..Objects::default()
            }
        };
        let found = on_the_way(&directory(None), std::iter::empty());
        let paths: Vec<&[u8]> = found.iter().map(|directory| directory.path.as_slice()).collect();
        assert_eq!(paths, [b"/usr".as_slice(), b"/usr/lib"]);
        assert_eq!(found[0].rights.mode, 0o755);
        assert!(on_the_way(&directory(Some(found[0].rights)), std::iter::empty()).is_empty());
    }

    #[test]
    fn a_removed_directory_is_told_from_one_that_is_called_so() {
        let folder = tempfile::tempdir().unwrap();
        let named = folder.path().join("name (deleted)");
        std::fs::create_dir(&named).unwrap();
        let target = named.as_os_str().as_bytes().to_vec();
        assert_eq!(place(&named, target.clone()).unwrap(), (target.clone(), None));
        let opened = std::fs::File::open(&named).unwrap();
        std::fs::remove_dir(&named).unwrap();
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&opened));
        let (path, removed) = place(Path::new(&link), target.clone()).unwrap();
        assert_eq!(path, target.strip_suffix(DELETED).unwrap());
        assert!(removed.is_some());
    }
}
