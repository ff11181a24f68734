//! The sockets of a job as the image has them.

use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::image::{FileKind, JobImage, ProcessImage, Socket, SocketLink};
use crate::net::Address;
use crate::restore::reach::{Holders, Rights};

/// The records of all sockets of a job, by index of their file.
pub struct Records<'a> {
    job: &'a JobImage,
    holders: Holders<'a>,
}

impl<'a> Records<'a> {
    pub fn of(job: &'a JobImage) -> Records<'a> {
        Records { job, holders: Holders::of(job) }
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &'a Socket)> + use<'a> {
        self.job.objects.files.iter().enumerate().filter_map(|(index, file)| match &file.kind {
            FileKind::Socket(socket) => Some((index as u32, socket.as_ref())),
            _ => None,
        })
    }

    pub fn get(&self, file: u32) -> Option<&'a Socket> {
        match &self.job.objects.files.get(file as usize)?.kind {
            FileKind::Socket(socket) => Some(socket),
            _ => None,
        }
    }

    /// Those that were given an address themselves; first those whose file has been deleted, which others may have taken the
    /// place of.
    pub fn with_names_of_their_own(&self) -> Vec<(u32, &'a Socket)> {
        let is_bound = |socket: &Socket| {
            let listens = matches!(socket.link, SocketLink::Listening { .. });
            listens || (self.is_connectionless(socket) && Address(&socket.name).is_named())
        };
        let mut found: Vec<_> = self.iter().filter(|(_, socket)| is_bound(socket)).collect();
        found.sort_by_key(|(_, socket)| socket.bound_file.is_some());
        found
    }

    /// Whether it sends to another by its name, and is not one of a pair.
    pub fn is_directed(&self, socket: &Socket) -> bool {
        let SocketLink::Peer { file } = socket.link else { return false };
        self.is_connectionless(socket) && self.get(file).is_some_and(|peer| Address(&peer.name).is_named())
    }

    pub fn is_connectionless(&self, socket: &Socket) -> bool {
        !matches!(socket.kind, libc::SOCK_STREAM | libc::SOCK_SEQPACKET)
    }

    /// The job that they are of.
    pub fn job(&self) -> &'a JobImage {
        self.job
    }

    /// The rights of those that had the socket that is file `file`.
    pub fn rights(&self, file: u32) -> Vec<Rights> {
        self.holders.of_file(file as usize)
    }

    /// What a message calls the socket that is file `file`.
    pub fn shown(&self, file: u32) -> String {
        let descriptors =
            |process: &'a ProcessImage| process.descriptors.iter().map(move |descriptor| (process.pid, descriptor));
        let found = self.job.processes.iter().flat_map(descriptors).find(|(_, descriptor)| descriptor.file == file);
        match found {
            Some((pid, descriptor)) => format!("the socket that is descriptor {} of process {pid}", descriptor.number),
            None => "a socket that is on its way between processes".into(),
        }
    }

    pub fn failed(&self, file: u32, source: Errno) -> Error {
        let address = self.get(file).map(|socket| Address(&socket.name).to_string()).unwrap_or_default();
        let what = format!("make {} again ({address})", self.shown(file));
        match source {
            Errno::EADDRINUSE => {
                Error::environment(what, "its address is in use", "end the program that has it, or wait until it ends")
            }
            Errno::EADDRNOTAVAIL => Error::environment(
                what,
                "this machine does not have the address",
                "name one that it has: --map-address OLD=NEW",
            ),
            Errno::EACCES | Errno::EPERM => Error::environment(what, "this user may not", "restart as a user who may"),
            Errno::ELOOP => Error::environment(
                what,
                "a symbolic link is on its path, which others can have put there",
                "remove the link",
            ),
            Errno::ENOENT => Error::environment(what, "its directory is missing", "make the directory"),
            Errno::EEXIST => Error::environment(what, "a file that is no socket is in its place", "move it away"),
            source => Error::io("make", format!("{} again ({address})", self.shown(file)), source),
        }
    }

    pub fn named<T>(&self, file: u32, result: std::result::Result<T, Errno>) -> Result<T> {
        result.map_err(|source| self.failed(file, source))
    }
}
