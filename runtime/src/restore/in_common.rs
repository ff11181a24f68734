//! What a copy would have in common with programs that run: it is refused by name. An ordinary restart takes what the first life has left,
//! because that has ended; beside a copy it may run, and so may other copies.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::errno::Errno;

use super::captured_files::CapturedFiles;
use super::paths::c_path;
use super::reach::{Holders, Spot};
use crate::error::{Error, Result};
use crate::image::{FileKind, JobImage, path_of};
use crate::mqueue;
use crate::proc::sysvipc::{Kind, rows};

/// Refuses objects that are there by name or number, and files that the restart would change while another program writes to them.
///
/// # Errors
/// With the name, and what keeps them apart.
pub fn refuse(job: &JobImage, captured: &CapturedFiles) -> Result<()> {
    refuse_system_v(job)?;
    refuse_message_queues(job)?;
    let holders = Holders::of(job);
    for file in captured.changed(job) {
        refuse_written(path_of(&file.path), &Spot::reach(path_of(&file.path), &holders.of_path(&file.path)))?;
    }
    for (index, file) in job.objects.files.iter().enumerate().filter(|(_, file)| file.is_writable()) {
        let &FileKind::Regular { ref path, size, device, inode, .. } = &file.kind else { continue };
        let is_captured = job.objects.captured_files.iter().any(|file| file.path == *path);
        if is_captured || job.objects.others_append_to(device, inode) {
            continue;
        }
        let spot = Spot::reach(path_of(path), &holders.of_file(index));
        if spot.as_ref().is_ok_and(|spot| spot.look().is_ok_and(|now| now.len() > size)) {
            refuse_written(path_of(path), &spot)?;
        }
    }
    Ok(())
}

fn refuse_system_v(job: &JobImage) -> Result<()> {
    let objects = &job.objects;
    let memory = objects.sysv_memory.iter().map(|memory| (Kind::Memory, &memory.identity));
    let semaphores = objects.sysv_semaphores.iter().map(|set| (Kind::Semaphores, &set.identity));
    let queues = objects.sysv_queues.iter().map(|queue| (Kind::Queue, &queue.identity));
    for (kind, wanted) in memory.chain(semaphores).chain(queues) {
        if rows(kind)?.iter().any(|row| row.id == wanted.id || wanted.key != 0 && row.key() == wanted.key) {
            return Err(shared(kind.shown(wanted.id)));
        }
    }
    Ok(())
}

fn refuse_message_queues(job: &JobImage) -> Result<()> {
    for queue in job.objects.message_queues.iter().filter(|queue| !queue.name.is_empty()) {
        let found = mqueue::open(&c_path(&queue.name)?, libc::O_RDONLY | libc::O_NONBLOCK, None);
        if !matches!(found, Err(Errno::ENOENT)) {
            return Err(shared(format!("message queue /{}", String::from_utf8_lossy(&queue.name))));
        }
    }
    Ok(())
}

fn shared(what: String) -> Error {
    Error::environment(
        format!("give the copy its {what}"),
        "it is there, and a copy has none in common with other programs",
        "make the copy in an ipc namespace (unshare --ipc) or in a container, or remove it (ipcrm, mq_unlink)",
    )
}

/// Refuses a file that is to be changed while another program has it open to write. Where the kernel does not tell, nothing is refused.
fn refuse_written(path: &Path, spot: &std::io::Result<Spot>) -> Result<()> {
    // What cannot be opened is refused elsewhere, or made.
    let Ok(file) = spot.as_ref().map_or(Err(()), |spot| spot.open_regular(false, None).map_err(drop)) else {
        return Ok(());
    };
    if !is_written_by_another(&file) {
        return Ok(());
    }
    Err(Error::environment(
        format!("put back {}", path.display()),
        "another program has it open to write",
        "end that, or give the copy a file of its own: --stdio where it is the output, --map OLD=NEW, a container",
    ))
}

/// Whether another program has `file` open to write: no lease to read can be had on it then. That is for its owner to ask for.
fn is_written_by_another(file: &File) -> bool {
    const F_SETSIG: libc::c_int = 10;
    let fd = file.as_raw_fd();
    // SAFETY: these take numbers. A signal that tells of whoever opens the file meanwhile is one that is ignored.
    unsafe {
        libc::fcntl(fd, F_SETSIG, libc::SIGURG);
        let leased = Errno::result(libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK));
        libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK);
        leased == Err(Errno::EAGAIN)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;
    use crate::restore::sample::ScratchDir;

    #[test]
    fn a_file_that_is_open_to_write_is_told_from_others() {
        let dir = ScratchDir::new();
        let path = dir.file("file", b"content");
        let here = File::open(&path).unwrap();
        assert!(!is_written_by_another(&here));
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        assert!(is_written_by_another(&here));
        drop(writer);
        assert!(!is_written_by_another(&here));
    }
}
