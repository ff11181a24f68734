//! The sockets of a job, made by the restarter before there are processes, which get them by birth.
//!
//! Connections between processes of the job are made anew, through the socket that takes them or one that stands in for it, so
//! that names and ports are what they were. Who was outside is gone: the program finds what it had received, and is then
//! told that the connection was reset. What lay unread is sent once more by the ancestor of the processes ([`Delivery`]), because
//! descriptors may come with it that only it has.

mod acceptors;
mod address_map;
mod closed;
mod connected;
mod datagrams;
mod made;
mod names;
mod options;
mod records;

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

use crate::error::Result;
use crate::image::{JobImage, Socket, SocketLink};
use crate::net::Address;
pub use address_map::settle as move_addresses;
use made::Made;
use names::Names;
use records::Records;

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
    names: Names,
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
        let Made { sockets: mut made, lost_peers, names } = Made::of(&all)?;
        let mut sockets = Sockets { names, ..Sockets::default() };
        for (file, socket) in all.iter() {
            let place = sockets.made.len();
            let handle = made.remove(&file).ok_or_else(|| all.failed(file, Errno::EBADF))?;
            sockets.rest.push((place, options::set(socket, handle.as_fd(), &all.shown(file))));
            sockets.files.insert(file, place);
            sockets.made.push(handle);
        }
        let mut of_lost: HashMap<u32, usize> = HashMap::new();
        for (file, peer) in lost_peers {
            of_lost.insert(file, sockets.made.len());
            sockets.made.push(peer);
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
        let Sockets { made, rest, names, .. } = self;
        for (place, rest) in rest {
            rest.apply(made[place].as_fd());
        }
        // Nobody needs the files any more that had been deleted.
        drop(names);
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
                    None if all.is_connectionless(socket) && is_of_unix_with_name(socket) => {
                        self.made.push(all.named(file, datagrams::stranger_to(socket, &all.rights(file)))?);
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

/// Whoever sent to it may be gone, or have no name.
fn is_of_unix_with_name(socket: &Socket) -> bool {
    socket.family == libc::AF_UNIX && Address(&socket.name).is_named()
}
