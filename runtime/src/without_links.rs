//! Opening by a path that no symbolic link may lead elsewhere.
//!
//! The kernel resolves the paths that an image records, so at the checkpoint no link was on them. A link that is there later was put
//! there by the owner of a directory on the way, who may be anybody.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;

/// Why a path is not used: it leads elsewhere than at the checkpoint.
#[derive(Debug, thiserror::Error)]
#[error("{why}; {advice}")]
pub struct Diverted {
    /// What is in the way.
    pub why: String,
    /// What the user can do.
    pub advice: String,
}

impl Diverted {
    /// As an error of a system call.
    pub fn error(why: impl Into<String>, advice: impl Into<String>) -> io::Error {
        io::Error::other(Diverted { why: why.into(), advice: advice.into() })
    }
}

/// How often a path is resolved while others rename what it goes through.
const ATTEMPTS: u32 = 16;

/// Opens `path`, which is absolute, with the `O_*` flags `flags`; a file that is made (`O_CREAT`) gets `mode`.
///
/// # Errors
/// Those of open(2). Where a symbolic link is on the path, or in its place, the error names the link.
pub fn open(path: &Path, flags: i32, mode: u32) -> io::Result<File> {
    if !path.is_absolute() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    open_from(AT_FDCWD, path.as_os_str(), flags, mode).map(File::from).map_err(|errno| explained(errno, path))
}

/// Opens `name` in `directory`, if it is no symbolic link (`ELOOP`); the rest is as above.
pub fn open_at(directory: &impl AsFd, name: &OsStr, flags: i32, mode: u32) -> io::Result<File> {
    // With O_NOFOLLOW, O_PATH would open the link.
    let opened = open_from(directory, name, flags & !libc::O_NOFOLLOW, mode);
    Ok(File::from(opened?))
}

/// `error`, which opening `path` has given, in words if a symbolic link is in the way.
pub fn explain(error: io::Error, path: &Path) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ELOOP) => explained(Errno::ELOOP, path),
        _ => error,
    }
}

fn open_from(directory: impl AsFd, path: &OsStr, flags: i32, mode: u32) -> nix::Result<OwnedFd> {
    // The call refuses what open(2) ignores.
    let makes = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
    let mode = if makes { mode & 0o7777 } else { 0 };
    let path_only = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let flags = if flags & libc::O_PATH != 0 { flags & path_only } else { flags };
    let how = OpenHow::new()
        .flags(OFlag::from_bits_retain(flags | libc::O_CLOEXEC))
        .mode(Mode::from_bits_truncate(mode))
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    for _ in 1..ATTEMPTS {
        match openat2(&directory, path, how) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            outcome => return outcome,
        }
    }
    openat2(directory, path, how)
}

fn explained(errno: Errno, path: &Path) -> io::Error {
    match errno {
        Errno::ELOOP => match link_on(path) {
            Some((link, target)) => {
                let place = link.parent().unwrap_or(&link).join(&target);
                let (link, target) = (link.display(), target.display());
                let why = format!("{link} is a symbolic link to {target} now, and was none at the checkpoint");
                Diverted::error(why, format!("remove the link, or give --map {link}={}", place.display()))
            }
            None => errno.into(),
        },
        errno => errno.into(),
    }
}

/// The first symbolic link on `path`, and where it leads to.
fn link_on(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut ancestors: Vec<&Path> = path.ancestors().collect();
    ancestors.reverse();
    ancestors.into_iter().find_map(|prefix| Some((prefix.to_owned(), fs::read_link(prefix).ok()?)))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_on_the_way_or_at_the_end_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path().canonicalize().unwrap();
        fs::create_dir(top.join("directory")).unwrap();
        fs::write(top.join("directory/file"), "content").unwrap();
        symlink("directory", top.join("link")).unwrap();
        symlink("file", top.join("directory/alias")).unwrap();

        let mut read = String::new();
        open(&top.join("directory/file"), libc::O_RDONLY, 0).unwrap().read_to_string(&mut read).unwrap();
        assert_eq!(read, "content");
        for (path, link) in [("link/file", "link is a symbolic link to directory"), ("directory/alias", "alias is a")] {
            let said = open(&top.join(path), libc::O_RDONLY, 0).unwrap_err().to_string();
            assert!(said.contains(link), "{path}: {said}");
        }
        let directory = open(&top.join("directory"), libc::O_PATH | libc::O_DIRECTORY, 0).unwrap();
        for flags in [libc::O_RDONLY, libc::O_PATH, libc::O_PATH | libc::O_NOFOLLOW] {
            let error = open_at(&directory, OsStr::new("alias"), flags, 0).unwrap_err();
            let said = explain(error, &top.join("directory/alias")).to_string();
            assert!(said.contains("alias is a symbolic link to file"), "{said}");
            assert!(said.contains(&format!("{0}/alias={0}/file", top.join("directory").display())), "{said}");
        }
        assert_eq!(open(&top.join("none"), libc::O_RDONLY, 0).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn flags_and_modes_mean_what_they_mean_to_open() {
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path().canonicalize().unwrap();
        let made = open(&top.join("made"), libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o640).unwrap();
        assert!(made.metadata().unwrap().is_file());
        let directory = open(&top, libc::O_PATH | libc::O_DIRECTORY | libc::O_NONBLOCK, 0o777).unwrap();
        open_at(&directory, OsStr::new("made"), libc::O_RDONLY, 0o777).unwrap();
        assert!(open(&top, libc::O_TMPFILE | libc::O_RDWR, 0o600).unwrap().metadata().unwrap().is_file());
    }
}
