//! Sockets in words.

use crate::image::{Socket, SocketLink};
use crate::net::Address;

/// What kind it is, its addresses, and what lies in it.
pub fn in_words(socket: &Socket) -> String {
    let family = match socket.family {
        libc::AF_UNIX => "unix",
        libc::AF_INET => "IPv4",
        libc::AF_INET6 => "IPv6",
        libc::AF_NETLINK => "netlink",
        _ => "unknown",
    };
    let kind = match socket.kind {
        libc::SOCK_STREAM => "stream",
        libc::SOCK_DGRAM => "datagrams",
        libc::SOCK_SEQPACKET => "messages",
        _ => "raw",
    };
    let link = match &socket.link {
        SocketLink::None => String::new(),
        SocketLink::Listening { backlog } => format!(", takes connections ({backlog} may wait)"),
        SocketLink::Peer { file } => format!(", connected with open file {file} of the job"),
        SocketLink::Waiting { file } => format!(", waits for open file {file} of the job to accept it"),
        SocketLink::Address(to) => format!(", sends to {}", Address(to)),
        SocketLink::Closed { name, .. } => format!(", was connected with {}, which has been closed", Address(name)),
        SocketLink::Outside { name } => format!(", connected with {} outside the job", Address(name)),
    };
    let bytes: usize = socket.unread.iter().map(|message| message.bytes.len()).sum();
    let files: usize = socket.unread.iter().map(|message| message.files.len()).sum();
    let unread = match (bytes, files) {
        (0, 0) => String::new(),
        (bytes, 0) => format!(", {bytes} bytes unread"),
        (bytes, files) => format!(", {bytes} bytes and {files} descriptors unread"),
    };
    format!("{family} {kind}, {}{link}{unread}", Address(&socket.name))
}
