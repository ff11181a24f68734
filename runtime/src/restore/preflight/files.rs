//! Are the files what the memory remembers.
//!
//! A file whose content is in the checkpoint may be as it likes: it is put back. Of all others: one that was open for writing may have grown since (the program ran on): it is cut back when the restart is
//! certain to succeed. It must not have shrunk. A file that was open for reading only must be unchanged, unless the
//! program itself had it open for writing as well. A missing file is made again only if it was empty. The files that describe a
//! host may be those of another host: each container has such files, bound over those of its image.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::error::{Error, Result};
use crate::image::{FileKind, JobImage, OpenFile, ProcessImage, path_of};
use crate::proc::is_the_kernels;
use crate::restore::directories;
use crate::restore::fanotify;
use crate::restore::open_files::identity;
use crate::restore::paths::reopened_path;
use crate::restore::reach::{self, Holders, Identity, Rights, Spot};

const WHAT: &str = "restart";
const RESTORE_IT: &str = "put the file back as it was at the checkpoint";

/// Files that are the host's, and not the program's: container runtimes write them when a container starts.
const OF_THE_HOST: [&str; 6] =
    ["/etc/group", "/etc/hostname", "/etc/hosts", "/etc/machine-id", "/etc/passwd", "/etc/resolv.conf"];

/// Checks the working directories and every file that is reopened by its path.
pub fn check(job: &JobImage, force: bool) -> Result<()> {
    let objects = &job.objects;
    let holders = Holders::of(job);
    let is_captured = |path: &[u8]| objects.captured_files.iter().any(|file| file.path == path);
    let is_made_anew = |process: &&ProcessImage| {
        process.working_directory_removed.is_some() || is_captured(&process.working_directory)
    };
    for process in job.processes.iter().filter(|process| !is_made_anew(process)) {
        check_directory(job, path_of(&process.working_directory), &[Rights::of(process)])?;
    }
    for process in job.processes.iter().filter(|process| !process.root_directory.is_empty()) {
        check_directory(job, path_of(&process.root_directory), &[Rights::of(process)])?;
    }
    let reopened = objects.files.iter().enumerate().filter(|(_, file)| !reopened_path(file).is_some_and(is_captured));
    reopened.into_iter().try_for_each(|(index, file)| check_file(job, file, &holders.of_file(index), force))
}

/// What `path` leads to for its `holders`.
fn look(path: &Path, holders: &[Rights], identity: Option<Identity>) -> io::Result<Metadata> {
    reach::open(path, libc::O_PATH, holders, identity)?.metadata()
}

fn check_file(job: &JobImage, file: &OpenFile, holders: &[Rights], force: bool) -> Result<()> {
    let objects = &job.objects;
    match &file.kind {
        FileKind::Regular { path, .. } | FileKind::Directory { path, .. } if is_the_kernels(path_of(path)) => Ok(()),
        FileKind::Regular { path, size, modified_ns, .. } => {
            let written = objects.files.iter().any(|other| other.is_writable() && same_file(other, file));
            let captured = Captured { size: *size, modified_ns: *modified_ns, written };
            let look = |path: &Path| look(path, holders, identity(&file.kind));
            let is_made = |path: &Path| directories::is_made(job, path);
            let may_differ = force || file.is_path_only() || is_of_the_host(path_of(path));
            check_regular(path_of(path), captured, may_differ, look, is_made)
        }
        FileKind::Directory { removed: Some(_), .. } => Ok(()),
        FileKind::Directory { path, .. } => check_directory(job, path_of(path), holders),
        FileKind::Named { path, format, target } => check_named(job, path, (*format, target), holders),
        FileKind::Device { path } => check_device(path_of(path), holders),
        FileKind::Unlinked { .. } | FileKind::Standard { .. } | FileKind::Pipe { .. } => Ok(()),
        FileKind::EventFd { .. } | FileKind::TimerFd { .. } | FileKind::SignalFd { .. } => Ok(()),
        FileKind::Epoll { .. } | FileKind::IoUring(_) | FileKind::Socket(_) => Ok(()),
        FileKind::PidFd { .. } | FileKind::OfProcess { .. } => Ok(()),
        FileKind::Inotify { watches } => {
            watches.iter().try_for_each(|watch| check_watched(job, path_of(&watch.path), holders))
        }
        FileKind::Fanotify(group) => {
            fanotify::empty(group)?;
            group.marks.iter().try_for_each(|mark| check_watched(job, path_of(&mark.path), holders))
        }
        FileKind::MessageQueue { .. } => Ok(()),
        FileKind::TerminalMaster { .. } | FileKind::Terminal { .. } | FileKind::HungUpTerminal { .. } => Ok(()),
    }
}

