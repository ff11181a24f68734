//! What restarter, guard and filler say to each other: packets over pairs of sockets.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, recvmsg, sendmsg,
    socketpair,
};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Longer than any word.
const WORD_BYTES_MAX: usize = 16 << 10;

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// By the filler: everything that it needs is open.
    Ready,
    /// By the filler: it cannot, for this reason, and ends.
    Refused(String),
    /// By the restarter: a process of the job by its number, with its userfaultfd and pidfd.
    Process {
        /// Its number in the job.
        number: usize,
        /// Its pid.
        pid: i32,
    },
    /// By the restarter: these were all.
    Complete,
    /// By the filler: the userfaultfd of a process that one of the job has made.
    Copy,
}

/// One end.
#[derive(Debug)]
pub struct Link(OwnedFd);

impl Link {
    /// Both ends.
    pub fn pair() -> Result<(Link, Link)> {
        let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC);
        pair.map(|(one, other)| (Link(one), Link(other))).map_err(|source| failed(source.into()))
    }

    /// Says something, with descriptors.
    pub fn say(&self, word: &Word, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let bytes = serde_json::to_vec(word).map_err(|error| failed(std::io::Error::other(error)))?;
        let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        let rights = if numbers.is_empty() { &rights[..0] } else { &rights[..] };
        let sent = sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(&bytes)], rights, MsgFlags::MSG_NOSIGNAL, None);
        sent.map(drop).map_err(|source| failed(source.into()))
    }

    /// Waits for the next word, with its descriptors; `None` when the other side is gone.
    pub fn listen(&self) -> Result<Option<(Word, Vec<OwnedFd>)>> {
        let (bytes, descriptors) = loop {
            match self.receive() {
                Err(Errno::EINTR) => {}
                // It is gone and has left something unread; what it has said is still there.
                Err(Errno::ECONNRESET) => {}
                Err(source) => return Err(failed(source.into())),
                Ok(received) => break received,
            }
        };
        if bytes.is_empty() {
            return Ok(None);
        }
        let word = serde_json::from_slice(&bytes).map_err(|error| failed(std::io::Error::other(error)))?;
        Ok(Some((word, descriptors)))
    }

    fn receive(&self) -> nix::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut bytes = vec![0; WORD_BYTES_MAX];
        let mut rights = cmsg_space!([RawFd; 2]);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let received = recvmsg::<UnixAddr>(self.0.as_raw_fd(), &mut parts, Some(&mut rights), flags)?;
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
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn failed(source: std::io::Error) -> Error {
    Error::io("talk to", "the processes that bring memory later", source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_arrive_with_their_descriptors_and_then_the_end() {
        let (one, other) = Link::pair().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let said = Word::Process { number: 3, pid: 4711 };
        one.say(&said, &[null.as_fd(), null.as_fd()]).unwrap();
        one.say(&Word::Complete, &[]).unwrap();
        drop(one);
        let (word, descriptors) = other.listen().unwrap().unwrap();
        assert_eq!((word, descriptors.len()), (said, 2));
        assert_eq!(other.listen().unwrap().unwrap().0, Word::Complete);
        assert!(other.listen().unwrap().is_none());
    }
}
