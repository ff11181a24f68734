//! Files that ckpt makes or writes to for a person, at a path that may lead through directories of others.
//!
//! Whoever owns a directory puts links into it. So a link on the way counts only if it is root's or our own user's, all others are
//! refused; and what is written is a regular file of ours that has no second name. What is made is its owner's alone.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use crate::host;

/// As many as the kernel follows.
const LINKS_MAX: usize = 40;

/// Opens the file at `path` to be appended to, or makes it.
///
/// # Errors
/// The system's, and where it is a link of somebody else's, no regular file, not ours, or has another name.
pub fn append(path: &Path) -> io::Result<File> {
    let file = open(path, OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT)?;
    let found = file.metadata()?;
    match () {
        () if !found.is_file() => Err(refused("it is not a regular file".to_owned())),
        () if found.uid() != geteuid().as_raw() => Err(refused(format!("it belongs to user {}", found.uid()))),
        () if found.nlink() > 1 => Err(refused("it has another name (a hard link)".to_owned())),
        () => Ok(file),
    }
}

/// Opens what is at `path`. What is made is ours alone. It never waits, as it would for the other end of a named pipe.
///
/// # Errors
/// The system's, and where a link of somebody else's is on the way.
pub fn open(path: &Path, flags: OFlag) -> io::Result<File> {
    let (directory, name) = walk(path, true)?;
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    Ok(File::from(openat(&directory, name.as_os_str(), flags, private())?))
}

/// A new file that gets its name when it is complete. Dropped before, it leaves nothing.
#[derive(Debug)]
pub struct Unfinished {
    directory: OwnedFd,
    name: OsString,
    partial: OsString,
    /// To be written to.
    pub file: File,
}

impl Unfinished {
    /// Makes the file that will be at `path`. Until then it has `suffix` behind its name.
    ///
    /// # Errors
    /// As [`open`].
    pub fn create(path: &Path, suffix: &str) -> io::Result<Unfinished> {
        let (directory, name) = walk(path, false)?;
        let mut partial = name.clone();
        partial.push(suffix);
        remove(&directory, &partial)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = File::from(openat(&directory, partial.as_os_str(), flags, private())?);
        Ok(Unfinished { directory, name, partial, file })
    }

    /// Gives it its name, in place of what has that.
    ///
    /// # Errors
    /// The system's.
    pub fn publish(&self) -> io::Result<()> {
        Ok(renameat(&self.directory, self.partial.as_os_str(), &self.directory, self.name.as_os_str())?)
    }

    /// Removes what has the name.
    ///
    /// # Errors
    /// The system's, unless nothing has it.
    pub fn remove_published(&self) -> io::Result<()> {
        remove(&self.directory, &self.name)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // It has its name, or is of no use.
        let _ = remove(&self.directory, &self.partial);
    }
}

fn remove(directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::ENOENT) => Ok(()),
        outcome => Ok(outcome?),
    }
}

fn private() -> Mode {
    Mode::S_IRUSR | Mode::S_IWUSR
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// The directory that `path` leads to, and the name in there; `follows`: where that is a link, what it leads to.
fn walk(path: &Path, follows: bool) -> io::Result<(OwnedFd, OsString)> {
    let mut place = start_of(path)?;
    let mut ahead = names_of(path);
    let mut links = 0;
    while let Some(name) = ahead.pop_front() {
        let is_last = ahead.is_empty();
        let link = if is_last && !follows { None } else { link_at(&place, &name)? };
        match link {
            Some(target) => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::ELOOP.into());
                }
                if target.is_absolute() {
                    place = start_of(&target)?;
                }
                names_of(&target).into_iter().rev().for_each(|name| ahead.push_front(name));
            }
            None if is_last => return Ok((place, name)),
            None => place = directory_at(&place, &name)?,
        }
    }
    Ok((place, ".".into()))
}

fn start_of(path: &Path) -> io::Result<OwnedFd> {
    let start = if path.is_absolute() { "/" } else { "." };
    Ok(openat(AT_FDCWD, start, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?)
}

fn names_of(path: &Path) -> VecDeque<OsString> {
    let is_name = |component: &Component<'_>| matches!(component, Component::Normal(_) | Component::ParentDir);
    path.components().filter(is_name).map(|component| component.as_os_str().to_owned()).collect()
}

/// O_DIRECTORY also has an automounter mount what is there.
fn directory_at(place: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(place, name, flags, Mode::empty())?)
}

