//! Gives sockets the addresses that they had. A path leads to a file, which an earlier life of the job may have left behind.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, fchownat};

use super::options;
use super::records::Records;
use crate::image::{BoundFile, FileKind, JobImage, Socket};
use crate::net::{self, Address};
use crate::restore::reach::{self, Holders, Rights, Spot};
use crate::without_links::Diverted;

type Result<T> = std::result::Result<T, Errno>;

/// Binds sockets. The files of those that had been deleted are there while it exists, so that others can be connected with them.
#[derive(Debug, Default)]
pub struct Names {
    holders: AddressHolders,
    /// Addresses of the internet that several sockets of the job are bound to.
    shared: Vec<Vec<u8>>,
    deleted: Vec<Spot>,
    /// Directories that are there while it exists, those of sockets that had been deleted with them.
    directories: Vec<Spot>,
}

/// By name and directory of an address, the rights of those that had a socket with it.
#[derive(Debug, Default)]
struct AddressHolders(Vec<(Vec<u8>, Vec<u8>, Vec<Rights>)>);

impl AddressHolders {
    fn of(job: &JobImage) -> AddressHolders {
        let holders = Holders::of(job);
        let sockets = job.objects.files.iter().enumerate().filter_map(|(index, file)| match &file.kind {
            FileKind::Socket(socket) => Some((socket.name.clone(), socket.directory.clone(), holders.of_file(index))),
            _ => None,
        });
        AddressHolders(sockets.collect())
    }

    /// Of an address that no socket of the job has, the rights are those of all.
    fn find(&self, name: &[u8], directory: &[u8]) -> Vec<Rights> {
        let has_it = |known: &&(Vec<u8>, Vec<u8>, Vec<Rights>)| known.0 == name && known.1 == directory;
        let mut found: Vec<Rights> = Vec::new();
        let all = match self.0.iter().any(|known| has_it(&known)) {
            true => self.0.iter().filter(has_it).collect::<Vec<_>>(),
            false => self.0.iter().collect(),
        };
        for rights in all.into_iter().flat_map(|(.., rights)| rights) {
            if !found.contains(rights) {
                found.push(rights.clone());
            }
        }
        found.sort_by_key(Rights::is_root);
        found
    }
}

impl Names {
    /// For the sockets of a job.
    pub fn of(all: &Records<'_>) -> Names {
        let bound = all.with_names_of_their_own().into_iter().map(|(_, socket)| &socket.name);
        let mut bound: Vec<_> = bound.filter(|name| Address(name).internet().is_some()).collect();
        bound.sort();
        let is_twice = |pair: &[&Vec<u8>]| (pair[0] == pair[1]).then(|| pair[0].clone());
        let shared = bound.windows(2).filter_map(is_twice).collect();
        let holders = AddressHolders::of(all.job());
        Names { holders, shared, deleted: Vec::new(), directories: Vec::new() }
    }

    /// A new socket like `socket`, bound as that was.
    ///
    /// # Errors
    /// `EADDRINUSE` if somebody has the address, `EEXIST` if a file is there that is no socket, `ELOOP` if a symbolic link is on
    /// the way that others can have put there.
    pub fn bound(&mut self, socket: &Socket) -> Result<OwnedFd> {
        let handle = net::new(socket.family, socket.kind, socket.protocol)?;
        options::before_name(socket, handle.as_fd());
        let address = Address(&socket.name);
        if !address.is_named() || address.internet().is_some_and(|it| it.port() == 0) {
            return Ok(handle);
        }
        let Some(path) = address.path() else {
            let lets_others_have_it =
                net::number_option(handle.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR).is_ok_and(|is| is != 0);
            // Those of UDP need no more than that.
            if self.shared.contains(&socket.name) && !(socket.kind == libc::SOCK_DGRAM && lets_others_have_it) {
                options::share_address(handle.as_fd());
            }
            net::bind(handle.as_fd(), &socket.name)?;
            return Ok(handle);
        };
        let path = PathBuf::from(OsStr::from_bytes(&socket.directory)).join(OsStr::from_bytes(path));
        let holders = self.holders.find(&socket.name, &socket.directory);
        if socket.bound_file.is_none() {
            self.make_directories(&path, &holders).map_err(errno)?;
        }
        let spot = spot_of(&path, &holders).map_err(errno)?;
        match self.deleted.iter().position(|deleted| deleted.path() == spot.path()) {
            Some(place) => self.deleted.swap_remove(place).remove().map_err(errno)?,
            None => remove_if_dead(&spot)?,
        }
        let bind = || in_directory(&socket.directory, || net::bind(handle.as_fd(), &socket.name));
        act_as_maker(&spot, &holders, bind)?;
        match socket.bound_file {
            None => self.deleted.push(spot),
            Some(file) => take_over(&spot, file)?,
        }
        Ok(handle)
    }

