//! The sockets of a job in the order in which they can be made: those with addresses of their own, connections through them, and
//! then who sends to whom.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use super::acceptors::{Acceptors, listen};
use super::names::{self, Names};
use super::records::Records;
use super::{closed, connected, datagrams};
use crate::error::Result;
use crate::image::{Socket, SocketLink};
use crate::net::Address;

/// Sockets that have been made.
pub struct Made {
    /// By the index of their file.
    pub sockets: HashMap<u32, OwnedFd>,
    /// The other ends of those whose own is not in the job, with the index of the file of the one that is.
    pub lost_peers: Vec<(u32, OwnedFd)>,
    /// Their addresses.
    pub names: Names,
}

impl Made {
    /// Makes `all`.
    pub fn of(all: &Records<'_>) -> Result<Made> {
        let mut making =
            Making { all, acceptors: Acceptors::new(Names::of(all)), sockets: HashMap::new(), lost_peers: Vec::new() };
        for (file, socket) in all.with_names_of_their_own() {
            making.bind(file, socket)?;
        }
        for (file, socket) in all.iter() {
            if !making.sockets.contains_key(&file) {
                making.connect(file, socket)?;
            }
        }
        all.iter().try_for_each(|(file, socket)| making.direct(file, socket))?;
        let Making { acceptors, sockets, lost_peers, .. } = making;
        Ok(Made { sockets, lost_peers, names: acceptors.into_names() })
    }
}

struct Making<'a> {
    all: &'a Records<'a>,
    acceptors: Acceptors,
    sockets: HashMap<u32, OwnedFd>,
    lost_peers: Vec<(u32, OwnedFd)>,
}

impl Making<'_> {
    fn bind(&mut self, file: u32, socket: &Socket) -> Result<()> {
        let handle = self.all.named(file, self.acceptors.names.bound(socket))?;
        if let SocketLink::Listening { backlog } = socket.link {
            self.all.named(file, listen(&handle, backlog))?;
            self.all.named(file, self.acceptors.add(socket, &handle))?;
        }
        self.sockets.insert(file, handle);
        Ok(())
    }

    fn connect(&mut self, file: u32, socket: &Socket) -> Result<()> {
        let [own, other] = match &socket.link {
            SocketLink::Peer { file: other } if !self.all.is_directed(socket) => {
                let peer = self.all.get(*other).unwrap_or(socket);
                let [own, its] = self.all.named(file, connected::pair(socket, peer, &mut self.acceptors))?;
                self.sockets.insert(file, own);
                self.sockets.entry(*other).or_insert(its);
                return Ok(());
            }
            SocketLink::Closed { name, reset } => {
                self.all.named(file, closed::with_lost_peer(socket, name, *reset, &mut self.acceptors))?
            }
            SocketLink::Outside { name } => {
                let shown = self.all.shown(file);
                let peer = match Address(name).is_named() {
                    true => format!("with {} outside the job", Address(name)),
                    false => "with a socket without a name outside the job".to_owned(),
                };
                log::warn!("{shown} was connected {peer}: it is told that this was reset");
                self.all.named(file, closed::with_lost_peer(socket, &[], true, &mut self.acceptors))?
            }
            _ => return self.bind(file, socket),
        };
        self.sockets.insert(file, own);
        self.lost_peers.push((file, other));
        Ok(())
    }

    /// Has one that waits to be accepted wait again, and one of datagrams send where it sent.
    fn direct(&self, file: u32, socket: &Socket) -> Result<()> {
        let handle = self.sockets[&file].as_fd();
        let SocketLink::Waiting { file: listener } = &socket.link else {
            datagrams::direct(self.all, (file, socket, handle), &socket.link);
            return Ok(());
        };
        let (to, directory) =
            self.all.get(*listener).map_or((&[][..], &[][..]), |listener| (&listener.name, &listener.directory));
        self.all.named(file, names::connect(handle, to, directory, &self.all.rights(file)))
    }
}
