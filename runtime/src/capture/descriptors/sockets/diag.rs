//! What the kernel tells anyone about sockets (`sock_diag(7)`): which Unix sockets are connected with each other, and which have
//! been connected with one that has not accepted them yet; which sockets of UDP have been shut.

use std::collections::HashMap;
use std::os::fd::AsRawFd;

use netlink_packet_core::{
    Emitable, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::inet::{self, ExtensionFlags, InetRequest, SocketId};
use netlink_packet_sock_diag::unix::nlas::Nla;
use netlink_packet_sock_diag::unix::{ShowFlags, StateFlags, UnixRequest, UnixResponse};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

use crate::error::{Error, Result};

/// More than the kernel puts into one message of a dump.
const MESSAGE_BYTES: usize = 256 * 1024;
/// Of the cookies: any.
const NO_COOKIE: [u8; 8] = [0xff; 8];

/// A Unix socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnixSocket {
    /// Inode of the socket that it is connected with; 0 if that has been closed, or has not been accepted yet.
    pub peer: Option<u32>,
    /// Inodes of those that wait to be accepted by it, in their order; 0 for those that have been closed.
    pub waiting: Vec<u32>,
    /// How many of them it lets wait, if it takes connections.
    pub backlog: Option<u32>,
    /// Directions that were ended: bit 0 reading, bit 1 writing.
    pub shut: u8,
    /// Inode of the file that it is bound to.
    pub file_inode: Option<u32>,
}

/// All Unix sockets of our network namespace by the lower half of their inode numbers, which is all that the kernel tells.
pub fn unix_sockets() -> Result<HashMap<u32, UnixSocket>> {
    let request = UnixRequest {
        state_flags: StateFlags::from_bits_retain(!0),
        inode: 0,
        show_flags: ShowFlags::PEER | ShowFlags::ICONS | ShowFlags::VFS | ShowFlags::RQLEN,
        cookie: NO_COOKIE,
    };
    let mut found = HashMap::new();
    let note = |answer| {
        if let SockDiagMessage::UnixResponse(response) = answer {
            found.insert(response.header.inode, unix_socket(&response));
        }
    };
    ask(SockDiagMessage::UnixRequest(request), note)
        .map_err(|source| Error::io("ask (sock_diag) for", "the Unix sockets of this machine", source))?;
    Ok(found)
}

/// The directions that sockets of UDP have ended, by the lower half of their inode numbers. A kernel that does not tell (its module
/// udp_diag is not there) knows of none.
pub fn shut_of_udp() -> HashMap<u32, u8> {
    let mut found = HashMap::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let request = InetRequest {
            family: family as u8,
            protocol: libc::IPPROTO_UDP as u8,
            extensions: ExtensionFlags::empty(),
            states: inet::StateFlags::all(),
            socket_id: if family == libc::AF_INET { SocketId::new_v4() } else { SocketId::new_v6() },
        };
        let note = |answer| {
            let SockDiagMessage::InetResponse(response) = answer else { return };
            let shut = response.nlas.iter().find_map(|nla| match nla {
                inet::nlas::Nla::Shutdown(directions) => Some(*directions),
                _ => None,
            });
            found.extend(shut.map(|shut| (response.header.inode, shut)));
        };
        if let Err(error) = ask(SockDiagMessage::InetRequest(request), note) {
            log::debug!("which sockets of UDP have been shut is not known: {error}");
        }
    }
    found
}

/// Asks for a list, and gives each answer to `note`.
///
/// # Errors
/// The kernel's.
pub fn ask<M: NetlinkSerializable + NetlinkDeserializable>(request: M, mut note: impl FnMut(M)) -> std::io::Result<()> {
    let channel = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag)?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(request));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    send(channel.as_raw_fd(), &bytes, MsgFlags::empty())?;

    let mut buffer = vec![0; MESSAGE_BYTES];
    loop {
        let received = recv(channel.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        let mut rest = buffer.get(..received).unwrap_or_default();
        while !rest.is_empty() {
            let message = NetlinkMessage::<M>::deserialize(rest).map_err(std::io::Error::other)?;
            match message.payload {
                NetlinkPayload::InnerMessage(answer) => note(answer),
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => {}
            }
            // Messages begin at multiples of four.
            let bytes = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(bytes.max(1)..).unwrap_or_default();
        }
        if received == 0 {
            return Err(Errno::EIO.into());
        }
    }
}

fn unix_socket(response: &UnixResponse) -> UnixSocket {
    const LISTENING: u8 = 10;
    let mut found = UnixSocket::default();
    for nla in &response.nlas {
        match nla {
            Nla::Peer(inode) => found.peer = Some(*inode),
            Nla::PendingConnections(inodes) => found.waiting.clone_from(inodes),
            Nla::Shutdown(directions) => found.shut = *directions,
            Nla::Vfs(file) => {
                // The inode, and the device in an encoding of the kernel's own.
                let mut words = [0; 8];
                file.emit(&mut words);
                found.file_inode = words.first_chunk().map(|&inode| u32::from_ne_bytes(inode));
            }
            Nla::ReceiveQueueLength(_, backlog) if response.header.state == LISTENING => found.backlog = Some(*backlog),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    fn inode(socket: impl AsFd) -> u32 {
        let number = socket.as_fd().as_raw_fd();
        std::fs::metadata(format!("/proc/self/fd/{number}")).unwrap().ino() as u32
    }

    #[test]
    fn which_sockets_of_udp_have_been_shut_is_known() {
        let [one, other] = [0; 2].map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        one.connect(other.local_addr().unwrap()).unwrap();
        crate::net::shut_down(one.as_fd(), libc::SHUT_WR).unwrap();
        let all = shut_of_udp();
        if !all.is_empty() {
            assert_eq!((all.get(&inode(&one)), all.get(&inode(&other))), (Some(&2), Some(&0)));
        }
    }

    #[test]
    fn who_is_connected_with_whom_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let (one, other) = UnixStream::pair().unwrap();
        one.shutdown(Shutdown::Write).unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        let waiting = UnixStream::connect(&path).unwrap();
        let all = unix_sockets().unwrap();
        assert_eq!(all[&inode(&one)].peer, Some(inode(&other)));
        assert_eq!((all[&inode(&one)].shut, all[&inode(&other)].shut), (2, 1));
        let listening = &all[&inode(&listener)];
        assert_eq!((listening.waiting.as_slice(), listening.peer), ([inode(&waiting)].as_slice(), None));
        assert_eq!(listening.file_inode, Some(std::fs::metadata(&path).unwrap().ino() as u32));
        assert_eq!((all[&inode(&waiting)].peer, listening.backlog.is_some()), (Some(0), true));
    }
}
