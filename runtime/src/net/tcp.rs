//! The state of a TCP connection, as the kernel tells anyone who has the socket.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;

use super::calls::option;

/// Places in `struct tcp_info`, whose layout only grows (uapi/linux/tcp.h).
const UNACKED: usize = 24;
const SACKED: usize = 28;
const BYTES_RECEIVED: usize = 128;
const NOT_SENT_BYTES: usize = 144;
const BYTES_SENT: usize = 200;
const BYTES_RETRANSMITTED: usize = 208;

/// States by the kernel's numbers (net/tcp_states.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpState {
    /// Both ends can send.
    Established,
    /// It is being made.
    Connecting,
    /// This end has been shut for writing, and perhaps the other one.
    ShutHere,
    /// The other end has been shut for writing, or closed.
    ShutThere,
    /// Both ends have been shut for writing.
    ShutOnBothSides,
    /// There is none.
    Closed,
    /// It takes connections.
    Listening,
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug)]
pub struct TcpInfo {
    /// Its state.
    pub state: TcpState,
    /// For one that listens: connections that wait to be accepted.
    pub waiting: u32,
    /// For one that listens: how many may wait.
    pub backlog: u32,
    /// Payload that has been received, bytes.
    pub received: u64,
    /// Payload that has been sent, bytes.
    pub sent: u64,
    /// Payload that has been written and not been sent yet, bytes.
    pub not_sent: u64,
}

impl TcpInfo {
    /// That of `socket`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if it is no TCP socket, or the kernel is older than 4.19.
    pub fn of(socket: BorrowedFd<'_>) -> Result<TcpInfo, Errno> {
        let info = option(socket, libc::IPPROTO_TCP, libc::TCP_INFO)?;
        let word = |place: usize| Some(u32::from_ne_bytes(*info.get(place..)?.first_chunk()?));
        let long = |place: usize| Some(u64::from_ne_bytes(*info.get(place..)?.first_chunk()?));
        let state = match info.first() {
            Some(1) => TcpState::Established,
            Some(2 | 3 | 12) => TcpState::Connecting,
            Some(4 | 5) => TcpState::ShutHere,
            Some(8) => TcpState::ShutThere,
            Some(6 | 9 | 11) => TcpState::ShutOnBothSides,
            Some(10) => TcpState::Listening,
            _ => TcpState::Closed,
        };
        // The end of what the other side sends counts as a byte.
        let end = u64::from(matches!(state, TcpState::ShutThere | TcpState::ShutOnBothSides));
        let read = || {
            Some(TcpInfo {
                state,
                waiting: word(UNACKED)?,
                backlog: word(SACKED)?,
                received: long(BYTES_RECEIVED)?.saturating_sub(end),
                sent: long(BYTES_SENT)?.saturating_sub(long(BYTES_RETRANSMITTED)?),
                not_sent: u64::from(word(NOT_SENT_BYTES)?),
            })
        };
        read().ok_or(Errno::EOPNOTSUPP)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_one_end_has_sent_is_what_the_other_has_received() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let listening = TcpInfo::of(listener.as_fd()).unwrap();
        assert_eq!((listening.state, listening.waiting, listening.backlog), (TcpState::Listening, 1, 128));
        let (mut server, _) = listener.accept().unwrap();
        let both = |client: &TcpStream, server: &TcpStream| {
            (TcpInfo::of(client.as_fd()).unwrap(), TcpInfo::of(server.as_fd()).unwrap())
        };
        let (here, there) = both(&client, &server);
        assert_eq!((here.sent, here.received, there.sent, there.received), (0, 0, 0, 0), "opening is no payload");
        client.write_all(b"twelve bytes").unwrap();
        server.write_all(b"five!").unwrap();
        client.read_exact(&mut [0; 2]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        server.read_to_end(&mut Vec::new()).unwrap();
        let (here, there) = both(&client, &server);
        assert_eq!((here.sent, there.received, there.sent, here.received), (12, 12, 5, 5));
        assert_eq!((here.state, there.state), (TcpState::ShutHere, TcpState::ShutThere));
    }

    #[test]
    fn what_does_not_fit_is_on_its_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nonblocking(true).unwrap();
        let (server, _) = listener.accept().unwrap();
        let mut written = 0;
        while let Ok(bytes) = client.write(&[7; 65536]) {
            written += bytes as u64;
        }
        let (here, there) = (TcpInfo::of(client.as_fd()).unwrap(), TcpInfo::of(server.as_fd()).unwrap());
        assert_eq!(here.sent + here.not_sent, written);
        assert!(there.received < written, "{there:?}");
    }
}
