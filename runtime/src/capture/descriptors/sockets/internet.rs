//! Sockets of TCP and UDP: which are two ends of one connection, and whether all that was sent has arrived.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use super::{Link, Seen, Sockets};
use crate::capture::descriptors::entry::unsettled;
use crate::error::{Error, Result};
use crate::image::SocketLink;
use crate::net::{self, Address, TcpInfo, TcpState};
use crate::proc::fdinfo::FdInfo;

/// Bits of the directions that were ended.
const READING: u8 = 1;
const WRITING: u8 = 2;

/// What socket `inode` is connected with.
pub fn link(sockets: &Sockets, inode: u64, info: &FdInfo) -> Result<Link> {
    let Some(seen) = sockets.all.get(&inode) else { return Ok(Link::Done(SocketLink::None)) };
    let name = seen.peer_name();
    let Some(tcp) = seen.tcp else {
        let link = if name.is_empty() { SocketLink::None } else { SocketLink::Address(name) };
        return Ok(Link::Done(link));
    };
    let link = match tcp.state {
        TcpState::Listening => SocketLink::Listening { backlog: tcp.backlog },
        // A call that waits for the connection is made once more; who is told by an event is told that it failed.
        TcpState::Connecting if info.flags & libc::O_NONBLOCK == 0 => SocketLink::None,
        TcpState::Connecting => SocketLink::Outside { name },
        TcpState::Closed if seen.has(libc::POLLRDHUP) => SocketLink::Closed { name, reset: seen.has(libc::POLLERR) },
        TcpState::Closed => SocketLink::None,
        TcpState::ShutOnBothSides => SocketLink::Closed { name, reset: false },
        TcpState::Established | TcpState::ShutHere | TcpState::ShutThere => {
            if let Some(other) = other_end(sockets, seen) {
                if !(seen.has_all && sockets.all[&other].has_all) {
                    return Err(underway(
                        info,
                        "has not arrived yet, because the other end is full",
                        "or as root (CAP_NET_ADMIN)",
                    ));
                }
                return Ok(Link::Peer(other));
            }
            match listener(sockets, seen) {
                Some(_) if tcp.sent + tcp.not_sent > 0 => {
                    return Err(underway(info, "has not been accepted yet", "or when it has been accepted"));
                }
                Some(listener) => return Ok(Link::Waiting(listener)),
                None if tcp.state == TcpState::ShutThere => SocketLink::Closed { name, reset: false },
                None => SocketLink::Outside { name },
            }
        }
    };
    Ok(Link::Done(link))
}

/// Directions of a socket that were ended.
pub fn shut(seen: &Seen) -> u8 {
    let Some(tcp) = seen.tcp else { return 0 };
    let is_open = matches!(tcp.state, TcpState::Established | TcpState::ShutHere);
    let reading = is_open && seen.has(libc::POLLRDHUP);
    // One that both ends have shut down is closed, as is one that has never been connected, which has no end.
    let is_over = tcp.state == TcpState::Closed && seen.has(libc::POLLRDHUP) && !seen.has(libc::POLLERR);
    let writing = is_over || matches!(tcp.state, TcpState::ShutHere | TcpState::ShutOnBothSides);
    u8::from(reading) * READING + u8::from(writing) * WRITING
}

/// Of a connection that ends the kernel keeps the addresses for a minute. A restart cannot have them meanwhile unless the connection has
/// allowed that (SO_REUSEADDR), which has no other effect on one that is there.
pub fn let_address_be_used_again(seen: &Seen) {
    let is_connected =
        |tcp: TcpInfo| !matches!(tcp.state, TcpState::Listening | TcpState::Closed | TcpState::Connecting);
    if seen.tcp.is_some_and(is_connected)
        && let Err(errno) =
            net::set_option(seen.handle.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, &1_i32.to_ne_bytes())
    {
        log::debug!("the address of a connection cannot be used again at once: {errno}");
    }
}

/// The addresses of both ends of a connection, its own first.
pub fn ends(seen: &Seen) -> Option<(SocketAddr, SocketAddr)> {
    seen.tcp?;
    Some((Address(&seen.name).internet()?, Address(seen.peer_name.as_deref()?).internet()?))
}

/// The socket of the job at the other end of a connection.
fn other_end(sockets: &Sockets, seen: &Seen) -> Option<u64> {
    let (own, other) = ends(seen)?;
    sockets.by_ends.get(&(other, own)).copied()
}

/// The socket of the job that a connection waits at to be accepted.
fn listener(sockets: &Sockets, seen: &Seen) -> Option<u64> {
    let wanted = Address(seen.peer_name.as_deref()?);
    let takes_it = |other: &Seen| {
        other.tcp.is_some_and(|tcp| tcp.state == TcpState::Listening && tcp.waiting > 0)
            && Address(&other.name).covers(wanted)
    };
    sockets.all.iter().find(|(_, other)| takes_it(other)).map(|(&inode, _)| inode)
}

fn underway(info: &FdInfo, where_it_is: &str, or: &str) -> Error {
    let why = format!("something that was sent {where_it_is}, and cannot be read on its way");
    unsettled(info, &why, &format!("take the checkpoint when less is being sent, {or}"))
}
