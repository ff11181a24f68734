//! Files, directories and devices that have a path, opened before there are processes, which get them by birth.
//!
//! The restarter opens them and not the processes: each is opened with the rights of a process that had it ([`super::reach`]), and a
//! refusal is told in full.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsRawFd, RawFd};

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

use super::paths::{reopened_path, reopening_flags};
use super::reach::{self, Holders, Identity, Rights, Spot};
use super::removed_directories::RemovedDirectories;
use crate::error::{Error, Result};
use crate::image::{FileKind, JobImage, OpenFile, ProcessImage, path_of};

/// Descriptors of this command beside those of the job.
const SPARE_DESCRIPTORS: rlim_t = 256;

/// What is open, until the processes have it.
#[derive(Debug, Default)]
pub struct OpenFiles {
    opened: Vec<File>,
    /// Where a file of the job is among them, by its index.
    files: HashMap<usize, usize>,
    /// Where the working directory of each process is among them.
    directories: Vec<usize>,
    /// Where a named pipe is among them, by the index of the pipe.
    fifos: HashMap<usize, usize>,
}

impl OpenFiles {
    /// Opens those of `job`. Its named pipes are there.
    ///
    /// # Errors
    /// When one cannot be opened, by name.
    pub fn of(job: &JobImage) -> Result<OpenFiles> {
        let holders = Holders::of(job);
        allow_descriptors(job)?;
        let mut all = OpenFiles::default();
        let mut removed = RemovedDirectories::default();
        for (index, file) in job.objects.files.iter().enumerate() {
            if let FileKind::Directory { path, removed: Some(rights), .. } = &file.kind {
                let flags = reopening_flags(file);
                let opened = removed.open(path_of(path), rights, flags, &holders.of_file(index));
                let opened = opened
                    .map_err(|source| reach::failed("make again, as it had been removed,", path_of(path), source))?;
                let place = all.keep(opened);
                all.files.insert(index, place);
                continue;
            }
            if let Some(path) = reopened_path(file).map(path_of) {
                let opened = reopen(file, path, &holders.of_file(index))?;
                let place = all.keep(opened);
                all.files.insert(index, place);
            }
        }
        for process in &job.processes {
            let directory = all.working_directory(process, &mut removed)?;
            all.directories.push(directory);
        }
        for (index, pipe) in job.objects.pipes.iter().enumerate() {
            if let Some(fifo) = &pipe.fifo {
                let path = path_of(&fifo.path);
                let opened = reach::open(path, libc::O_PATH, &holders.of_pipe(index), None)
                    .map_err(|source| reach::failed("reopen", path, source))?;
                let place = all.keep(opened);
                all.fifos.insert(index, place);
            }
        }
        Ok(all)
    }

    /// Their numbers in this process.
    pub fn numbers(&self) -> Vec<RawFd> {
        self.opened.iter().map(AsRawFd::as_raw_fd).collect()
    }

    /// The place among those of file `index` of the job.
    pub fn place_of(&self, index: usize) -> Option<usize> {
        self.files.get(&index).copied()
    }

    /// The place among those of the working directory of process `index` of the job.
    pub fn place_of_directory(&self, index: usize) -> Option<usize> {
        self.directories.get(index).copied()
    }

    /// The place among those of the named pipe that is pipe `index` of the job.
    pub fn place_of_fifo(&self, index: usize) -> Option<usize> {
        self.fifos.get(&index).copied()
    }

    fn working_directory(&mut self, process: &ProcessImage, removed: &mut RemovedDirectories) -> Result<usize> {
        let path = path_of(&process.working_directory);
        let (flags, rights) = (libc::O_PATH | libc::O_DIRECTORY, [Rights::of(process)]);
        let opened = match &process.working_directory_removed {
            Some(had) => removed.open(path, had, flags, &rights),
            None => reach::open(path, flags, &rights, None),
        };
        let opened = opened.map_err(|source| reach::failed("enter", path, source))?;
        Ok(self.keep(opened))
    }

    fn keep(&mut self, file: File) -> usize {
        self.opened.push(file);
        self.opened.len() - 1
    }
}

fn reopen(file: &OpenFile, path: &std::path::Path, holders: &[Rights]) -> Result<File> {
    let failed = |source| reach::failed("reopen", path, source);
    if let FileKind::Named { .. } = &file.kind {
        return Spot::reach(path, holders).and_then(|spot| spot.itself()).map_err(failed);
    }
    let mut opened = reach::open(path, reopening_flags(file), holders, identity(&file.kind)).map_err(failed)?;
    if let (FileKind::Regular { offset, .. } | FileKind::Directory { offset, .. }, false) =
        (&file.kind, file.is_path_only())
    {
        opened.seek(SeekFrom::Start(*offset)).map_err(failed)?;
    }
    Ok(opened)
}

/// Which file it was, where that is known.
pub fn identity(kind: &FileKind) -> Option<Identity> {
    match *kind {
        FileKind::Regular { device, inode, .. } => Some(Identity { device, inode }),
        _ => None,
    }
}

/// Raises the limit of descriptors of this process where the job's do not fit.
fn allow_descriptors(job: &JobImage) -> Result<()> {
    let failed = |source| Error::io("raise", "the limit of open files", source);
    let objects = &job.objects;
    let needed = (objects.files.len() + objects.pipes.len() + job.processes.len()) as rlim_t + SPARE_DESCRIPTORS;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    if soft >= needed {
        return Ok(());
    }
    // With a lower hard limit, open(2) says when there are no more.
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed))
        .or_else(|_| setrlimit(Resource::RLIMIT_NOFILE, hard, hard))
        .map_err(failed)
}
