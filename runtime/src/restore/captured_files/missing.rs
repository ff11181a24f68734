//! Making what is missing, before anything is built: the rebuilt process opens its files, and stands in its directory.

use std::io;
use std::path::Path;

use super::difference::{CapturedFiles, Difference};
use crate::error::{Error, Result};
use crate::image::{CapturedFile, CapturedKind, JobImage, path_of};
use crate::restore::reach::{self, Holders, Rights, Spot};

/// What has been made. It is removed again, unless it is kept.
#[derive(Debug, Default)]
pub struct Prepared {
    files: Vec<Spot>,
    directories: Vec<Spot>,
}

impl Prepared {
    /// It stays.
    pub fn keep(mut self) {
        (self.files, self.directories) = (Vec::new(), Vec::new());
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let files = self.files.iter().map(|spot| (spot, spot.remove()));
        let directories = self.directories.iter().rev().map(|spot| (spot, spot.remove_directory()));
        for (spot, removed) in files.chain(directories) {
            if let Err(error) = removed {
                log::warn!("{} was made for the restart and stays, empty: {error}", spot.path().display());
            }
        }
    }
}

impl CapturedFiles {
    /// Makes missing directories and symbolic links, and missing files of zeros. What has become of another kind is put back later: nothing
    /// is moved before the restart is certain to succeed.
    ///
    /// # Errors
    /// When one cannot be made. Then none is left.
    pub fn prepare(&self, job: &JobImage) -> Result<Prepared> {
        let holders = Holders::of(job);
        let mut prepared = Prepared::default();
        let differing = || self.differences.iter().map(|(index, how)| (&job.objects.captured_files[*index], how));
        let is_replaced = |file: &CapturedFile| matches!(file.kind, CapturedKind::Directory);
        let replaced: Vec<&Path> = differing()
            .filter(|(file, how)| is_replaced(file) && matches!(how, Difference::Other))
            .map(|(file, _)| path_of(&file.path))
            .collect();
        for (file, difference) in differing() {
            let path = path_of(&file.path);
            // What was in a directory that is none any more is made when what is there has been moved aside.
            if !matches!(difference, Difference::Missing)
                || replaced.iter().any(|directory| path.starts_with(directory))
            {
                continue;
            }
            let holders = holders.of_path(&file.path);
            match &file.kind {
                CapturedKind::Directory => prepared.make_directory(path, &holders)?,
                CapturedKind::Regular { content, .. } => prepared.make_file(path, content.bytes, &holders)?,
                CapturedKind::SymbolicLink { target } => prepared.make_link(path, path_of(target), &holders)?,
            }
        }
        Ok(prepared)
    }
}

impl Prepared {
    fn make_directory(&mut self, path: &Path, holders: &[Rights]) -> Result<()> {
        let made = Spot::reach(path, holders).and_then(|spot| spot.make_directory().map(|_| spot));
        self.directories.push(made.map_err(|source| reach::failed("make the directory", path, source))?);
        Ok(())
    }

    fn make_link(&mut self, path: &Path, target: &Path, holders: &[Rights]) -> Result<()> {
        let made = Spot::reach(path, holders).and_then(|spot| spot.make_link(target).map(|()| spot));
        self.files.push(made.map_err(|source| reach::failed("make the symbolic link", path, source))?);
        Ok(())
    }

    /// It has its length: what is mapped of it can be written.
    fn make_file(&mut self, path: &Path, bytes: u64, holders: &[Rights]) -> Result<()> {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        let made = Spot::reach(path, holders).and_then(|spot| Ok((spot.make(flags, 0o600, None)?, spot)));
        let (file, spot) = made.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::environment(
                "restart",
                format!("{} was in a directory that is missing", path.display()),
                "make the directory; --with-dir captures directories, too",
            ),
            io::ErrorKind::AlreadyExists => Error::environment(
                "restart",
                format!("another program has just made {}, which was missing", path.display()),
                "give the command again; copies that write to one file need --map, or a container for each",
            ),
            _ => reach::failed("make the missing file", path, source),
        })?;
        self.files.push(spot);
        file.set_len(bytes).map_err(|source| reach::failed("make the missing file", path, source))
    }
}
