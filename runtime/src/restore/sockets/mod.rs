//! The sockets of a job, made by the restarter before there are processes, which get them by birth.
//!
//! Connections between processes of the job are made anew, through the socket that takes them or one that stands in for it, so
//! that names and ports are what they were. Who was outside is gone: the program finds what it had received, and is then
//! told that the connection was reset. What lay unread is sent again by the first process ([`Delivery`]), because descriptors
//! may come with it that only it has.

mod acceptors;
mod closed;
mod connected;
mod datagrams;
mod names;
mod options;

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::image::{FileKind, JobImage, Socket, SocketLink};
use crate::net::Address;
use acceptors::Acceptors;

/// The sockets, before and after the processes are made.
#[derive(Default)]
pub struct Sockets {
    /// What processes get: first the sockets in the order of `files`, then the other ends of those whose own are not in the job.
    made: Vec<OwnedFd>,
    /// Index among the job's files of each socket, and where it is in `made`.
    files: HashMap<u32, usize>,
    /// What is to be sent to them.
    pub deliveries: Vec<Delivery>,
    /// What is done to them when that has been sent.
    rest: Vec<(usize, options::Rest)>,
    /// Kept until all has been sent, for an address may be needed for that.
    names: names::Names,
}

/// A message to be sent once more.
#[derive(Debug)]
pub struct Delivery {
    /// Who sends it, by place among [`Sockets::numbers`].
    pub sender: usize,
    /// Index among the job's files of the socket that receives it.
    pub receiver: u32,
    /// Which of what that has unread.
    pub message: usize,
    /// The address that it is sent to, if the sender is not connected with it.
    pub to: Vec<u8>,
}

impl Sockets {
    /// Makes the sockets of `job`.
    ///
    /// # Errors
    /// When an address that one of them had is not to be had.
    pub fn make(job: &JobImage) -> Result<Sockets> {
        let all = Records::of(job);
        let mut made: HashMap<u32, OwnedFd> = HashMap::new();
        let mut acceptors = Acceptors::default();
        let mut sockets = Sockets::default();

        for (file, socket) in all.with_names_of_their_own() {
            let handle = all.named(file, acceptors.names.bound(socket))?;
            if let SocketLink::Listening { backlog } = socket.link {
                all.named(file, acceptors::listen(&handle, backlog))?;
                acceptors.add(socket, &handle).map_err(|source| all.failed(file, source))?;
            }
            made.insert(file, handle);
        }
        let mut others: Vec<(u32, OwnedFd)> = Vec::new();
        for (file, socket) in all.iter() {
            if made.contains_key(&file) {
                continue;
            }
            match &socket.link {
                SocketLink::Peer { file: other } if !all.is_directed(socket) => {
                    let peer = all.get(*other).unwrap_or(socket);
                    let [own, its] = all.named(file, connected::pair(socket, peer, &mut acceptors))?;
                    made.insert(file, own);
                    made.entry(*other).or_insert(its);
                }
                SocketLink::Closed { name, reset } => {
                    let [own, other] = all.named(file, closed::with_lost_peer(socket, name, *reset, &mut acceptors))?;
                    made.insert(file, own);
                    others.push((file, other));
                }
                SocketLink::Outside { name } => {
                    log::warn!(
                        "{} was connected with {} outside the job: it is told that this was reset",
                        all.shown(file),
                        Address(name)
                    );
                    let [own, other] = all.named(file, closed::with_lost_peer(socket, &[], true, &mut acceptors))?;
                    made.insert(file, own);
                    others.push((file, other));
                }
                _ => {
                    let handle = all.named(file, acceptors.names.bound(socket))?;
                    made.insert(file, handle);
                }
            }
        }
        for (file, socket) in all.iter() {
            let handle = made[&file].as_fd();
            match &socket.link {
                SocketLink::Waiting { file: listener } => {
                    let to = all.get(*listener).map_or(&[][..], |listener| &listener.name);
                    all.named(
                        file,
                        names::connect(handle, to, all.get(*listener).map_or(&[][..], |it| &it.directory)),
                    )?;
                }
                link => datagrams::direct(&all, (file, socket, handle), link),
            }
        }
        sockets.names = acceptors.into_names();
        for (file, socket) in all.iter() {
            let place = sockets.made.len();
            sockets.files.insert(file, place);
            let handle = made.remove(&file).ok_or_else(|| all.failed(file, Errno::EBADF))?;
            sockets.made.push(handle);
            sockets.rest.push((place, options::set(socket, sockets.made[place].as_fd(), &all.shown(file))));
        }
        let mut of_lost: HashMap<u32, usize> = HashMap::new();
        for (file, other) in others {
            of_lost.insert(file, sockets.made.len());
            sockets.made.push(other);
        }
        sockets.plan_deliveries(&all, &of_lost)?;
        Ok(sockets)
    }

    /// The numbers in this process of what the processes are to have.
    pub fn numbers(&self) -> Vec<RawFd> {
        self.made.iter().map(AsRawFd::as_raw_fd).collect()
    }

    /// The place among those of the socket that is file `file` of the job.
    pub fn place_of(&self, file: u32) -> Option<usize> {
        self.files.get(&file).copied()
    }

