//! Sockets without connections: where they send, and who sends them once more what they had not read.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use super::names;
use super::records::Records;
use crate::image::{Socket, SocketLink};
use crate::net::{self, Address};
use crate::restore::reach::Rights;

/// Has a socket send where it sent. That nobody is there any more is for the program to find out.
pub fn direct(all: &Records<'_>, (file, socket, handle): (u32, &Socket, BorrowedFd<'_>), link: &SocketLink) {
    let (to, directory) = match link {
        SocketLink::Address(to) => (to.as_slice(), [].as_slice()),
        SocketLink::Peer { file } if all.is_directed(socket) => match all.get(*file) {
            Some(peer) => (peer.name.as_slice(), peer.directory.as_slice()),
            None => return,
        },
        _ => return,
    };
    if let Err(errno) = names::connect(handle, to, directory, &all.rights(file)) {
        log::warn!("{} cannot send to {} as it did: {errno}", all.shown(file), Address(to));
    }
}

/// Who sends `socket` a datagram that came from `from`, and to which address; `places` are those of sockets by index of their file.
pub fn sender(
    all: &Records<'_>,
    socket: &Socket,
    from: &[u8],
    places: &HashMap<u32, usize>,
) -> Option<(usize, Vec<u8>)> {
    let is_of_internet = |socket: &Socket| Address(&socket.name).internet().is_some();
    let sends = |other: &Socket| {
        let may_reach = other.family == socket.family || is_of_internet(other) && is_of_internet(socket);
        all.is_connectionless(other) && may_reach && Address(&other.name).covers(Address(from))
    };
    let senders = all.iter().filter(|(_, other)| !from.is_empty() && sends(other));
    let (file, sender) = senders.min_by_key(|(_, other)| other.family != socket.family)?;
    let mut to = names::absolute(&socket.name, &socket.directory);
    // What takes datagrams for any address of this machine is reached at the one that they came from.
    if Address(&to).internet().is_some_and(|address| address.ip().is_unspecified()) {
        let port = to.get(2..4)?.to_vec();
        to = from.to_vec();
        to.get_mut(2..4)?.copy_from_slice(&port);
    }
    let to = Address(&to).for_family(sender.family).unwrap_or(to);
    Some((*places.get(&file)?, to))
}

/// A new socket without a name that sends to `socket`, which has one.
pub fn stranger_to(socket: &Socket, holders: &[Rights]) -> Result<OwnedFd, Errno> {
    let stranger = net::new(socket.family, socket.kind, socket.protocol)?;
    names::connect(stranger.as_fd(), &socket.name, &socket.directory, holders)?;
    Ok(stranger)
}
