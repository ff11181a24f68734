//! What the first process of the program's pid namespace and `ckpt restart` outside say to each other.
//!
//! A socket of packets, one JSON value in each. The first process is the program's parent and sees how it fares;
//! `ckpt restart` is what the user started, and is to behave like the program. Neither depends on the other's life.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, getsockopt, recvmsg,
    sendmsg, socketpair, sockopt,
};
use serde::{Deserialize, Serialize};

use super::status::{Event, end_descriptor};
use crate::error::{Error, Result};

/// Bytes of the longest message: an error with a path or two in it.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// From outside: make the program.
    Begin {
        /// The supplementary groups outside, if there is a new user namespace.
        groups: Option<Vec<u32>>,
    },
    /// From inside: the program is complete and stands still. Its pidfd comes with this.
    Complete,
    /// From outside: let it run.
    Release,
    /// From inside: it runs.
    Runs,
    /// From inside: it could not be made, or not released.
    Failed {
        /// What `ckpt restart` says.
        message: String,
        /// What it ends with.
        exit_code: u8,
    },
    /// From inside: its status has changed.
    Changed(Event),
}

/// One end.
#[derive(Debug)]
pub struct Relay(OwnedFd);

impl Relay {
    /// Both ends. They are closed by exec.
    pub fn pair() -> Result<(Relay, Relay)> {
        let (one, other) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(|source| Error::io("make", "the channel to the program's pid namespace", source))?;
        Ok((Relay(one), Relay(other)))
    }

    /// The end that was left for us at descriptor `number` by [`Relay::leave_open`].
    ///
    /// # Errors
    /// If there is no socket.
    pub fn left_at(number: RawFd) -> Result<Relay> {
        // SAFETY: F_SETFD takes a number.
        let kept = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        Errno::result(kept).map_err(|source| failed(source.into()))?;
        // SAFETY: it is open, and was left there for nobody else.
        let relay = Relay(unsafe { OwnedFd::from_raw_fd(number) });
        getsockopt(&relay, sockopt::SockType).map_err(|source| failed(source.into()))?;
        Ok(relay)
    }

    /// Leaves this end open for the program that this process executes next, and gives its number.
    pub fn leave_open(&self) -> Result<RawFd> {
        // SAFETY: F_SETFD takes a number.
        let left = unsafe { libc::fcntl(self.number(), libc::F_SETFD, 0) };
        Errno::result(left).map_err(|source| failed(source.into()))?;
        Ok(self.number())
    }

    /// The descriptor's number.
    pub fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Says that our child `pid` is complete.
    pub fn say_complete(&self, pid: i32) -> Result<()> {
        let handle = end_descriptor(pid)?;
        self.say(&Message::Complete, Some(handle.as_fd()))
    }

    /// Says why the program could not be made. Nobody there to hear it needs no answer.
    pub fn say_failed(&self, error: &Error) {
        let _ = self.say(&Message::Failed { message: error.to_string(), exit_code: error.exit_code() }, None);
    }

