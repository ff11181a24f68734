//! The calls of a userfaultfd that is told of missing pages.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use ckpt_store::PAGE_BYTES;
use nix::errno::Errno;

use crate::descriptor::{self, can_fetch};
use crate::filtered;
use crate::userfaultfd::{self, Partly, RangeArgument};

/// How it is made. Not for faults of the program's own code alone: read(2) into a page that is missing has to wait too.
pub const FLAGS: u64 = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;

const EVENT_FORK: u64 = 1 << 1;
const EVENT_REMAP: u64 = 1 << 2;
const EVENT_REMOVE: u64 = 1 << 3;
const EVENT_UNMAP: u64 = 1 << 6;
/// All that is done to memory is told.
const FEATURES: u64 = EVENT_FORK | EVENT_REMAP | EVENT_REMOVE | EVENT_UNMAP;
const MESSAGE_BYTES: usize = 32;
const PAGE: u64 = PAGE_BYTES as u64;

#[repr(C)]
struct ZeroArgument {
    range: RangeArgument,
    mode: u64,
    zeroed: i64,
}

nix::ioctl_read!(uffdio_wake, 0xAA, 0x02, RangeArgument);
nix::ioctl_readwrite!(uffdio_zeropage, 0xAA, 0x04, ZeroArgument);

/// What the kernel tells.
#[derive(Debug)]
pub enum Event {
    /// Somebody waits for the page of this address.
    Fault(u64),
    /// There is a copy of all memory now, and this is its userfaultfd.
    Fork(OwnedFd),
    /// Memory has moved.
    Moved {
        /// From where.
        from: u64,
        /// To where.
        to: u64,
        /// How much.
        bytes: u64,
    },
    /// From here to there the content is gone: the mapping too, or what is touched next is zeros.
    Removed(u64, u64),
}

/// How a copy went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// As far as there is memory, and none of it was there before, it is there now.
    Done,
    /// Something has been done to the memory that has not been told yet: look again afterwards.
    Later,
    /// The process has ended, or executes another program.
    Gone,
}

/// A userfaultfd of some process.
#[derive(Debug)]
pub struct Userfaultfd(OwnedFd);

/// Why this process cannot be told of missing pages and all that happens to them.
pub fn is_permitted() -> Result<(), String> {
    if filtered::is_deadly(libc::SYS_userfaultfd, FLAGS) {
        return Err("a seccomp filter ends who calls userfaultfd".to_owned());
    }
    can_fetch().map_err(|errno| format!("pidfd_getfd: {}", errno.desc()))?;
    // SAFETY: takes flags, and gives a descriptor.
    let make = |flags: u64| descriptor::made(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) });
    let explain = |errno| match errno {
        // Everybody may have one that is told of less.
        Errno::EPERM if make(FLAGS | userfaultfd::USER_MODE_ONLY).is_ok() => {
            "userfaultfd: CAP_SYS_PTRACE is needed".to_owned()
        }
        errno => format!("userfaultfd: {}", errno.desc()),
    };
    make(FLAGS).and_then(Userfaultfd::set_up).map(drop).map_err(explain)
}

impl Userfaultfd {
    /// One that nobody has told yet what it is for.
    pub fn set_up(descriptor: OwnedFd) -> Result<Userfaultfd, Errno> {
        userfaultfd::set_up(&descriptor, FEATURES)?;
        Ok(Userfaultfd(descriptor))
    }

    /// One that has been set up.
    pub fn of(descriptor: OwnedFd) -> Userfaultfd {
        Userfaultfd(descriptor)
    }

    /// From now on who touches a missing page there waits.
    pub fn register(&self, address: u64, bytes: u64) -> Result<(), Errno> {
        userfaultfd::register(self, address, bytes, userfaultfd::MODE_MISSING)
    }

    /// The next event, if there is one.
    pub fn next_event(&self) -> Result<Option<Event>, Errno> {
        let mut message = [0; MESSAGE_BYTES];
        match nix::unistd::read(&self.0, &mut message) {
            Ok(MESSAGE_BYTES) => Ok(event(&message)),
            Ok(_) => Err(Errno::EPROTO),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Puts `content` to `address`, page by page, where there is none yet.
    pub fn copy(&self, address: u64, content: &[u8]) -> Result<Copied, Errno> {
        let end = address + content.len() as u64;
        let mut rest = content;
        // Smaller from where mappings have been split, or something is there already.
        let mut most = content.len();
        while !rest.is_empty() {
            let at = end - rest.len() as u64;
            let next = rest.len().min(most);
            match userfaultfd::copy(self, at, &rest[..next]) {
                Ok(()) => rest = &rest[next..],
                // What is wrong with the next page is told again.
                Err(Partly { bytes: copied @ 1.., .. }) => rest = &rest[copied as usize..],
                Err(Partly { errno: Errno::EEXIST, .. }) => {
                    self.wake(at)?;
                    rest = &rest[PAGE_BYTES..];
                }
                Err(Partly { errno: Errno::ENOENT | Errno::EINVAL, .. }) if most > PAGE_BYTES => most = PAGE_BYTES,
                // There is no such mapping any more.
                Err(Partly { errno: Errno::ENOENT, .. }) => rest = &rest[PAGE_BYTES..],
                Err(Partly { errno: Errno::EAGAIN, .. }) => return Ok(Copied::Later),
                Err(Partly { errno: Errno::ESRCH, .. }) => return Ok(Copied::Gone),
                Err(Partly { errno, .. }) => return Err(errno),
            }
        }
        Ok(Copied::Done)
    }

    /// The page at `address` is zeros.
    pub fn put_zeros(&self, address: u64) -> Result<Copied, Errno> {
        let mut argument = ZeroArgument { range: RangeArgument { start: address, bytes: PAGE }, mode: 0, zeroed: 0 };
        // SAFETY: reads and writes one struct uffdio_zeropage.
        match unsafe { uffdio_zeropage(self.0.as_raw_fd(), &mut argument) } {
            Ok(_) => Ok(Copied::Done),
            Err(Errno::EEXIST) => self.wake(address).map(|()| Copied::Done),
            Err(Errno::ENOENT) => self.wake(address).map(|()| Copied::Done),
            Err(Errno::EAGAIN) => Ok(Copied::Later),
            Err(Errno::ESRCH) => Ok(Copied::Gone),
            Err(errno) => Err(errno),
        }
    }

    /// Has whoever waits for the page at `address` look again.
    pub fn wake(&self, address: u64) -> Result<(), Errno> {
        let mut argument = RangeArgument { start: address, bytes: PAGE };
        // SAFETY: reads one struct uffdio_range.
        unsafe { uffdio_wake(self.0.as_raw_fd(), &mut argument) }.map(drop)
    }
}

impl AsFd for Userfaultfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What is in a `struct uffd_msg`; none if it is of no kind that was asked for.
fn event(message: &[u8; MESSAGE_BYTES]) -> Option<Event> {
    let (words, _) = message.as_chunks::<8>();
    let [_, first, second, third] = [0, 1, 2, 3].map(|word| u64::from_ne_bytes(words[word]));
    match message[0] {
        0x12 => Some(Event::Fault(second & !(PAGE - 1))),
        // SAFETY: the kernel has made the descriptor for whoever reads this message.
        0x13 => Some(Event::Fork(unsafe { OwnedFd::from_raw_fd(first as u32 as i32) })),
        0x14 => Some(Event::Moved { from: first, to: second, bytes: third }),
        0x15 | 0x16 => Some(Event::Removed(first, second)),
        _ => None,
    }
}