/// Whether the content of a file is that of whatever host the program is on.
fn is_of_the_host(path: &Path) -> bool {
    OF_THE_HOST.iter().any(|name| Path::new(name) == path)
}

fn same_file(one: &OpenFile, other: &OpenFile) -> bool {
    match (&one.kind, &other.kind) {
        (FileKind::Regular { device, inode, .. }, FileKind::Regular { device: d, inode: i, .. }) => {
            (device, inode) == (d, i)
        }
        _ => false,
    }
}

/// What is known of a regular file.
#[derive(Clone, Copy)]
struct Captured {
    size: u64,
    modified_ns: i64,
    /// Whether the program had it open for writing.
    written: bool,
}

fn check_regular(
    path: &Path,
    captured: Captured,
    force: bool,
    look: impl Fn(&Path) -> io::Result<Metadata>,
    is_made: impl Fn(&Path) -> bool,
) -> Result<()> {
    let refuse = |why: String| Err(Error::environment(WHAT, format!("{} {why}", path.display()), RESTORE_IT));
    let metadata = match look(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound && captured.size == 0 => {
            let directory = path.parent().unwrap_or(Path::new("/"));
            return match look(directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && is_made(directory) => Ok(()),
                found => refuse_other(directory, found, Metadata::is_dir, "a directory", "make the directory"),
            };
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return refuse(format!("is missing; it had {} bytes at the checkpoint", captured.size));
        }
        Err(error) => return Err(reach::failed("examine", path, error)),
    };
    if !metadata.is_file() {
        return refuse("is no longer a regular file".into());
    }
    let is_same = (metadata.len(), modified_ns(&metadata)) == (captured.size, captured.modified_ns);
    if is_of_the_host(path) && !captured.written && !is_same {
        log::info!("{} is that of this host, and not of that of the checkpoint", path.display());
    }
    if captured.written && metadata.len() < captured.size {
        return refuse(format!("has {} bytes, at the checkpoint it had {}", metadata.len(), captured.size));
    }
    if !captured.written && !force && !is_same {
        let difference = match metadata.len() {
            bytes if bytes == captured.size => "its time of modification is another".to_owned(),
            bytes => format!("{} bytes then, {bytes} now", captured.size),
        };
        let why = format!("{} has changed since the checkpoint ({difference})", path.display());
        return Err(Error::environment(WHAT, why, format!("{RESTORE_IT}, or accept it with --force")));
    }
    Ok(())
}

fn modified_ns(metadata: &Metadata) -> i64 {
    metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec()
}

fn check_directory(job: &JobImage, path: &Path, holders: &[Rights]) -> Result<()> {
    match look(path, holders, None) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && directories::is_made(job, path) => Ok(()),
        found => refuse_other(path, found, Metadata::is_dir, "a directory", "make the directory"),
    }
}

fn check_watched(job: &JobImage, path: &Path, holders: &[Rights]) -> Result<()> {
    let is_captured = job.objects.captured_files.iter().any(|file| path_of(&file.path) == path);
    match look(path, holders, None) {
        _ if is_captured => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && directories::is_made(job, path) => Ok(()),
        found => refuse_other(path, found, |_| true, "there", "put it back, because the program watches it"),
    }
}

fn check_named(job: &JobImage, path: &[u8], (format, target): (u32, &[u8]), holders: &[Rights]) -> Result<()> {
    let mut fifos = job.objects.pipes.iter().filter_map(|pipe| pipe.fifo.as_ref());
    // The restart is about to make the job's own.
    if format == libc::S_IFSOCK || fifos.any(|fifo| fifo.path == path) {
        return Ok(());
    }
    let path = path_of(path);
    let found = Spot::reach(path, holders).and_then(|spot| spot.look().map(|metadata| (spot, metadata)));
    let (spot, metadata) = match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::environment(WHAT, format!("{} is missing", path.display()), "put it back"));
        }
        found => found.map_err(|source| reach::failed("reopen", path, source))?,
    };
    let leads_there = || format != libc::S_IFLNK || spot.link_target().is_ok_and(|now| now == target);
    if metadata.mode() & libc::S_IFMT == format && leads_there() {
        return Ok(());
    }
    let why = format!("{} is not what it was, or leads elsewhere", path.display());
    Err(Error::environment(WHAT, why, "put it back as it was at the checkpoint"))
}

