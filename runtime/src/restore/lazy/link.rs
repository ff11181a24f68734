//! What restarter, guard and filler say to each other.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::packets::{self, Packet};

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
        packets::pair().map(|(one, other)| (Link(one), Link(other))).map_err(|source| failed(source.into()))
    }

    /// Says something, with descriptors.
    pub fn say(&self, word: &Word, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        packets::send(self, word, descriptors).map_err(failed)
    }

    /// Waits for the next word, with its descriptors; `None` when the other side is gone.
    pub fn listen(&self) -> Result<Option<Packet<Word>>> {
        packets::receive(self).map_err(failed)
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
