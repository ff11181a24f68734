//! Gives sockets the addresses that they had. A path leads to a file, which an earlier life of the job may have left behind.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};

use super::options;
use crate::image::{BoundFile, Socket};
use crate::net::{self, Address};

type Result<T> = std::result::Result<T, Errno>;

/// Binds sockets. The files of those that had been deleted are there while it exists, so that others can be connected with them.
#[derive(Debug, Default)]
pub struct Names {
    deleted: Vec<PathBuf>,
}

impl Names {
    /// A new socket like `socket`, bound as that was.
    ///
    /// # Errors
    /// `EADDRINUSE` if somebody has the address, `EEXIST` if a file is there that is no socket.
    pub fn bound(&mut self, socket: &Socket) -> Result<OwnedFd> {
        let handle = net::new(socket.family, socket.kind, socket.protocol)?;
        options::before_name(socket, handle.as_fd());
        let address = Address(&socket.name);
        if !address.is_named() || address.internet().is_some_and(|it| it.port() == 0) {
            return Ok(handle);
        }
        let Some(path) = address.path() else {
            net::bind(handle.as_fd(), &socket.name)?;
            return Ok(handle);
        };
        let path = PathBuf::from(OsStr::from_bytes(&socket.directory)).join(OsStr::from_bytes(path));
        match self.deleted.iter().position(|deleted| *deleted == path) {
            Some(place) => fs::remove_file(self.deleted.swap_remove(place)).map_err(errno)?,
            None => remove_if_dead(&path)?,
        }
        in_directory(&socket.directory, || net::bind(handle.as_fd(), &socket.name))?;
        match socket.bound_file {
            None => self.deleted.push(path),
            Some(file) => take_over(&path, file)?,
        }
        Ok(handle)
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        for path in self.deleted.drain(..) {
            if let Err(error) = fs::remove_file(&path) {
                log::warn!("the file {} stays, which had been deleted: {error}", path.display());
            }
        }
    }
}

/// Connects `socket` with `name`.
pub fn connect(socket: BorrowedFd<'_>, name: &[u8], directory: &[u8]) -> Result<()> {
    in_directory(directory, || net::connect(socket, name))
}

/// The address `name`, whose path may begin in `directory`, for who is elsewhere.
pub fn absolute(name: &[u8], directory: &[u8]) -> Vec<u8> {
    let Some(path) = Address(name).path().filter(|_| !directory.is_empty()) else { return name.to_vec() };
    let path = PathBuf::from(OsStr::from_bytes(directory)).join(OsStr::from_bytes(path));
    [&(libc::AF_UNIX as u16).to_ne_bytes(), path.as_os_str().as_bytes(), b"\0"].concat()
}

/// The file of a socket stays when nobody is behind it any more.
fn remove_if_dead(path: &Path) -> Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(Errno::EEXIST);
    }
    match is_alive(path)? {
        true => Err(Errno::EADDRINUSE),
        false => fs::remove_file(path).map_err(errno),
    }
}

fn is_alive(path: &Path) -> Result<bool> {
    let mut name = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
    name.extend(path.as_os_str().as_bytes());
    let probe = net::new(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 0)?;
    match net::connect(probe.as_fd(), &name) {
        Err(Errno::ECONNREFUSED) => Ok(false),
        // Another type than ours, which only a socket that is there has.
        Ok(()) | Err(Errno::EPROTOTYPE | Errno::EAGAIN) => Ok(true),
        Err(errno) => Err(errno),
    }
}

fn take_over(path: &Path, file: BoundFile) -> Result<()> {
    let now = fs::symlink_metadata(path).map_err(errno)?;
    if (now.uid(), now.gid()) != (file.user, file.group)
        && let Err(error) = lchown(path, Some(file.user), Some(file.group))
    {
        log::warn!("{} cannot be given to user {}: {error}", path.display(), file.user);
    }
    fs::set_permissions(path, Permissions::from_mode(file.mode)).map_err(errno)
}

/// Does `work` in `directory`, which only a thread of its own enters; where that is none, here.
fn in_directory<T: Send>(directory: &[u8], work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    if directory.is_empty() {
        return work();
    }
    let there = || {
        unshare(CloneFlags::CLONE_FS)?;
        nix::unistd::chdir(OsStr::from_bytes(directory))?;
        work()
    };
    // A panic aborts the process (see Cargo.toml), so a thread that ended has a result.
    std::thread::scope(|scope| scope.spawn(there).join().unwrap_or_else(|_| std::process::abort()))
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
