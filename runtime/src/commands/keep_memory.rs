//! `ckpt keep-memory`: has the descriptors that it was started with, and lets them be fetched by whoever may trace processes of its
//! user. It ends with the process whose pidfd its standard input is, or by SIGTERM.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::print;
use crate::error::{Error, Result, exit_code};

/// Runs the command.
pub fn execute() -> Result<u8> {
    // SAFETY: takes a number. Without Yama there is no such thing, and no need for it.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
    print("ready\n")?;
    let program = std::io::stdin();
    loop {
        match poll(&mut [PollFd::new(program.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(exit_code::DONE),
            Err(error) => return Err(Error::io("wait for the end of", "the program", error)),
        }
    }
}
