//! Directories that had been removed and that processes still stood in or had open: made for a moment, and removed again.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use super::directories;
use super::reach::{Rights, Spot};
use crate::image::DirectoryRights;

/// Those that are there for the moment.
#[derive(Debug, Default)]
pub struct RemovedDirectories(Vec<Removed>);

#[derive(Debug)]
struct Removed {
    /// The path that it had.
    path: PathBuf,
    opened: File,
    spot: Spot,
}

impl RemovedDirectories {
    /// Opens the one that had been at `path`; the same one each time.
    ///
    /// # Errors
    /// Those of making and opening it.
    pub fn open(&mut self, path: &Path, rights: &DirectoryRights, flags: i32, holders: &[Rights]) -> io::Result<File> {
        let place = match self.0.iter().position(|removed| removed.path == path) {
            Some(place) => place,
            None => {
                let spot = free_spot(path, holders)?;
                let opened = directories::make(&spot, rights, holders)?;
                self.0.push(Removed { path: path.to_owned(), opened, spot });
                self.0.len() - 1
            }
        };
        // By a descriptor that leads there, so that no other one can be put in its place.
        let link = format!("/proc/self/fd/{}", self.0[place].opened.as_raw_fd());
        let opened = nix::fcntl::open(
            link.as_str(),
            nix::fcntl::OFlag::from_bits_retain(flags | libc::O_CLOEXEC),
            nix::sys::stat::Mode::empty(),
        )?;
        Ok(File::from(opened))
    }
}

impl Drop for RemovedDirectories {
    fn drop(&mut self) {
        for removed in self.0.iter().rev() {
            if let Err(error) = removed.spot.remove_directory() {
                log::warn!("{} was made for the restart and stays: {error}", removed.spot.path().display());
            }
        }
    }
}

/// The place that it had, if its parent is there and nothing is in it; else one beside it, or in the nearest directory above that is
/// there.
fn free_spot(path: &Path, holders: &[Rights]) -> io::Result<Spot> {
    let mut denied = io::Error::from(io::ErrorKind::NotFound);
    for (height, directory) in path.ancestors().skip(1).enumerate() {
        let name = match height {
            0 => path.file_name().map(OsString::from).unwrap_or_else(name_of_ours),
            _ => name_of_ours(),
        };
        match Spot::reach(&directory.join(&name), holders) {
            Ok(spot) if spot.look().is_err() => return Ok(spot),
            Ok(spot) => return spot.beside(&name_of_ours()),
            Err(error) => denied = error,
        }
    }
    Err(denied)
}

fn name_of_ours() -> OsString {
    format!(".ckpt-removed-{}", std::process::id()).into()
}
