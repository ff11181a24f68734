//! Making what is missing, before anything is built: the rebuilt process opens its files, and stands in its directory.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{CapturedFiles, Difference};
use crate::error::{Error, Result};
use crate::image::{CapturedFile, CapturedKind, Objects, path_of};

/// What has been made. It is removed again, unless it is kept.
#[derive(Debug, Default)]
pub struct Prepared {
    files: Vec<PathBuf>,
    directories: Vec<PathBuf>,
}

impl Prepared {
    /// It stays.
    pub fn keep(mut self) {
        (self.files, self.directories) = (Vec::new(), Vec::new());
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let files = self.files.iter().map(|path| (path, fs::remove_file(path)));
        let directories = self.directories.iter().rev().map(|path| (path, fs::remove_dir(path)));
        for (path, removed) in files.chain(directories) {
            if let Err(error) = removed {
                log::warn!("{} was made for the restart and stays, empty: {error}", path.display());
            }
        }
    }
}

impl CapturedFiles {
    /// Makes missing directories, and missing files without content. What has become of another kind is put back later: nothing
    /// is moved before the restart is certain to succeed.
    ///
    /// # Errors
    /// When one cannot be made. Then none is left.
    pub fn prepare(&self, objects: &Objects) -> Result<Prepared> {
        let mut prepared = Prepared::default();
        let differing = || self.differences.iter().map(|(index, how)| (&objects.captured_files[*index], how));
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
            match &file.kind {
                CapturedKind::Directory => prepared.make_directories(path, file.mode)?,
                CapturedKind::Regular { .. } => prepared.make_file(path)?,
                CapturedKind::SymbolicLink { .. } => {}
            }
        }
        Ok(prepared)
    }
}

impl Prepared {
    fn make_directories(&mut self, path: &Path, mode: u32) -> Result<()> {
        let made = DirBuilder::new().mode(mode | 0o700).create(path);
        made.map_err(|source| Error::io("make the directory", path, source))?;
        self.directories.push(path.to_owned());
        Ok(())
    }

    fn make_file(&mut self, path: &Path) -> Result<()> {
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        made.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::environment(
                "restart",
                format!("{} was in a directory that is missing", path.display()),
                "make the directory; --with-dir captures directories, too",
            ),
            _ => Error::io("make the missing file", path, source),
        })?;
        self.files.push(path.to_owned());
        Ok(())
    }
}