    /// Makes what is missing on the way to `path`, for as long as this exists.
    fn make_directories(&mut self, path: &Path, holders: &[Rights]) -> io::Result<()> {
        let above: Vec<&Path> = path.ancestors().skip(1).collect();
        for directory in above.into_iter().rev().filter(|directory| directory.parent().is_some()) {
            match directory.symlink_metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                _ => continue,
            }
            let spot = spot_of(directory, holders)?;
            spot.make_directory()?;
            self.directories.push(spot);
        }
        Ok(())
    }

    /// Connects `socket` with the address of `other`, as one of those that had a socket with it.
    pub fn connect(&self, socket: BorrowedFd<'_>, other: &Socket, directory: &[u8]) -> Result<()> {
        connect(socket, &other.name, directory, &self.holders.find(&other.name, directory))
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        for spot in self.deleted.drain(..) {
            if let Err(error) = spot.remove() {
                log::warn!("the file {} stays, which had been deleted: {error}", spot.path().display());
            }
        }
        for spot in self.directories.drain(..).rev() {
            if let Err(error) = spot.remove_directory() {
                log::warn!("the directory {} stays, which had been deleted: {error}", spot.path().display());
            }
        }
    }
}

/// Connects `socket` with `name`, with the rights of one of its `holders`.
pub fn connect(socket: BorrowedFd<'_>, name: &[u8], directory: &[u8], holders: &[Rights]) -> Result<()> {
    let family = net::option(socket, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
    let family = family.first_chunk().map_or(libc::AF_UNSPEC, |&family| i32::from_ne_bytes(family));
    // A server of both families is reached by either.
    let other = Address(name).for_family(family);
    let name = other.as_deref().unwrap_or(name);
    let connect = || in_directory(directory, || net::connect(socket, name)).map_err(io::Error::from);
    Rights::act_as_any(holders, connect).map_err(errno)
}

/// The address `name`, whose path may begin in `directory`, for who is elsewhere.
pub fn absolute(name: &[u8], directory: &[u8]) -> Vec<u8> {
    let Some(path) = Address(name).path().filter(|_| !directory.is_empty()) else { return name.to_vec() };
    let path = PathBuf::from(OsStr::from_bytes(directory)).join(OsStr::from_bytes(path));
    [&(libc::AF_UNIX as u16).to_ne_bytes(), path.as_os_str().as_bytes(), b"\0"].concat()
}

/// The place of a socket's file. The path is the one that the program said, so links may be on it; where a process that is root had
/// the socket, only such that others cannot have put there.
fn spot_of(path: &Path, holders: &[Rights]) -> io::Result<Spot> {
    const LINKS_MAX: u32 = 40;
    let is_able = !holders.iter().any(|rights| !rights.is_root());
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let ancestors: Vec<PathBuf> = path.ancestors().skip(1).map(Path::to_owned).collect();
        let link = ancestors.iter().rev().find_map(|prefix| Some((prefix, fs::read_link(prefix).ok()?)));
        let Some((link, target)) = link else { return Spot::reach(&path, holders) };
        if is_able && nix::unistd::geteuid().is_root() && !reach::is_out_of_others_reach(link) {
            let why = format!("the symbolic link {} is on its path, which others can have put there", link.display());
            return Err(Diverted::error(why, "remove the link"));
        }
        let rest = path.strip_prefix(link).map_err(io::Error::other)?.to_owned();
        path = normal(&link.parent().unwrap_or(link).join(target)).join(rest);
    }
    Err(Errno::ELOOP.into())
}

