//! What the first process of the program's pid namespace and `ckpt restart` outside say to each other.
//!
//! The first process is the program's parent and sees how it fares; `ckpt restart` is what the user started, and is to
//! behave like the program. Neither depends on the other's life.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};
use serde::{Deserialize, Serialize};

use super::status::Event;
use crate::descriptor::pidfd_open;
use crate::error::{Error, Result};
use crate::packets::{self, Packet};

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
        let (one, other) = packets::pair()
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
        let handle = pidfd_open(pid)?;
        self.say(&Message::Complete, Some(handle.as_fd()))
    }

    /// Says why the program could not be made. Nobody there to hear it needs no answer.
    pub fn say_failed(&self, error: &Error) {
        let _ = self.say(&Message::Failed { message: error.to_string(), exit_code: error.exit_code() }, None);
    }

    /// Says something, with a descriptor if one belongs to it.
    pub fn say(&self, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> Result<()> {
        packets::send(self, message, descriptor.as_slice()).map_err(failed)
    }

    /// Waits for the next message; `None` when the other side is gone.
    pub fn listen(&self) -> Result<Option<Packet<Message>>> {
        packets::receive(self).map_err(failed)
    }

    /// What the program's status has changed to, if something has been said. Somebody who says nothing any more has been
    /// killed, and its whole pid namespace with it.
    pub fn next_event(&self) -> Result<Option<Event>> {
        Ok(match packets::receive_if_there(self).map_err(failed)? {
            Some(Some((Message::Changed(event), _))) => Some(event),
            Some(None) => Some(Event::Killed(libc::SIGKILL)),
            None | Some(Some(_)) => None,
        })
    }

    /// Waits until the other side is gone; what it still says is not of interest.
    pub fn wait_for_the_end(&self) {
        while let Ok(Some(_)) = self.listen() {}
    }
}

impl AsFd for Relay {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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
        assert!(first == Message::Complete && descriptor.len() == 1);
        assert_eq!(outside.next_event().unwrap(), Some(Event::Stopped(20)));
        assert_eq!(outside.listen().unwrap().unwrap().0, failure);
        drop(inside);
        assert_eq!(outside.next_event().unwrap(), Some(Event::Killed(libc::SIGKILL)));
        assert!(outside.listen().unwrap().is_none());
    }
}
