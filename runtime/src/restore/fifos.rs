//! Named pipes that a job has open: found where they were, or made there again.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::unistd::{geteuid, mkfifo};

use crate::error::{Error, Result};
use crate::image::{Fifo, Objects, path_of};

/// Fifos that have been made. They are removed again, unless they are kept.
#[derive(Debug, Default)]
pub struct MadeFifos(Vec<PathBuf>);

impl MadeFifos {
    /// They stay.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for MadeFifos {
    fn drop(&mut self) {
        for path in &self.0 {
            if let Err(error) = fs::remove_file(path) {
                log::warn!("{} was made for the restart and stays: {error}", path.display());
            }
        }
    }
}

/// Refuses what is in the place of a named pipe and is none.
pub fn check(objects: &Objects) -> Result<()> {
    named(objects).try_for_each(|fifo| is_there(path_of(&fifo.path)).map(drop))
}

/// Makes those that are missing.
///
/// # Errors
/// When one cannot be made. Then none is left.
pub fn make_missing(objects: &Objects) -> Result<MadeFifos> {
    let mut made = MadeFifos::default();
    for fifo in named(objects) {
        let path = path_of(&fifo.path);
        if is_there(path)? {
            continue;
        }
        let failed = |source: io::Error| Error::io("make the named pipe", path, source);
        mkfifo(path, Mode::from_bits_truncate(0o600)).map_err(|errno| failed(errno.into()))?;
        made.0.push(path.to_owned());
        if geteuid().is_root() {
            chown(path, Some(fifo.uid), Some(fifo.gid)).map_err(failed)?;
        }
        fs::set_permissions(path, fs::Permissions::from_mode(fifo.mode)).map_err(failed)?;
    }
    Ok(made)
}

fn named(objects: &Objects) -> impl Iterator<Item = &Fifo> {
    objects.pipes.iter().filter_map(|pipe| pipe.fifo.as_ref())
}

fn is_there(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_fifo() => Ok(true),
        Ok(_) => Err(Error::environment(
            "restart",
            format!("{} was a named pipe and is something else now", path.display()),
            "move it away",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(Error::io("examine", path, source)),
    }
}
