//! Descriptors that system calls return which neither std nor nix wraps, and what they say.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::error::{Error, Result};
use crate::filtered;

/// `fcntl`, since Linux 6.10: whether two descriptors of the caller are one open file description.
const F_DUPFD_QUERY: i32 = 1024 + 3;
/// `fcntl`: which signal tells the owner of a file description that it is ready.
const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;
/// Signals that no program chooses for that.
const UNUSUAL_SIGNALS: [i32; 2] = [62, 63];

/// What a system call that makes a descriptor has returned.
///
/// # Errors
/// The kernel's.
pub fn made(returned: impl Into<i64>) -> nix::Result<OwnedFd> {
    let number = returned.into();
    // SAFETY: the kernel has just returned this descriptor, and nobody else owns it.
    Errno::result(number).map(|number| unsafe { OwnedFd::from_raw_fd(number as RawFd) })
}

/// Has all descriptors of this process above 2 closed when it executes another program. For children between fork and exec: it makes
/// one system call.
///
/// # Errors
/// The kernel's.
pub fn close_inherited_on_exec() -> nix::Result<()> {
    // SAFETY: it takes numbers, and marks descriptors of this process alone.
    let marked = unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC.cast_signed()) };
    Errno::result(marked).map(drop)
}

/// A pidfd of process `pid`: becomes readable when it ends, even if that sends no SIGCHLD.
///
/// # Errors
/// [`Error::ProgramGone`] if there is no such process; the kernel's.
pub fn pidfd_open(pid: i32) -> Result<OwnedFd> {
    let opened = match filtered::is_deadly(libc::SYS_pidfd_open, 0) {
        true => Err(Errno::EPERM),
        // SAFETY: takes numbers only.
        false => made(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }),
    };
    match opened {
        Err(Errno::ESRCH | Errno::EINVAL) => Err(Error::ProgramGone { pid }),
        // The kernel itself lets everybody open everybody's.
        Err(errno @ (Errno::EPERM | Errno::ENOSYS | Errno::EACCES)) => Err(Error::environment(
            format!("watching process {pid}"),
            format!("pidfd_open is forbidden here ({})", errno.desc()),
            filtered::ALLOW,
        )),
        opened => opened.map_err(|source| Error::io("open a pidfd of", format!("/proc/{pid}"), source)),
    }
}

/// Whether the process behind `pidfd` has ended.
pub fn has_ended(pidfd: &OwnedFd) -> bool {
    ends_within(pidfd, Duration::ZERO) == Ok(true)
}

/// Whether the process behind `pidfd` has ended, or does so in time.
///
/// # Errors
/// The kernel's.
pub fn ends_within(pidfd: &OwnedFd, time: Duration) -> nix::Result<bool> {
    let deadline = Instant::now() + time;
    loop {
        let left =
            PollTimeout::try_from(deadline.saturating_duration_since(Instant::now())).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)], left) {
            Err(Errno::EINTR) => {}
            outcome => return outcome.map(|ready| ready > 0),
        }
    }
}

/// What came of something, or nothing if the process that it was about has ended meanwhile.
///
/// # Errors
/// That of `outcome`, if it has not.
pub fn unless_ended<T>(pidfd: &OwnedFd, outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Err(Error::ProgramGone { .. }) => Ok(None),
        Err(_) if has_ended(pidfd) => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// A duplicate of descriptor `number` of the process behind `pidfd`.
///
/// # Errors
/// The kernel's.
pub fn pidfd_getfd(pidfd: BorrowedFd<'_>, number: i32) -> Result<OwnedFd> {
    if let Err(errno) = can_fetch() {
        return Err(Error::environment(
            format!("fetching descriptor {number} of the program"),
            format!("pidfd_getfd is forbidden here ({})", errno.desc()),
            filtered::ALLOW,
        ));
    }
    // SAFETY: takes numbers only.
    made(unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0) })
        .map_err(|source| Error::io("fetch a descriptor of the program", format!("fd/{number}"), source))
}

/// Whether descriptors of other processes can be fetched, or why not: by a call on this process, which nothing but a filter, or a
/// kernel without it, refuses. Found out once.
pub fn can_fetch() -> nix::Result<()> {
    static FOUND: OnceLock<nix::Result<()>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        if filtered::is_deadly(libc::SYS_pidfd_getfd, 0) || filtered::is_deadly(libc::SYS_pidfd_open, 0) {
            return Err(Errno::EPERM);
        }
        // SAFETY: both take numbers only.
        let own = made(unsafe { libc::syscall(libc::SYS_pidfd_open, std::process::id(), 0) })?;
        // SAFETY: as above.
        made(unsafe { libc::syscall(libc::SYS_pidfd_getfd, own.as_raw_fd(), own.as_raw_fd(), 0) }).map(drop)
    })
}

