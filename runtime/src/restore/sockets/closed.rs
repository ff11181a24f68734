//! Connections of which only one end is the job's: the other was closed, or is outside and lost.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;

use super::acceptors::Acceptors;
use super::{connected, options};
use crate::image::{Socket, SocketLink};
use crate::net;

type Result<T> = std::result::Result<T, Errno>;

/// A socket like `socket` and the other end of its connection, whose address was `peer_name`: to be closed when what lay unread has
/// been sent, which ends the connection, as an error if `reset`.
pub fn with_lost_peer(
    socket: &Socket,
    peer_name: &[u8],
    reset: bool,
    acceptors: &mut Acceptors,
) -> Result<[OwnedFd; 2]> {
    if socket.family != libc::AF_UNIX {
        let [own, other] = over_loopback(socket, acceptors)?;
        if reset {
            let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
            let value = [at_once.l_onoff.to_ne_bytes(), at_once.l_linger.to_ne_bytes()].concat();
            net::set_option(other.as_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &value)?;
        }
        return Ok([own, other]);
    }
    // Where no name is taken for it, the other end has none.
    let name = if acceptors.has(peer_name) { peer_name.to_vec() } else { Vec::new() };
    let peer = Socket { name, directory: Vec::new(), bound_file: None, ..without_names(socket) };
    let own = if reset { without_names(socket) } else { socket.clone() };
    let [own, other] = connected::pair(&own, &peer, acceptors)?;
    if reset {
        // What the other end has not read when it is closed makes an error of the end.
        nix::unistd::write(&own, b"?")?;
    }
    Ok([own, other])
}

fn without_names(socket: &Socket) -> Socket {
    Socket { name: Vec::new(), options: Vec::new(), unread: Vec::new(), link: SocketLink::None, ..socket.clone() }
}

/// Through a port of its own on this machine.
fn over_loopback(socket: &Socket, acceptors: &mut Acceptors) -> Result<[OwnedFd; 2]> {
    let host =
        if socket.family == libc::AF_INET6 { Ipv6Addr::LOCALHOST.into() } else { IpAddr::V4(Ipv4Addr::LOCALHOST) };
    let listener = TcpListener::bind((host, 0));
    let listener = OwnedFd::from(listener.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?);
    let server = Socket { name: net::name(listener.as_fd())?, ..without_names(socket) };
    acceptors.add(&server, &listener)?;
    let own = net::new(socket.family, socket.kind, socket.protocol)?;
    options::before_name(socket, own.as_fd());
    let other = acceptors.connect(own.as_fd(), &server)?;
    Ok([own, other])
}
