//! What a socket has received and the program has not read, read without consuming it: bytes, where messages end, who has
//! sent them, and the descriptors that came along.
//!
//! Each look begins where the last has ended, which is a property of the socket (SO_PEEK_OFF); it is put back at the end.

use std::os::fd::{BorrowedFd, OwnedFd};

use nix::errno::Errno;

use crate::net::{self, bytes_sent_before, peek};
use crate::unread_bytes::unread_bytes;

/// The largest message that is looked at. Ordinary machines allow 4 MiB at most (`net.core.wmem_max`).
const ROOM: usize = 16 << 20;

type Result<T> = std::result::Result<T, Errno>;

/// What was sent at once; of a stream, what lies between two messages with descriptors.
#[derive(Debug, Default)]
pub struct Unread {
    /// The address of the sender, of a datagram.
    pub from: Vec<u8>,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Duplicates of the descriptors that came along.
    pub files: Vec<OwnedFd>,
}

/// Looks at what is unread in `socket` of a family and type.
///
/// # Errors
/// `EMSGSIZE` for a message that is too long; the kernel's.
pub fn unread(socket: BorrowedFd<'_>, family: i32, kind: i32) -> Result<Vec<Unread>> {
    // Of datagrams that is the length of the first one.
    let pending = unread_bytes(socket)?;
    if pending == 0 && kind != libc::SOCK_DGRAM {
        return Ok(Vec::new());
    }
    if family != libc::AF_UNIX && kind == libc::SOCK_STREAM {
        return of_plain_stream(socket, pending);
    }
    let before = net::number_option(socket, libc::SOL_SOCKET, libc::SO_PEEK_OFF)?;
    let found = match kind {
        libc::SOCK_STREAM => of_stream(socket, pending),
        libc::SOCK_SEQPACKET => of_messages(socket, pending),
        _ => of_messages(socket, usize::MAX),
    };
    look_from(socket, before)?;
    found
}

fn look_from(socket: BorrowedFd<'_>, place: i32) -> Result<()> {
    net::set_option(socket, libc::SOL_SOCKET, libc::SO_PEEK_OFF, &place.to_ne_bytes())
}

/// `pending` bytes are in all messages together, if that is known: nothing tells an empty message of a connection from its end. An
/// empty datagram is seen once only, which is the kernel's way to let a look go past it.
fn of_messages(socket: BorrowedFd<'_>, pending: usize) -> Result<Vec<Unread>> {
    let (mut found, mut seen) = (Vec::new(), 0);
    let mut room = vec![0; ROOM];
    look_from(socket, 0)?;
    while seen < pending {
        let look = match peek(socket, &mut room) {
            Err(Errno::EAGAIN) => break,
            look => look?,
        };
        if look.truncated {
            return Err(Errno::EMSGSIZE);
        }
        seen += look.bytes;
        let bytes = room.get(..look.bytes).unwrap_or_default().to_vec();
        found.push(Unread { from: look.from, bytes, files: look.files });
    }
    Ok(found)
}

/// In a stream of TCP there are no descriptors, and not every kernel can look further than from its beginning.
fn of_plain_stream(socket: BorrowedFd<'_>, pending: usize) -> Result<Vec<Unread>> {
    Ok(vec![Unread { bytes: net::beginning(socket, pending)?, ..Unread::default() }])
}

/// The kernel gives what lies before a message with descriptors together with that.
fn of_stream(socket: BorrowedFd<'_>, pending: usize) -> Result<Vec<Unread>> {
    let mut found: Vec<Unread> = Vec::new();
    let mut room = vec![0; pending];
    let mut place = 0;
    while place < pending {
        look_from(socket, place as i32)?;
        let look = match peek(socket, &mut room[..pending - place]) {
            Err(Errno::EAGAIN) => break,
            look => look?,
        };
        if look.bytes == 0 {
            break;
        }
        if look.truncated {
            // Not all descriptors had room in our table.
            return Err(Errno::EMFILE);
        }
        let mut plain = look.bytes;
        if !look.files.is_empty() {
            look_from(socket, place as i32)?;
            plain = bytes_sent_before(socket, &mut vec![0; look.bytes - 1])?;
        }
        let (plain, with_files) = room.get(..look.bytes).unwrap_or_default().split_at(plain);
        match found.last_mut().filter(|last| last.files.is_empty()) {
            Some(last) => last.bytes.extend_from_slice(plain),
            None if !plain.is_empty() => found.push(Unread { bytes: plain.to_vec(), ..Unread::default() }),
            None => {}
        }
        if !look.files.is_empty() {
            found.push(Unread { bytes: with_files.to_vec(), files: look.files, ..Unread::default() });
        }
        place += look.bytes;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Write};
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, send, sendmsg, socketpair};

    use super::*;

    fn seen(socket: &impl AsFd, kind: i32) -> Vec<(Vec<u8>, usize)> {
        let found = unread(socket.as_fd(), libc::AF_UNIX, kind).unwrap();
        found.into_iter().map(|one| (one.bytes, one.files.len())).collect()
    }

    #[test]
    fn a_stream_keeps_its_bytes_and_where_descriptors_lie_between_them() {
        let (mut one, other) = UnixStream::pair().unwrap();
        let numbers = [one.as_raw_fd(), other.as_raw_fd()];
        let with_files = |bytes: &[u8], count: usize| {
            let files = [ControlMessage::ScmRights(&numbers[..count])];
            sendmsg::<()>(one.as_raw_fd(), &[IoSlice::new(bytes)], &files, MsgFlags::empty(), None).unwrap();
        };
        assert_eq!(seen(&other, libc::SOCK_STREAM), []);
        (&one).write_all(b"before ").unwrap();
        (&one).write_all(b"them").unwrap();
        with_files(b"first", 2);
        with_files(b"second", 1);
        one.write_all(b"behind").unwrap();
        let all =
            [(b"before them".to_vec(), 0), (b"first".to_vec(), 2), (b"second".to_vec(), 1), (b"behind".to_vec(), 0)];
        for _ in 0..2 {
            assert_eq!(seen(&other, libc::SOCK_STREAM), all);
        }
        drop(one);
        assert_eq!(seen(&other, libc::SOCK_STREAM), all, "also when nobody is there any more");
    }

    #[test]
    fn messages_keep_their_bounds() {
        let (one, other) = UnixDatagram::pair().unwrap();
        let long = vec![7; 100_000];
        for bytes in [b"one".as_slice(), b"", &long, b"four"] {
            one.send(bytes).unwrap();
        }
        let lengths = |all: Vec<(Vec<u8>, usize)>| all.iter().map(|(bytes, _)| bytes.len()).collect::<Vec<_>>();
        assert_eq!(lengths(seen(&other, libc::SOCK_DGRAM)), [3, 0, 100_000, 4]);
        let (one, other) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        for bytes in [b"one".as_slice(), b"", b"three"] {
            send(one.as_raw_fd(), bytes, MsgFlags::empty()).unwrap();
        }
        drop(one);
        assert_eq!(lengths(seen(&other, libc::SOCK_SEQPACKET)), [3, 0, 5]);
    }
}
