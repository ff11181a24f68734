//! Giving files the content of the checkpoint.

use std::fs::{File, FileTimes};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, UNIX_EPOCH};

use ckpt_store::{PAGE_BYTES, Store};

use super::compare::{identity, pages_of, read_batches};
use super::difference::{CapturedFiles, Difference, NumberedPage};
use crate::error::{Error, Result};
use crate::image::{CapturedFile, CapturedKind, FileContent, JobImage, path_of};
use crate::restore::reach::{self, Holders, Rights, Spot};
use crate::restore::saved_copy::SavedCopies;
use crate::saved_name::Saved;

const PAGE: u64 = PAGE_BYTES as u64;

impl CapturedFiles {
    /// Saves what differs, and puts back what was captured.
    pub fn put_back(self, copies: &SavedCopies, job: &JobImage, store: &Store) -> Result<()> {
        let holders = Holders::of(job);
        for path in &self.additions {
            let holders = holders.of_path(path.as_os_str().as_encoded_bytes());
            let moved = Spot::reach(path, &holders).and_then(|spot| copies.move_aside(&spot));
            let name = moved.map_err(|source| reach::failed("move aside", path, source))?;
            log::info!("{} was not there at the checkpoint, and is {} now", path.display(), name.display());
        }
        for (index, difference) in &self.differences {
            let file = &job.objects.captured_files[*index];
            restore_as_found(file, difference, &holders.of_path(&file.path), copies, store)?;
        }
        Ok(())
    }
}

/// What differed may have been removed since: a Java machine that begins removes the files of others that have ended, and so perhaps that
/// of the program.
fn restore_as_found(
    file: &CapturedFile,
    difference: &Difference,
    holders: &[Rights],
    copies: &SavedCopies,
    store: &Store,
) -> Result<()> {
    let path = path_of(&file.path);
    let spot = Spot::reach(path, holders).map_err(|source| reach::failed("put back", path, source))?;
    let back = Back { file, holder: &holders[0], spot: &spot, copies, store };
    let is_gone = || spot.look().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    match back.restore(difference) {
        Err(_) if is_gone() => back.restore(&Difference::Missing),
        outcome => outcome,
    }
}

/// One file that is put back.
struct Back<'a> {
    file: &'a CapturedFile,
    /// With whose rights it was made.
    holder: &'a Rights,
    spot: &'a Spot,
    copies: &'a SavedCopies,
    store: &'a Store,
}

impl Back<'_> {
    fn restore(&self, difference: &Difference) -> Result<()> {
        let &Back { file, spot, store, .. } = self;
        let failed = |source| reach::failed("put back", spot.path(), source);
        if let Difference::Other = difference {
            let name = self.copies.move_aside(spot).map_err(failed)?;
            log::info!("{}: what was there is {} now", spot.path().display(), name.display());
        }
        let made = match (&file.kind, difference) {
            (CapturedKind::Directory, _) => self.directory().map_err(failed)?,
            (CapturedKind::SymbolicLink { target }, _) => {
                match spot.make_link(path_of(target)) {
                    // Before the job was rebuilt.
                    Err(_) if spot.link_target().is_ok_and(|now| now == *target) => {}
                    made => made.map_err(failed)?,
                }
                return spot.give_link_to(file.owner).map_err(failed);
            }
            (CapturedKind::Regular { content, .. }, Difference::Content { pages, has_only_grown }) => {
                self.save_content(content, *has_only_grown)?;
                let there = spot.open_regular(true, identity(&file.kind)).map_err(failed)?;
                write(&there, content, pages, store, &failed)?;
                there
            }
            (CapturedKind::Regular { content, .. }, _) => {
                let made = self.new_file().map_err(failed)?;
                write(&made, content, &pages_of(content, store)?, store, &failed)?;
                made
            }
        };
        if !matches!(difference, Difference::Content { .. }) {
            reach::give(&made, spot.path(), file.owner, file.mode, self.holder).map_err(failed)?;
        }
        set_time(&made, file.modified_ns).map_err(failed)
    }

    fn directory(&self) -> io::Result<File> {
        match self.spot.open(libc::O_RDONLY | libc::O_DIRECTORY, None) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.spot.make_directory(),
            opened => opened,
        }
    }

    /// The file, which is empty: made now, or before the job was rebuilt.
    fn new_file(&self) -> io::Result<File> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        match self.spot.make(flags, 0o600, None) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.spot.open_regular(true, identity(&self.file.kind))
            }
            made => made,
        }
    }

    /// Saves the content of today, or what is behind the end that the file gets.
    fn save_content(&self, content: &FileContent, has_only_grown: bool) -> Result<()> {
        let path = self.spot.path();
        let (start, saved) = if has_only_grown { (content.bytes, Saved::Tail) } else { (0, Saved::Whole) };
        let mut file = self
            .spot
            .open_regular(false, identity(&self.file.kind))
            .map_err(|source| reach::failed("save", path, source))?;
        match self.copies.save(&mut file, self.spot, start, saved) {
            Ok(name) => {
                log::info!("{}: what was written after the checkpoint is in {}", path.display(), name.display())
            }
            // The program's log on a full disk, say: its end is not worth the restart.
            Err(error) if has_only_grown => {
                log::warn!("{}: what was written after the checkpoint could not be saved: {error}", path.display());
            }
            Err(source) => return Err(Error::io("save, before it is put back,", path, source)),
        }
        Ok(())
    }
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

fn set_time(file: &File, modified_ns: i64) -> io::Result<()> {
    let since = Duration::from_nanos(u64::try_from(modified_ns).unwrap_or(0));
    file.set_times(FileTimes::new().set_modified(UNIX_EPOCH + since))
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

    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::image::Objects;
    use crate::restore::host::Machine;
    use crate::restore::place::Place;
    use crate::restore::sample;

    #[test]
    fn a_file_that_was_removed_since_it_was_compared_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("file");
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
        let mut job = sample::job(&Machine::this().unwrap());
        job.objects = Objects { captured_files: vec![file], ..Objects::default() };
        let found = CapturedFiles::compare(&job, &store).unwrap();
        assert!(matches!(found.differences[..], [(0, Difference::Content { .. })]), "{found:?}");
        fs::remove_file(&path).unwrap();
        found.put_back(&SavedCopies::of(Some(directory.path()), true, &Place::AsStarted, 1), &job, &store).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [7; 10]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }
}
