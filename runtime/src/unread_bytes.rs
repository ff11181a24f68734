//! How much a program could read at once.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

/// The bytes that wait to be read from a pipe, a terminal, an inotify instance or a socket (FIONREAD); of datagrams, those of the first.
pub fn unread_bytes(descriptor: BorrowedFd<'_>) -> Result<usize, Errno> {
    let mut bytes = 0_i32;
    // SAFETY: FIONREAD writes one int to `bytes`.
    Errno::result(unsafe { libc::ioctl(descriptor.as_raw_fd(), libc::FIONREAD, &raw mut bytes) })?;
    Ok(bytes.max(0) as usize)
}