/// Where the link `name` leads; `None` if it is no link or not there.
fn link_at(place: &OwnedFd, name: &OsStr) -> io::Result<Option<PathBuf>> {
    let found = match openat(place, name, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty()) {
        Err(Errno::ENOENT) => return Ok(None),
        opened => opened?,
    };
    let status = fstat(&found)?;
    if SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT != SFlag::S_IFLNK {
        return Ok(None);
    }
    let target = readlinkat(&found, "")?;
    if !is_trusted(status.st_uid) {
        let name = name.display();
        return Err(refused(format!(
            "the link {name} on the way belongs to user {}; name where it leads",
            status.st_uid
        )));
    }
    Ok(Some(target.into()))
}

/// Whether links of this user are followed: root's, our own, and in a user namespace those of users outside, root among them, who
/// cannot be told from each other there.
fn is_trusted(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw() || host::is_user_from_outside(user)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use nix::unistd::mkfifo;

    use super::*;

    const OTHER: u32 = 65534;

    #[test]
    fn what_is_made_is_its_owners_alone_and_there_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        let unfinished = Unfinished::create(&path, ".partial").unwrap();
        (&unfinished.file).write_all(b"text").unwrap();
        assert!(!path.exists() && dir.path().join("new.partial").exists());
        unfinished.publish().unwrap();
        drop(unfinished);
        assert_eq!(fs::read(&path).unwrap(), b"text");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        drop(Unfinished::create(&path, ".partial").unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "what is given up leaves nothing");
    }

    #[test]
    fn a_link_at_the_unfinished_name_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("new"), dir.path().join("target"));
        fs::write(&target, "kept").unwrap();
        symlink(&target, dir.path().join("new.partial")).unwrap();
        let unfinished = Unfinished::create(&path, ".partial").unwrap();
        (&unfinished.file).write_all(b"text").unwrap();
        unfinished.publish().unwrap();
        assert_eq!((fs::read(&target).unwrap(), fs::read(&path).unwrap()), (b"kept".to_vec(), b"text".to_vec()));
    }

    #[test]
    fn own_links_are_followed_wherever_they_are_on_the_way() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("real")).unwrap();
        symlink("real", dir.path().join("relative")).unwrap();
        symlink(dir.path().join("relative/../relative"), dir.path().join("absolute")).unwrap();
        symlink("absolute/log", dir.path().join("log")).unwrap();
        append(&dir.path().join("log")).unwrap().write_all(b"1").unwrap();
        append(&dir.path().join("absolute/log")).unwrap().write_all(b"2").unwrap();
        assert_eq!(fs::read(dir.path().join("real/log")).unwrap(), b"12");
    }

    #[test]
    fn links_in_a_circle_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        symlink("b", dir.path().join("a")).unwrap();
        symlink("a", dir.path().join("b")).unwrap();
        assert_eq!(append(&dir.path().join("a")).unwrap_err().raw_os_error(), Some(libc::ELOOP));
    }

    #[test]
    fn links_of_another_user_are_refused_by_name() {
        if !geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        fs::write(&target, "kept").unwrap();
        for (name, leads_to, path) in [("file", "target", "file"), ("folder", ".", "folder/target")] {
            symlink(leads_to, dir.path().join(name)).unwrap();
            lchown(dir.path().join(name), Some(OTHER), None).unwrap();
            let error = append(&dir.path().join(path)).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("65534"), "{error}");
        }
        let error = Unfinished::create(&dir.path().join("folder/new"), ".partial").unwrap_err().to_string();
        assert!(error.contains("folder"), "{error}");
        assert_eq!(fs::read(&target).unwrap(), b"kept");
    }

    #[test]
    fn a_log_is_a_regular_file_of_ours_with_one_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        mkfifo(&path("pipe"), Mode::S_IRWXU).unwrap();
        assert!(append(&path("pipe")).is_err(), "nobody reads it");
        let reader =
            File::from(nix::fcntl::open(&path("pipe"), OFlag::O_RDONLY | OFlag::O_NONBLOCK, Mode::empty()).unwrap());
        assert!(append(&path("pipe")).unwrap_err().to_string().contains("regular"));
        drop(reader);
        assert!(append(Path::new("/dev/null")).unwrap_err().to_string().contains("regular"));
        fs::write(path("first"), "").unwrap();
        fs::hard_link(path("first"), path("second")).unwrap();
        assert!(append(&path("second")).unwrap_err().to_string().contains("another name"));
        if geteuid().is_root() {
            fs::write(path("others"), "").unwrap();
            lchown(path("others"), Some(OTHER), None).unwrap();
            assert!(append(&path("others")).unwrap_err().to_string().contains("user 65534"));
        }
        assert!(append(dir.path()).is_err());
        append(&path("log")).unwrap();
    }
}