fn check_device(path: &Path, holders: &[Rights]) -> Result<()> {
    let is_device = |metadata: &Metadata| metadata.file_type().is_char_device();
    refuse_other(path, look(path, holders, None), is_device, "a character device", "restart where the device exists")
}

fn refuse_other(
    path: &Path,
    found: io::Result<Metadata>,
    is_it: impl Fn(&Metadata) -> bool,
    wanted: &str,
    advice: &str,
) -> Result<()> {
    match found {
        Ok(metadata) if is_it(&metadata) => Ok(()),
        Ok(_) => Err(Error::environment(WHAT, format!("{} is not {wanted}", path.display()), advice)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Error::environment(WHAT, format!("{} is missing", path.display()), advice))
        }
        Err(source) => Err(reach::failed("find", path, source)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::restore::sample::ScratchDir;

    fn seen(path: &Path) -> io::Result<Metadata> {
        fs::metadata(path)
    }

    fn captured(path: &Path, written: bool) -> Captured {
        let metadata = fs::metadata(path).unwrap();
        Captured { size: metadata.len(), modified_ns: modified_ns(&metadata), written }
    }

    #[test]
    fn a_file_open_for_writing_may_have_grown_but_not_shrunk() {
        let dir = ScratchDir::new();
        let path = dir.file("log", b"12345");
        let before = captured(&path, true);
        fs::write(&path, b"1234567").unwrap();
        check_regular(&path, before, false, seen, |_| false).unwrap();
        fs::write(&path, b"1234").unwrap();
        let message = check_regular(&path, before, true, seen, |_| false).unwrap_err().to_string();
        assert!(message.contains("has 4 bytes, at the checkpoint it had 5"), "{message}");
    }

    #[test]
    fn a_file_open_for_reading_must_be_unchanged_or_forced() {
        let dir = ScratchDir::new();
        let path = dir.file("input", b"12345");
        let mut before = captured(&path, false);
        check_regular(&path, before, false, seen, |_| false).unwrap();
        before.modified_ns -= 1;
        assert!(
            check_regular(&path, before, false, seen, |_| false).unwrap_err().to_string().contains("input has changed")
        );
        check_regular(&path, before, true, seen, |_| false).unwrap();
    }

    #[test]
    fn files_of_the_host_may_be_those_of_another() {
        assert!(is_of_the_host(Path::new("/etc/hosts")) && !is_of_the_host(Path::new("/etc/hosts.allow")));
        assert!(!is_of_the_host(Path::new("/work/etc/hosts")));
        let text = fs::read_to_string("/etc/hosts").map_or(0, |text| text.len() as u64);
        let kind = |path: &[u8], size| FileKind::Regular {
            path: path.to_vec(),
            device: (0, 0),
            inode: 1,
            size,
            offset: 1,
            modified_ns: 1,
        };
        let mut job = crate::restore::sample::job(&crate::restore::host::Machine::this().unwrap());
        job.objects.files = vec![OpenFile { kind: kind(b"/etc/hosts", text + 1), flags: libc::O_RDONLY }];
        check(&job, false).unwrap();
        let dir = ScratchDir::new();
        let other = dir.file("hosts", b"12345");
        let kind = kind(other.as_os_str().as_encoded_bytes(), 1);
        job.objects.files = vec![OpenFile { kind, flags: libc::O_RDONLY }];
        check(&job, false).unwrap_err();
    }

    #[test]
    fn a_missing_file_is_made_again_only_if_it_was_empty() {
        let dir = ScratchDir::new();
        let path = dir.path().join("missing");
        let file = |size, written| Captured { size, modified_ns: 0, written };
        check_regular(&path, file(0, true), false, seen, |_| false).unwrap();
        check_regular(&path, file(0, false), false, seen, |_| false).unwrap();
        check_regular(&path, file(3, false), false, seen, |_| false).unwrap_err();
        assert!(
            check_regular(&path, file(3, true), true, seen, |_| false)
                .unwrap_err()
                .to_string()
                .contains("it had 3 bytes")
        );
    }
}
