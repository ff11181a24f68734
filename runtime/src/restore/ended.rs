//! A process that has ended, for descriptors that lead to one.

use std::os::fd::{OwnedFd, RawFd};
use std::ptr;

use nix::errno::Errno;

use super::child::end_with;
use super::clone_call::CloneArguments;
use crate::descriptor::made;

/// A child that ends by itself, and is waited for when this is dropped: until then it has its number.
pub struct Ended {
    pid: i32,
    pidfd: Option<OwnedFd>,
}

impl Ended {
    /// One that ends with `status`.
    ///
    /// # Errors
    /// The kernel's, if no process can be made.
    pub fn with(status: i32) -> nix::Result<Ended> {
        let mut pidfd: RawFd = -1;
        let arguments = CloneArguments {
            flags: libc::CLONE_PIDFD as u64,
            pidfd: ptr::from_mut(&mut pidfd) as u64,
            ..CloneArguments::default()
        };
        // SAFETY: without CLONE_VM the child has its own copy of everything; it only ends. The kernel writes one number to `pidfd`.
        match Errno::result(unsafe { libc::syscall(libc::SYS_clone3, &arguments, size_of::<CloneArguments>()) })? {
            0 => end_with(status),
            pid => Ok(Ended { pid: pid as i32, pidfd: Some(made(pidfd)?) }),
        }
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits for it; gives the descriptor that leads to it.
    pub fn wait(mut self) -> OwnedFd {
        self.pidfd.take().expect("it is taken here only")
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let mut status = 0;
        // SAFETY: waitpid writes one int.
        while unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) } == -1 && Errno::last() == Errno::EINTR {
        }
    }
}
