//! Two processes that talk: packets over a pair of sockets, a JSON value in each, and descriptors with it.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, recvmsg, sendmsg,
    socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of the longest packet: an error with a path or two in it.
const PACKET_BYTES_MAX: usize = 64 * 1024;
/// Descriptors that come with a packet, at most.
const DESCRIPTORS_MAX: usize = 2;

/// A value, and the descriptors that came with it.
pub type Packet<T> = (T, Vec<OwnedFd>);

/// Both ends. They are closed by exec.
///
/// # Errors
/// The kernel's.
pub fn pair() -> nix::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
}

/// Sends `value` with at most two descriptors.
///
/// # Errors
/// The kernel's: EPIPE when the other side is gone.
pub fn send(socket: &impl AsFd, value: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(value)?;
    let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    let rights = if numbers.is_empty() { &[] } else { &rights[..] };
    let parts = [IoSlice::new(&bytes)];
    sendmsg::<()>(socket.as_fd().as_raw_fd(), &parts, rights, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// Waits for the next packet; `None` when the other side is gone.
///
/// # Errors
/// The kernel's; what is no value of this kind.
pub fn receive<T: DeserializeOwned>(socket: &impl AsFd) -> io::Result<Option<Packet<T>>> {
    loop {
        match receive_bytes(socket, MsgFlags::empty()) {
            Err(Errno::EINTR) => {}
            received => return understood(received?),
        }
    }
}

/// The next packet, if one is there; `Some(None)` when the other side is gone.
///
/// # Errors
/// As of [`receive`].
pub fn receive_if_there<T: DeserializeOwned>(socket: &impl AsFd) -> io::Result<Option<Option<Packet<T>>>> {
    match receive_bytes(socket, MsgFlags::MSG_DONTWAIT) {
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
        received => understood(received?).map(Some),
    }
}

fn understood<T: DeserializeOwned>((bytes, descriptors): Packet<Vec<u8>>) -> io::Result<Option<Packet<T>>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(&bytes)?, descriptors)))
}

fn receive_bytes(socket: &impl AsFd, flags: MsgFlags) -> nix::Result<Packet<Vec<u8>>> {
    match receive_once(socket, flags) {
        // The other side is gone and has left something unread. What it had said before comes after this.
        Err(Errno::ECONNRESET) => receive_once(socket, flags),
        received => received,
    }
}

fn receive_once(socket: &impl AsFd, flags: MsgFlags) -> nix::Result<Packet<Vec<u8>>> {
    let mut bytes = vec![0; PACKET_BYTES_MAX];
    let mut rights = cmsg_space!([RawFd; DESCRIPTORS_MAX]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
    let received = recvmsg::<UnixAddr>(socket.as_fd().as_raw_fd(), &mut parts, Some(&mut rights), flags)?;
    let mut descriptors = Vec::new();
    for control in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = control {
            // SAFETY: the kernel has just made these descriptors for us, and nobody else owns them.
            descriptors.extend(numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
        }
    }
    let length = received.bytes;
    bytes.truncate(length);
    Ok((bytes, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_arrive_one_by_one_with_their_descriptors_and_then_the_end() {
        let (one, other) = pair().unwrap();
        assert!(receive_if_there::<String>(&other).unwrap().is_none());
        let null = std::fs::File::open("/dev/null").unwrap();
        let long = "x".repeat(5000);
        send(&one, &"first", &[null.as_fd(), null.as_fd()]).unwrap();
        send(&one, &long, &[]).unwrap();
        drop(one);
        let (first, descriptors) = receive::<String>(&other).unwrap().unwrap();
        assert_eq!((first.as_str(), descriptors.len()), ("first", 2));
        assert_eq!(receive_if_there::<String>(&other).unwrap().flatten().unwrap().0, long);
        assert!(receive::<String>(&other).unwrap().is_none());
        assert!(matches!(receive_if_there::<String>(&other), Ok(Some(None))));
    }

    #[test]
    fn last_words_are_heard_of_one_who_has_not_listened() {
        let (one, other) = pair().unwrap();
        send(&other, &1, &[]).unwrap();
        send(&one, &2, &[]).unwrap();
        drop(one);
        assert_eq!(receive::<i32>(&other).unwrap().unwrap().0, 2);
        assert!(receive::<i32>(&other).unwrap().is_none());
        assert_eq!(send(&other, &3, &[]).unwrap_err().raw_os_error(), Some(libc::EPIPE));
    }
}
