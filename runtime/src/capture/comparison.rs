//! Whether processes have one and the same object: a file, memory, a table.
//!
//! `kcmp` answers it. Containers forbid that call unless they are given CAP_SYS_PTRACE, and then each question is answered by what else
//! there is.

use std::cmp::Ordering;
use std::os::fd::AsFd;
use std::sync::Once;

use nix::errno::Errno;

use super::sent::Source;
use crate::descriptor::are_duplicates;
use crate::error::{Error, Result};
use crate::filtered;

const KCMP_FILE: i32 = 0;
const KCMP_EPOLL_TFD: i32 = 7;

/// A descriptor of a process.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The process.
    pub pid: i32,
    /// How its descriptors are fetched.
    pub source: Source<'a>,
    /// The descriptor's number.
    pub number: i32,
}

/// The call itself, unless a filter would end us for it.
fn kcmp(a: i32, b: i32, what: i32, first: u64, second: u64) -> nix::Result<i64> {
    if filtered::is_deadly(libc::SYS_kcmp, 0) {
        return Err(Errno::EPERM);
    }
    // SAFETY: the kernel reads one `EpollSlot` at `second` if it is asked about one, and the caller has it there.
    Errno::result(unsafe { libc::syscall(libc::SYS_kcmp, a, b, what, first, second) })
}

/// Whether two descriptors are one open file description.
pub fn same_open_file(a: Place<'_>, b: Place<'_>) -> Result<bool> {
    match kcmp(a.pid, b.pid, KCMP_FILE, a.number as u64, b.number as u64) {
        Ok(order) => Ok(order == 0),
        Err(errno) if is_forbidden(errno) => {
            let (own_a, own_b) = (a.source.fetch(a.number)?, b.source.fetch(b.number)?);
            are_duplicates(own_a.as_fd(), own_b.as_fd()).map_err(|source| failed("descriptors", a, source))
        }
        Err(source) => Err(failed("descriptors", a, source)),
    }
}

/// What an epoll instance watches, as the kernel takes it: the instance's number, the number under which something was added, and how many
/// with that number come before it.
#[repr(C)]
struct EpollSlot {
    epoll: u32,
    target: u32,
    offset: u32,
}

/// Whether a descriptor is the open file description that the epoll instance `epoll` watches under the number `target`, the one behind
/// `before` others with that number. Where the kernel does not tell, it is if it still has that number: a file that is closed is no
/// longer watched, unless it lives on under another number.
pub fn is_watched(descriptor: (i32, i32), epoll: (i32, i32), target: i32, before: usize) -> Result<bool> {
    let slot = EpollSlot { epoll: epoll.1 as u32, target: target as u32, offset: before as u32 };
    let at = (&raw const slot) as u64;
    match kcmp(descriptor.0, epoll.0, KCMP_EPOLL_TFD, descriptor.1 as u64, at) {
        Ok(order) => Ok(order == 0),
        Err(errno) if is_forbidden(errno) => Ok(before == 0 && descriptor == (epoll.0, target)),
        Err(source) => {
            Err(Error::io("compare (kcmp) what is watched by", format!("/proc/{}/fd/{}", epoll.0, epoll.1), source))
        }
    }
}

/// How the `what` of two threads, or main threads of processes, stand to each other in an order that lasts: equal if they have one and
/// the same. `None` where the kernel does not tell.
pub fn order(a: i32, b: i32, what: Shared) -> nix::Result<Option<Ordering>> {
    match kcmp(a, b, what as i32, 0, 0) {
        Ok(0) => Ok(Some(Ordering::Equal)),
        Ok(1) => Ok(Some(Ordering::Less)),
        Ok(_) => Ok(Some(Ordering::Greater)),
        Err(errno) if is_forbidden(errno) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// What two processes may have together, by the kernel's numbers.
#[derive(Clone, Copy, Debug)]
pub enum Shared {
    /// Their memory.
    Memory = 1,
    /// Their descriptor table.
    Descriptors = 2,
    /// Working directory, root and umask.
    FileSystem = 3,
}

/// Whether the call is not to be had here, which is said once.
fn is_forbidden(errno: Errno) -> bool {
    static SAID: Once = Once::new();
    let is_forbidden = matches!(errno, Errno::EPERM | Errno::ENOSYS);
    if is_forbidden {
        SAID.call_once(|| {
            log::info!("kcmp: {errno}; open files that several descriptors share are found by other means, and processes that share a table (clone) are not");
        });
    }
    is_forbidden
}

fn failed(what: &str, place: Place<'_>, source: Errno) -> Error {
    Error::io("compare", format!("{what} with /proc/{}/fd/{}", place.pid, place.number), source)
}
