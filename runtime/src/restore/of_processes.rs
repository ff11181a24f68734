//! What /proc has of processes, opened again when they are there.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::clocks;
use super::ended::Ended;
use super::paths::reopening_flags;
use super::reach::Rights;
use crate::error::{Error, Result};
use crate::image::{FileKind, JobImage, OpenFile, path_of};
use crate::proc::task;
use crate::without_links;

/// Opens `file`, which is one of them. One of a process outside the job is dead like the process, unless that still runs.
///
/// # Errors
/// When it cannot be opened, by name.
pub fn open(job: &JobImage, file: &OpenFile, holders: &[Rights]) -> Result<OwnedFd> {
    let FileKind::OfProcess { pid, begun, path, directory, .. } = &file.kind else {
        return Err(Error::io("open", "what is no file of a process", io::ErrorKind::InvalidInput));
    };
    let is_there = *pid != 0 && (*begun == 0 || clocks::is_boot_of(job) && task::start_time(*pid).ok() == Some(*begun));
    let opened = if is_there { reopen(file, path_of(path), holders) } else { open_dead(file, *directory) };
    opened.map(OwnedFd::from).map_err(|source| Error::io("reopen", path_of(path), source))
}

/// Goes to where the program was in it, which the kernel finds by writing anew what comes before.
pub fn go_to_offset(file: &OpenFile, opened: &OwnedFd) -> Result<()> {
    match &file.kind {
        FileKind::OfProcess { pid, offset, path, .. } if *pid != 0 && *offset != 0 => {
            let failed = |source| Error::io("go on in", path_of(path), source);
            let mut description = File::from(opened.try_clone().map_err(failed)?);
            match description.seek(SeekFrom::Start(*offset)) {
                // A process outside the job has ended just now.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
                outcome => outcome.map(drop).map_err(failed),
            }
        }
        _ => Ok(()),
    }
}

/// With the rights of one that had it: what /proc has of a process is not for everybody.
fn reopen(file: &OpenFile, path: &Path, holders: &[Rights]) -> io::Result<File> {
    Rights::act_as_any(holders, || without_links::open(path, reopening_flags(file), 0))
}

/// A file, or directory, of a process that has ended.
fn open_dead(file: &OpenFile, directory: bool) -> io::Result<File> {
    let process = Ended::with(0)?;
    let (name, flags) = if directory { ("task", libc::O_DIRECTORY) } else { ("stat", 0) };
    let flags = flags | file.flags & (libc::O_PATH | libc::O_NONBLOCK);
    OpenOptions::new().read(true).custom_flags(flags).open(format!("/proc/{}/{name}", process.pid()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_is_left_of_a_process_that_has_ended_says_so() {
        let of = |flags| OpenFile {
            kind: FileKind::OfProcess { pid: 0, begun: 0, path: b"/proc/1/maps".into(), directory: false, offset: 9 },
            flags,
        };
        let mut dead = open_dead(&of(libc::O_RDONLY), false).unwrap();
        let said = dead.read(&mut [0; 8]).unwrap_err();
        assert_eq!(said.raw_os_error(), Some(libc::ESRCH));
        go_to_offset(&of(0), &dead.into()).unwrap();
        let directory = open_dead(&of(libc::O_DIRECTORY), true).unwrap();
        assert!(directory.metadata().is_err() || directory.metadata().is_ok_and(|found| found.is_dir()));
    }
}