    /// To be called when all has been sent: sets what would have held it back, ends the directions that were ended, and closes what is
    /// this process's.
    pub fn settle(self) {
        for (place, rest) in self.rest {
            rest.apply(self.made[place].as_fd());
        }
    }

    /// Decides who sends what lay unread once more. Each sender gets room for all that it sends.
    fn plan_deliveries(&mut self, all: &Records<'_>, of_lost: &HashMap<u32, usize>) -> Result<()> {
        for (file, socket) in all.iter().filter(|(_, socket)| !socket.unread.is_empty()) {
            for (message, unread) in socket.unread.iter().enumerate() {
                let connected = match socket.link {
                    SocketLink::Peer { file: other } => self.files.get(&other).copied(),
                    _ => of_lost.get(&file).copied(),
                };
                let found = match connected {
                    Some(sender) => Some((sender, Vec::new())),
                    None => datagrams::sender(all, socket, &unread.from, &self.files),
                };
                match found {
                    Some((sender, to)) => self.deliveries.push(Delivery { sender, receiver: file, message, to }),
                    None if all.is_connectionless(socket) && Address(&socket.name).path().is_some() => {
                        self.made.push(all.named(file, datagrams::stranger_to(socket))?);
                        let sender = self.made.len() - 1;
                        self.deliveries.push(Delivery { sender, receiver: file, message, to: Vec::new() });
                    }
                    None => log::warn!("{}: a message from {} is lost", all.shown(file), Address(&unread.from)),
                }
            }
            let bytes = socket.unread.iter().map(|message| message.bytes.len()).sum();
            let sender = self.deliveries.iter().rev().find(|delivery| delivery.receiver == file).map(|it| it.sender);
            if let Some(sender) = sender {
                self.rest.push((sender, options::make_room(self.made[sender].as_fd(), bytes)));
            }
        }
        Ok(())
    }
}

/// The records of all sockets of a job, by index of their file.
struct Records<'a> {
    job: &'a JobImage,
}

impl<'a> Records<'a> {
    fn of(job: &'a JobImage) -> Records<'a> {
        Records { job }
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &'a Socket)> + use<'a> {
        self.job.objects.files.iter().enumerate().filter_map(|(index, file)| match &file.kind {
            FileKind::Socket(socket) => Some((index as u32, socket.as_ref())),
            _ => None,
        })
    }

    fn get(&self, file: u32) -> Option<&'a Socket> {
        match &self.job.objects.files.get(file as usize)?.kind {
            FileKind::Socket(socket) => Some(socket),
            _ => None,
        }
    }

    /// Those that were given an address themselves; first those whose file has been deleted, which others may have taken the
    /// place of.
    fn with_names_of_their_own(&self) -> Vec<(u32, &'a Socket)> {
        let is_bound = |socket: &Socket| {
            let listens = matches!(socket.link, SocketLink::Listening { .. });
            listens || (self.is_connectionless(socket) && Address(&socket.name).is_named())
        };
        let mut found: Vec<_> = self.iter().filter(|(_, socket)| is_bound(socket)).collect();
        found.sort_by_key(|(_, socket)| socket.bound_file.is_some());
        found
    }

    /// Whether it sends to another by its name, and is not one of a pair.
    fn is_directed(&self, socket: &Socket) -> bool {
        let SocketLink::Peer { file } = socket.link else { return false };
        self.is_connectionless(socket) && self.get(file).is_some_and(|peer| Address(&peer.name).is_named())
    }

    fn is_connectionless(&self, socket: &Socket) -> bool {
        !matches!(socket.kind, libc::SOCK_STREAM | libc::SOCK_SEQPACKET)
    }

    /// What a message calls the socket that is file `file`.
    fn shown(&self, file: u32) -> String {
        let descriptors = |process: &'a crate::image::ProcessImage| {
            process.descriptors.iter().map(move |descriptor| (process.pid, descriptor))
        };
        let found = self.job.processes.iter().flat_map(descriptors).find(|(_, descriptor)| descriptor.file == file);
        match found {
            Some((pid, descriptor)) => format!("the socket that is descriptor {} of process {pid}", descriptor.number),
            None => "a socket that is on its way between processes".into(),
        }
    }

    fn failed(&self, file: u32, source: Errno) -> Error {
        let address = self.get(file).map(|socket| Address(&socket.name).to_string()).unwrap_or_default();
        let what = format!("make {} again ({address})", self.shown(file));
        match source {
            Errno::EADDRINUSE => {
                Error::environment(what, "its address is in use", "end the program that has it, or wait until it ends")
            }
            Errno::EADDRNOTAVAIL => {
                Error::environment(what, "this machine does not have the address", "restart where it has it")
            }
            Errno::EACCES | Errno::EPERM => Error::environment(what, "this user may not", "restart as a user who may"),
            Errno::ENOENT => Error::environment(what, "its directory is missing", "make the directory"),
            Errno::EEXIST => Error::environment(what, "a file that is no socket is in its place", "move it away"),
            source => Error::io("make", format!("{} again ({address})", self.shown(file)), source),
        }
    }

    fn named<T>(&self, file: u32, result: std::result::Result<T, Errno>) -> Result<T> {
        result.map_err(|source| self.failed(file, source))
    }
}
