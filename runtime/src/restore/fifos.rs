//! Named pipes that a job has open: found where they were, or made there again.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::unistd::geteuid;

use super::directories;
use super::reach::{self, Holders, Rights, Spot};
use crate::error::{Error, Result};
use crate::image::{CapturedFile, Fifo, JobImage, path_of};

/// Fifos that have been made. They are removed again, unless they are kept.
#[derive(Debug, Default)]
pub struct MadeFifos(Vec<Spot>);

impl MadeFifos {
    /// They stay.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for MadeFifos {
    fn drop(&mut self) {
        for spot in &self.0 {
            if let Err(error) = spot.remove() {
                log::warn!("{} was made for the restart and stays: {error}", spot.path().display());
            }
        }
    }
}

/// Refuses what is in the place of a named pipe and is none, or is another user's.
pub fn check(job: &JobImage) -> Result<()> {
    named(job).try_for_each(|(fifo, holders)| match Spot::reach(path_of(&fifo.path), &holders) {
        Ok(spot) => is_there(&spot, fifo, &holders).map(drop),
        // It will be, when its directory is.
        Err(error) if error.kind() == io::ErrorKind::NotFound && directory_is_made(job, fifo) => Ok(()),
        Err(source) => Err(reach::failed("examine", path_of(&fifo.path), source)),
    })
}

fn directory_is_made(job: &JobImage, fifo: &Fifo) -> bool {
    let Some(directory) = path_of(&fifo.path).parent() else { return false };
    let is_it = |file: &CapturedFile| path_of(&file.path) == directory;
    directories::is_made(job, directory) || job.objects.captured_files.iter().any(is_it)
}

/// Makes those that are missing.
///
/// # Errors
/// When one cannot be made. Then none is left.
pub fn make_missing(job: &JobImage) -> Result<MadeFifos> {
    let mut made = MadeFifos::default();
    for (fifo, holders) in named(job) {
        let path = path_of(&fifo.path);
        let failed = |source: io::Error| reach::failed("make the named pipe", path, source);
        let spot = Spot::reach(path, &holders).map_err(failed)?;
        if is_there(&spot, fifo, &holders)? {
            continue;
        }
        let pipe = spot.make_fifo().map_err(failed)?;
        made.0.push(spot);
        reach::give(&pipe, path, (fifo.uid, fifo.gid), fifo.mode, &holders[0]).map_err(failed)?;
    }
    Ok(made)
}

/// Each, with the rights of those that had it open.
fn named(job: &JobImage) -> impl Iterator<Item = (&Fifo, Vec<Rights>)> {
    let holders = Holders::of(job);
    let pipes = job.objects.pipes.iter().enumerate();
    pipes.filter_map(move |(index, pipe)| Some((pipe.fifo.as_ref()?, holders.of_pipe(index))))
}

fn is_there(spot: &Spot, fifo: &Fifo, holders: &[Rights]) -> Result<bool> {
    let refused = |why: String| {
        let why = format!("{} was a named pipe and is {why} now", path_of(&fifo.path).display());
        Err(Error::environment("restart", why, "move it away"))
    };
    let is_expected =
        |user: u32| user == fifo.uid || user == geteuid().as_raw() || holders.iter().any(|rights| rights.user == user);
    match spot.look() {
        Ok(there) if !there.file_type().is_fifo() => refused("something else".to_owned()),
        // Who owns a pipe can read what is written into it.
        Ok(there) if !is_expected(there.uid()) => refused(format!("one of user {}", there.uid())),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(Error::io("examine", spot.path() as &Path, source)),
    }
}
