//! Giving files the content of the checkpoint.

use std::fs::{self, File, FileTimes, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, fchown, lchown, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use ckpt_store::{PAGE_BYTES, Store};
use nix::unistd::geteuid;

use super::compare::{open, pages_of, read_batches};
use super::{CapturedFiles, Difference, NumberedPage};
use crate::error::{Error, Result};
use crate::image::{CapturedFile, CapturedKind, FileContent, Objects, path_of};
use crate::restore::saved_copy::{move_aside, save};
use crate::saved_name::Saved;

const PAGE: u64 = PAGE_BYTES as u64;

impl CapturedFiles {
    /// Saves what differs, and puts back what was captured. `id` names the checkpoint in the names of what is saved.
    pub fn put_back(self, id: u64, objects: &Objects, store: &Store) -> Result<()> {
        let mut saved = 0;
        for path in &self.additions {
            let name = move_aside(path, id).map_err(|source| Error::io("move aside", path, source))?;
            log::info!("{} was not there at the checkpoint, and is {} now", path.display(), name.display());
            saved += 1;
        }
        for (index, difference) in &self.differences {
            let file = &objects.captured_files[*index];
            saved += u32::from(restore_as_found(file, difference, id, store)?);
        }
        if saved > 0 {
            log::warn!(
                "{saved} files are again as they were at checkpoint {id}; what they were until now is beside them, as NAME.ckpt-{id}"
            );
        }
        Ok(())
    }
}

/// Whether something of today had to be saved. What differed may have been removed since: a Java machine that begins removes the files
/// of others that have ended, and so perhaps that of the program.
fn restore_as_found(file: &CapturedFile, difference: &Difference, id: u64, store: &Store) -> Result<bool> {
    let is_gone =
        || fs::symlink_metadata(path_of(&file.path)).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    match restore(file, difference, id, store) {
        Err(_) if is_gone() => restore(file, &Difference::Missing, id, store),
        outcome => outcome,
    }
}

/// Whether something of today had to be saved.
fn restore(file: &CapturedFile, difference: &Difference, id: u64, store: &Store) -> Result<bool> {
    let path = path_of(&file.path);
    let failed = |source| Error::io("put back", path, source);
    let mut saves = false;
    if let Difference::Other = difference {
        let name = move_aside(path, id).map_err(failed)?;
        log::info!("{}: what was there is {} now", path.display(), name.display());
        saves = true;
    }
    match (&file.kind, difference) {
        (CapturedKind::Directory, _) if path.is_dir() => {}
        (CapturedKind::Directory, _) => fs::create_dir(path).map_err(failed)?,
        (CapturedKind::SymbolicLink { target }, _) => {
            symlink(path_of(target), path).map_err(failed)?;
            return own(file, |user, group| lchown(path, user, group)).map(|()| saves).map_err(failed);
        }
        (CapturedKind::Regular { content, .. }, Difference::Content { pages, has_only_grown }) => {
            saves |= save_content(path, content, *has_only_grown, id)?;
            fill(path, content, pages, store)?;
        }
        (CapturedKind::Regular { content, .. }, _) => {
            if !path.exists() {
                File::create_new(path).map_err(failed)?;
            }
            fill(path, content, &pages_of(content, store)?, store)?;
        }
    }
    if !matches!(difference, Difference::Content { .. }) {
        let made = File::open(path).map_err(failed)?;
        made.set_permissions(Permissions::from_mode(file.mode)).map_err(failed)?;
        own(file, |user, group| fchown(&made, user, group)).map_err(failed)?;
    }
    set_time(path, file.modified_ns).map_err(failed)?;
    Ok(saves)
}

/// Saves the content of today, or what is behind the end that the file gets; whether it was all of it.
fn save_content(path: &Path, content: &FileContent, has_only_grown: bool, id: u64) -> Result<bool> {
    let (start, saved) = if has_only_grown { (content.bytes, Saved::Tail) } else { (0, Saved::Whole) };
    let mut file = open(path, false).map_err(|source| Error::io("save", path, source))?;
    match save(&mut file, path, start, id, saved) {
        Ok(name) => log::info!("{}: what was written after the checkpoint is in {}", path.display(), name.display()),
        // The program's log on a full disk, say: its end is not worth the restart.
        Err(error) if has_only_grown => {
            log::warn!("{}: what was written after the checkpoint could not be saved: {error}", path.display());
        }
        Err(source) => return Err(Error::io("save beside itself, before it is put back,", path, source)),
    }
    Ok(!has_only_grown)
}

fn fill(path: &Path, content: &FileContent, pages: &[NumberedPage], store: &Store) -> Result<()> {
    let failed = |source| Error::io("put back", path, source);
    let file = open(path, true).map_err(failed)?;
    write(&file, content, pages, store, &|source| failed(source))
}

/// Writes pages of a content, and gives the file its length.
pub fn write(
    file: &File,
    content: &FileContent,
    pages: &[NumberedPage],
    store: &Store,
    failed: &dyn Fn(io::Error) -> Error,
) -> Result<()> {
    read_batches(pages, store, &mut |batch, bytes| {
        let mut rest = bytes;
        for run in batch.chunk_by(|(page, _), (next, _)| page + 1 == *next) {
            let (now, later) = rest.split_at(run.len() * PAGE_BYTES);
            let start = run[0].0 * PAGE;
            let within = content.bytes.saturating_sub(start).min(now.len() as u64) as usize;
            file.write_all_at(&now[..within], start).map_err(failed)?;
            rest = later;
        }
        Ok(())
    })?;
    file.set_len(content.bytes).map_err(failed)
}

/// Only root can give files away.
fn own(file: &CapturedFile, give: impl Fn(Option<u32>, Option<u32>) -> io::Result<()>) -> io::Result<()> {
    let (user, group) = file.owner;
    if geteuid().is_root() { give(Some(user), Some(group)) } else { Ok(()) }
}

fn set_time(path: &Path, modified_ns: i64) -> io::Result<()> {
    let since = Duration::from_nanos(u64::try_from(modified_ns).unwrap_or(0));
    File::open(path)?.set_times(FileTimes::new().set_modified(UNIX_EPOCH + since))
}

/// Writes all of a content into a new file.
pub fn write_content(
    file: &File,
    content: &FileContent,
    store: &Store,
    failed: &dyn Fn(io::Error) -> Error,
) -> Result<()> {
    write(file, content, &pages_of(content, store)?, store, failed)
}

#[cfg(test)]
mod tests {
    use ckpt_store::{AttemptEnd, AttemptStart, PageList};

    use super::*;

    #[test]
    fn a_file_that_was_removed_since_it_was_compared_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let store = Store::create_or_open(&directory.path().join("store")).unwrap();
        let start = AttemptStart { job: "job".into(), processes: 1, ..AttemptStart::default() };
        let mut attempt = store.begin(start).unwrap();
        let mut list = PageList::new();
        list.set_run(0, &attempt.write_pages(&[7; PAGE_BYTES]).unwrap());
        let content = FileContent { bytes: 10, pages: attempt.write_page_list(&list).unwrap() };
        attempt.seal(AttemptEnd::default(), b"").unwrap();

        fs::write(&path, "another").unwrap();
        let file = CapturedFile {
            path: path.as_os_str().as_encoded_bytes().to_vec(),
            kind: CapturedKind::Regular { device: (0, 0), inode: 0, content },
            mode: 0o640,
            owner: (0, 0),
            modified_ns: 0,
        };
        let objects = Objects { captured_files: vec![file], ..Objects::default() };
        let found = CapturedFiles::compare(&objects, &store).unwrap();
        assert!(matches!(found.differences[..], [(0, Difference::Content { .. })]), "{found:?}");
        fs::remove_file(&path).unwrap();
        found.put_back(1, &objects, &store).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [7; 10]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }
}