/// A path without `.` and `..`, on which there are no links before them.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => drop(normal.pop()),
            component => normal.push(component),
        }
    }
    normal
}

/// Has the kernel make the file of a socket at `spot`: with the rights of one of its `holders`. Where that is root and others can
/// change the path in this moment, with no more than the rights of the owner of its directory.
fn act_as_maker(spot: &Spot, holders: &[Rights], bind: impl Fn() -> Result<()>) -> Result<()> {
    let mut denied = Errno::EACCES;
    for rights in holders {
        let owner = match rights.is_root() && !reach::is_out_of_others_reach(spot.path()) {
            true => spot.rights_of_owner().map_err(errno)?,
            false => None,
        };
        match act(owner.as_ref().unwrap_or(rights), &bind) {
            Err(errno @ (Errno::EACCES | Errno::EPERM)) => denied = errno,
            outcome => return outcome,
        }
    }
    Err(denied)
}

fn act<T>(rights: &Rights, work: impl FnOnce() -> Result<T>) -> Result<T> {
    rights.act(|| work().map_err(io::Error::from)).map_err(errno)
}

/// The file of a socket stays when nobody is behind it any more.
fn remove_if_dead(spot: &Spot) -> Result<()> {
    let Ok(found) = spot.itself() else { return Ok(()) };
    if !found.metadata().map_err(errno)?.file_type().is_socket() {
        return Err(Errno::EEXIST);
    }
    match is_alive(&found)? {
        true => Err(Errno::EADDRINUSE),
        false => spot.remove().map_err(errno),
    }
}

fn is_alive(found: &fs::File) -> Result<bool> {
    let mut name = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
    name.extend(format!("/proc/self/fd/{}", found.as_raw_fd()).bytes());
    let probe = net::new(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 0)?;
    match net::connect(probe.as_fd(), &name) {
        Err(Errno::ECONNREFUSED) => Ok(false),
        // Another type than ours, which only a socket that is there has.
        Ok(()) | Err(Errno::EPROTOTYPE | Errno::EAGAIN) => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// Gives the file of a socket its owner and rights.
fn take_over(spot: &Spot, file: BoundFile) -> Result<()> {
    let made = spot.itself().map_err(errno)?;
    let now = made.metadata().map_err(errno)?;
    if !now.file_type().is_socket() {
        return Err(Errno::EEXIST);
    }
    let owner = (Some(Uid::from_raw(file.user)), Some(Gid::from_raw(file.group)));
    if (now.uid(), now.gid()) != (file.user, file.group)
        && let Err(error) = fchownat(&made, c"", owner.0, owner.1, AtFlags::AT_EMPTY_PATH)
    {
        log::warn!("{} cannot be given to user {}: {error}", spot.path().display(), file.user);
    }
    // A descriptor that is only a path has its mode changed by no other name.
    let link = format!("/proc/self/fd/{}", made.as_raw_fd());
    fs::set_permissions(link, Permissions::from_mode(file.mode)).map_err(errno)
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

/// The number of an error; of a path that leads elsewhere, that of a symbolic link.
fn errno(error: io::Error) -> Errno {
    let diverted = error.get_ref().is_some_and(|inner| inner.is::<Diverted>());
    if diverted {
        log::warn!("{error}");
    }
    Errno::from_raw(error.raw_os_error().unwrap_or(if diverted { libc::ELOOP } else { libc::EIO }))
}
