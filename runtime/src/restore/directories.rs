//! Directories that the paths of a job lead through: those that are missing are made again, before anything is opened or bound there.

use std::io;
use std::path::Path;

use super::reach::{self, Rights, Spot};
use crate::error::Result;
use crate::image::{DirectoryRights, JobImage, path_of};

/// Directories that have been made. They are removed again, unless they are kept.
#[derive(Debug, Default)]
pub struct MadeDirectories(Vec<Spot>);

impl MadeDirectories {
    /// Makes those of `job` that are missing.
    ///
    /// # Errors
    /// When one cannot be made. Then none is left.
    pub fn of(job: &JobImage) -> Result<MadeDirectories> {
        let mut made = MadeDirectories::default();
        let holders = all_rights(job);
        for directory in &job.objects.directories {
            let path = path_of(&directory.path);
            let failed = |source| reach::failed("make the directory", path, source);
            match path.symlink_metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // What is there instead, or cannot be looked at, is named by whatever needs it.
                _ => continue,
            }
            let spot = Spot::reach(path, &holders).map_err(failed)?;
            make(&spot, &directory.rights, &holders).map_err(failed)?;
            made.0.push(spot);
        }
        if !made.0.is_empty() {
            let names: Vec<_> = made.0.iter().map(|spot| spot.path().display().to_string()).collect();
            log::info!("missing directories have been made again: {}", names.join(", "));
        }
        Ok(made)
    }

    /// They stay.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for MadeDirectories {
    fn drop(&mut self) {
        for spot in self.0.iter().rev() {
            if let Err(error) = spot.remove_directory() {
                log::warn!("{} was made for the restart and stays: {error}", spot.path().display());
            }
        }
    }
}

/// Makes a directory at `spot` that has `rights`.
pub fn make(spot: &Spot, rights: &DirectoryRights, holders: &[Rights]) -> io::Result<std::fs::File> {
    let directory = spot.make_directory()?;
    let given = reach::give(&directory, spot.path(), (rights.user, rights.group), rights.mode, &holders[0]);
    if given.is_err() {
        spot.remove_directory()?;
    }
    given.map(|()| directory)
}

/// Whether a restart makes the directory at `path` if it is missing.
pub fn is_made(job: &JobImage, path: &Path) -> bool {
    job.objects.directories.iter().any(|directory| path_of(&directory.path) == path)
}

/// The rights of all processes, those of ordinary users first.
pub fn all_rights(job: &JobImage) -> Vec<Rights> {
    let mut all: Vec<Rights> = Vec::new();
    for rights in job.processes.iter().map(Rights::of) {
        if !all.contains(&rights) {
            all.push(rights);
        }
    }
    all.sort_by_key(Rights::is_root);
    all
}