    /// Says something, with a descriptor if one belongs to it.
    pub fn say(&self, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> Result<()> {
        let bytes = serde_json::to_vec(message).map_err(|error| failed(std::io::Error::other(error)))?;
        let numbers = descriptor.map(|descriptor| [descriptor.as_raw_fd()]);
        let rights: Vec<ControlMessage> = numbers.iter().map(|numbers| ControlMessage::ScmRights(numbers)).collect();
        let parts = [IoSlice::new(&bytes)];
        let sent = sendmsg::<()>(self.number(), &parts, &rights, MsgFlags::MSG_NOSIGNAL, None);
        sent.map(drop).map_err(|source| failed(source.into()))
    }

    /// Waits for the next message; `None` when the other side is gone.
    pub fn listen(&self) -> Result<Option<(Message, Option<OwnedFd>)>> {
        loop {
            match self.receive(MsgFlags::empty()) {
                Err(Errno::EINTR) => {}
                outcome => return understood(outcome),
            }
        }
    }

    /// What the program's status has changed to, if something has been said. Somebody who says nothing any more has been
    /// killed, and its whole pid namespace with it.
    pub fn next_event(&self) -> Result<Option<Event>> {
        match self.receive(MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            outcome => match understood(outcome)? {
                Some((Message::Changed(event), _)) => Ok(Some(event)),
                Some(_) => Ok(None),
                None => Ok(Some(Event::Killed(libc::SIGKILL))),
            },
        }
    }

    /// Waits until the other side is gone; what it still says is not of interest.
    pub fn wait_for_the_end(&self) {
        while let Ok(Some(_)) = self.listen() {}
    }

    fn receive(&self, flags: MsgFlags) -> nix::Result<(Vec<u8>, Option<OwnedFd>)> {
        match self.receive_once(flags) {
            // The other side is gone and has left something unread. What it had said before comes after this.
            Err(Errno::ECONNRESET) => self.receive_once(flags),
            outcome => outcome,
        }
    }

    fn receive_once(&self, flags: MsgFlags) -> nix::Result<(Vec<u8>, Option<OwnedFd>)> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut rights = cmsg_space!(RawFd);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
        let received = recvmsg::<UnixAddr>(self.number(), &mut parts, Some(&mut rights), flags)?;
        let mut descriptor = None;
        for control in received.cmsgs()? {
            if let ControlMessageOwned::ScmRights(numbers) = control {
                // SAFETY: the kernel has just made these descriptors for us, and nobody else owns them.
                descriptor = numbers.first().map(|&number| unsafe { OwnedFd::from_raw_fd(number) });
            }
        }
        let length = received.bytes;
        bytes.truncate(length);
        Ok((bytes, descriptor))
    }
}

impl AsFd for Relay {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A message out of what was received; `None` if that is the end.
fn understood(received: nix::Result<(Vec<u8>, Option<OwnedFd>)>) -> Result<Option<(Message, Option<OwnedFd>)>> {
    match received {
        Err(source) => Err(failed(source.into())),
        Ok((bytes, _)) if bytes.is_empty() => Ok(None),
        Ok((bytes, descriptor)) => match serde_json::from_slice(&bytes) {
            Ok(message) => Ok(Some((message, descriptor))),
            Err(error) => Err(failed(std::io::Error::other(error))),
        },
    }
}

fn failed(source: std::io::Error) -> Error {
    Error::io("talk to", "the other side of the program's pid namespace", source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_one_by_one_with_their_descriptors_and_the_end_is_a_kill() {
        let (inside, outside) = Relay::pair().unwrap();
        assert_eq!(outside.next_event().unwrap(), None);
        let null = std::fs::File::open("/dev/null").unwrap();
        inside.say(&Message::Complete, Some(null.as_fd())).unwrap();
        inside.say(&Message::Changed(Event::Stopped(20)), None).unwrap();
        let failure = Message::Failed { message: "x".repeat(5000), exit_code: 5 };
        inside.say(&failure, None).unwrap();
        let (first, descriptor) = outside.listen().unwrap().unwrap();
        assert!(first == Message::Complete && descriptor.is_some());
        assert_eq!(outside.next_event().unwrap(), Some(Event::Stopped(20)));
        assert_eq!(outside.listen().unwrap().unwrap().0, failure);
        drop(inside);
        assert_eq!(outside.next_event().unwrap(), Some(Event::Killed(libc::SIGKILL)));
        assert!(outside.listen().unwrap().is_none());
    }

    #[test]
    fn last_words_are_heard_of_one_who_has_not_listened() {
        let (inside, outside) = Relay::pair().unwrap();
        outside.say(&Message::Begin { groups: None }, None).unwrap();
        let failure = Message::Failed { message: "why".to_owned(), exit_code: 5 };
        inside.say(&failure, None).unwrap();
        drop(inside);
        assert_eq!(outside.listen().unwrap().unwrap().0, failure);
        assert!(outside.listen().unwrap().is_none());
    }
}
