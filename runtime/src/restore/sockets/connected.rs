//! Both ends of a connection.

use std::os::fd::{AsFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::acceptors::Acceptors;
use super::options;
use crate::image::Socket;
use crate::net::{self, Address, IP_LOCAL_PORT_RANGE};

type Result<T> = std::result::Result<T, Errno>;

const PORT_PAUSE: Duration = Duration::from_millis(50);

/// Makes two sockets like `one` and `other`, connected with each other.
pub fn pair(one: &Socket, other: &Socket, acceptors: &mut Acceptors) -> Result<[OwnedFd; 2]> {
    let is_named = |socket: &Socket| Address(&socket.name).is_named();
    if one.family == libc::AF_UNIX && !is_named(one) && !is_named(other) {
        let pair = net::pair(one.family, one.kind, one.protocol)?;
        options::before_name(one, pair[0].as_fd());
        options::before_name(other, pair[1].as_fd());
        return Ok(pair);
    }
    // Who was accepted has the name of the socket that did.
    let one_was_accepted = acceptors.has(&one.name) || (!acceptors.has(&other.name) && !is_named(other));
    let (client, server) = if one_was_accepted { (other, one) } else { (one, other) };
    let [client, server] = match client.family {
        libc::AF_UNIX => unix(client, server, acceptors)?,
        _ => internet(client, server, acceptors)?,
    };
    Ok(if one_was_accepted { [server, client] } else { [client, server] })
}

fn unix(client: &Socket, server: &Socket, acceptors: &mut Acceptors) -> Result<[OwnedFd; 2]> {
    let handle = acceptors.names.bound(client)?;
    let accepted = acceptors.connect(handle.as_fd(), server)?;
    options::before_name(server, accepted.as_fd());
    Ok([handle, accepted])
}

/// The client has its port again unless somebody else has it by now: a server seldom cares.
fn internet(client: &Socket, server: &Socket, acceptors: &mut Acceptors) -> Result<[OwnedFd; 2]> {
    let connected = |handle: OwnedFd, acceptors: &mut Acceptors| {
        let accepted = acceptors.connect(handle.as_fd(), server)?;
        options::before_name(server, accepted.as_fd());
        Ok([handle, accepted])
    };
    loop {
        match with_port(client).and_then(|handle| connected(handle, acceptors)) {
            // The kernel still has a connection with the same two addresses, which has ended.
            Err(Errno::EADDRNOTAVAIL | Errno::EADDRINUSE) if Instant::now() < acceptors.deadline => sleep(PORT_PAUSE),
            Err(Errno::EADDRNOTAVAIL | Errno::EADDRINUSE) => break,
            outcome => return outcome,
        }
    }
    log::warn!("{} is in use: a connection with {} has another", Address(&client.name), Address(&server.name));
    connected(like(client)?, acceptors)
}

/// A socket that has the host of `client` and gets its port when it is connected. A port that was bound earlier could not be one of
/// those that the kernel keeps for connections which have ended.
fn with_port(client: &Socket) -> Result<OwnedFd> {
    let handle = like(client)?;
    let port = Address(&client.name).internet().map_or(0, |address| u32::from(address.port()));
    let range = (port << 16 | port).to_ne_bytes();
    let level = libc::IPPROTO_IP;
    net::set_option(handle.as_fd(), level, libc::IP_BIND_ADDRESS_NO_PORT, &1_i32.to_ne_bytes())?;
    let mut host = client.name.clone();
    host.get_mut(2..4).ok_or(Errno::EINVAL)?.fill(0);
    match net::set_option(handle.as_fd(), level, IP_LOCAL_PORT_RANGE, &range) {
        Ok(()) => net::bind(handle.as_fd(), &host)?,
        // A kernel older than 6.3.
        Err(_) => net::bind(handle.as_fd(), &client.name)?,
    }
    Ok(handle)
}

fn like(socket: &Socket) -> Result<OwnedFd> {
    let handle = net::new(socket.family, socket.kind, socket.protocol)?;
    options::before_name(socket, handle.as_fd());
    Ok(handle)
}
