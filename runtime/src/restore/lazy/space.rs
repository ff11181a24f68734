//! One address space of which pages are missing.
//!
//! What is told by the userfaultfd is taken note of under the lock, and pages are put there under it: the kernel refuses
//! every copy from the moment the program changes a mapping until that has been read, so a copy that succeeds has gone
//! where the page belongs.

use std::ops::Range as Span;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use ckpt_store::PAGE_BYTES;
use nix::errno::Errno;

use super::pages::{Pages, Piece};
use super::userfaultfd::{Copied, Event, Userfaultfd};
use crate::error::{Error, Result};

/// Until the filler has taken note of a change.
const CHANGE_PAUSE: Duration = Duration::from_micros(50);

/// An address space.
#[derive(Debug)]
pub struct Space {
    userfaultfd: Userfaultfd,
    pages: RwLock<Pages>,
    /// How many windows of all memory are there.
    done: AtomicUsize,
    is_gone: AtomicBool,
}

impl Space {
    /// One that has the first `done` windows of what belongs to `pages`.
    pub fn new(userfaultfd: Userfaultfd, pages: Pages, done: usize) -> Space {
        Space { userfaultfd, pages: RwLock::new(pages), done: AtomicUsize::new(done), is_gone: AtomicBool::new(false) }
    }

    /// How many windows are there.
    pub fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }

    /// One window more is there.
    pub fn count(&self) {
        self.done.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether the process has ended, or executes another program.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::SeqCst)
    }

    /// Takes note of all that has been told. Gives the addresses that somebody waits for, and the copies of this space with
    /// their userfaultfds.
    pub fn take_note(&self) -> Result<(Vec<u64>, Vec<Space>)> {
        let (mut faults, mut copies) = (Vec::new(), Vec::new());
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        while let Some(event) = self.userfaultfd.next_event().map_err(failed)? {
            match event {
                Event::Fault(address) => faults.push(address),
                Event::Moved { from, to, bytes } => pages.shift(from, to, bytes),
                Event::Removed(start, end) => pages.remove(start..end),
                // All windows that are complete here are there; the one that is being brought may not be.
                Event::Fork(userfaultfd) => {
                    copies.push(Space::new(Userfaultfd::of(userfaultfd), pages.clone(), self.done()));
                }
            }
        }
        Ok((faults, copies))
    }

    /// What belongs to `address` and around it, at most `most` pages.
    pub fn around(&self, address: u64, most: u64) -> Option<Piece> {
        self.pages.read().unwrap_or_else(PoisonError::into_inner).around(address, most)
    }

    /// Puts the pages of range `range` from `first` on to where they belong now, unless something is there already.
    pub fn put(&self, range: usize, first: usize, content: &[u8]) -> Result<()> {
        let wanted = first..first + content.len() / PAGE_BYTES;
        let of = |pages: &Span<usize>| &content[(pages.start - first) * PAGE_BYTES..(pages.end - first) * PAGE_BYTES];
        while !self.is_gone() {
            let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
            let mut copied = Copied::Done;
            for (address, part) in pages.places_of(range, wanted.clone()) {
                copied = self.userfaultfd.copy(address, of(&part)).map_err(failed)?;
                if copied != Copied::Done {
                    break;
                }
            }
            drop(pages);
            match copied {
                Copied::Done => return Ok(()),
                Copied::Gone => self.is_gone.store(true, Ordering::SeqCst),
                Copied::Later => std::thread::sleep(CHANGE_PAUSE),
            }
        }
        Ok(())
    }

    /// Nothing of the checkpoint belongs to `address`.
    pub fn put_zeros(&self, address: u64) -> Result<()> {
        match self.userfaultfd.put_zeros(address).map_err(failed)? {
            Copied::Gone => self.is_gone.store(true, Ordering::SeqCst),
            // Whoever waits is told to look again, and asks again.
            Copied::Done | Copied::Later => {}
        }
        Ok(())
    }

    /// Whoever waits for `address` looks again, and asks again if the page is still missing.
    pub fn wake(&self, address: u64) -> Result<()> {
        match self.userfaultfd.wake(address) {
            Err(Errno::ESRCH) => Ok(()),
            woken => woken.map_err(failed),
        }
    }
}

impl AsFd for Space {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.userfaultfd.as_fd()
    }
}

fn failed(source: Errno) -> Error {
    Error::io("bring memory with", "a userfaultfd", source)
}