/// Whether two descriptors of this process are one open file description.
///
/// # Errors
/// The kernel's.
pub fn are_duplicates(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> nix::Result<bool> {
    // SAFETY: takes numbers only.
    match Errno::result(unsafe { libc::fcntl(a.as_raw_fd(), F_DUPFD_QUERY, b.as_raw_fd()) }) {
        Err(Errno::EINVAL) => have_one_signal(a, b),
        answer => answer.map(|answer| answer == 1),
    }
}

/// The same on an older kernel: a description has one signal, which means nothing as long as it is not asked to send one.
fn have_one_signal(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> nix::Result<bool> {
    // SAFETY: takes numbers only.
    let ask = |of: BorrowedFd<'_>| Errno::result(unsafe { libc::fcntl(of.as_raw_fd(), F_GETSIG) });
    // SAFETY: as above.
    let set = |to: i32| Errno::result(unsafe { libc::fcntl(a.as_raw_fd(), F_SETSIG, to) }).map(drop);
    let (before, other) = match (ask(a), ask(b)) {
        // What was opened by O_PATH has no position, and nothing else that two descriptions would not have alike.
        (Err(Errno::EBADF), _) | (_, Err(Errno::EBADF)) => return Ok(false),
        (before, other) => (before?, other?),
    };
    if before != other {
        return Ok(false);
    }
    let unusual = UNUSUAL_SIGNALS.into_iter().find(|&signal| signal != before).unwrap_or_default();
    set(unusual)?;
    let after = ask(b);
    set(before)?;
    Ok(after? == unusual)
}

/// Ends the process behind `pidfd`, whoever has its pid by now.
///
/// # Errors
/// The kernel's: ESRCH if it has ended.
pub fn kill(pidfd: BorrowedFd<'_>) -> nix::Result<()> {
    let (pidfd, no_info) = (pidfd.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
    // SAFETY: takes numbers and a null pointer.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd, libc::SIGKILL, no_info, 0) };
    Errno::result(sent).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_descriptor_of_a_process_is_fetched_and_a_process_that_is_not_there_is_gone() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let own = pidfd_open(std::process::id() as i32).unwrap();
        let fetched = pidfd_getfd(own.as_fd(), null.as_raw_fd()).unwrap();
        let device = |of: &OwnedFd| std::fs::read_link(format!("/proc/self/fd/{}", of.as_raw_fd())).unwrap();
        assert_eq!(device(&fetched).to_str(), Some("/dev/null"));
        assert!(pidfd_getfd(own.as_fd(), i32::MAX).is_err());
        // Larger than any pid can be.
        assert!(matches!(pidfd_open(1 << 23), Err(Error::ProgramGone { pid }) if pid == 1 << 23));
    }

    /// Two descriptors of one description, and one of another of the same file.
    fn three() -> [std::fs::File; 3] {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let duplicate = file.try_clone().unwrap();
        [file, duplicate, std::fs::File::open("/proc/self/exe").unwrap()]
    }

    #[test]
    fn duplicates_are_told_from_files_that_were_opened_twice() {
        let [file, duplicate, other] = three();
        for are_alike in [are_duplicates, have_one_signal] {
            assert!(are_alike(file.as_fd(), duplicate.as_fd()).unwrap());
            assert!(!are_alike(file.as_fd(), other.as_fd()).unwrap());
        }
    }

    #[test]
    fn the_signal_of_a_file_is_left_as_it_was() {
        let [file, duplicate, other] = three();
        // SAFETY: takes numbers only.
        let signal = |of: &std::fs::File| unsafe { libc::fcntl(of.as_raw_fd(), F_GETSIG) };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, UNUSUAL_SIGNALS[0]) }, 0);
        assert!(have_one_signal(file.as_fd(), duplicate.as_fd()).unwrap());
        assert!(!have_one_signal(file.as_fd(), other.as_fd()).unwrap());
        assert_eq!((signal(&file), signal(&other)), (UNUSUAL_SIGNALS[0], 0));
    }
}
