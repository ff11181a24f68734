//! `ckpt keep-memory`: has the descriptors that it was started with, and lets them be fetched by whoever may trace processes of its
//! user, until the program that they are kept for has ended or has its memory again. Its standard input is a pidfd of that, and its
//! standard output a pipe to the agent.

use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;

use ckpt_wire::device::{DEVICES_THERE, Hold};
use clap::Args;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::print;
use crate::core_dumps;
use crate::error::{Error, Result, exit_code};
use crate::proc::oom;
use crate::ptrace::read_memory;

/// How often it looks whether it is needed, once the agent does not need it, in ms.
const LOOKS_EVERY_MS: u16 = 500;

/// Keep device memory for a program whose devices are suspended
#[derive(Args)]
pub struct Arguments {
    /// The program
    #[arg(long)]
    pid: i32,
    /// Where it shares with ckpt what it has on devices
    #[arg(long)]
    hold: u64,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> Result<u8> {
    core_dumps::forbid();
    // SAFETY: takes a number. Without Yama there is no such thing, and no need for it.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
    oom::end_like(arguments.pid);
    print("ready\n")?;
    let (program, agent) = (io::stdin(), io::stdout());
    let mut has_agent = true;
    loop {
        let mut events = vec![PollFd::new(program.as_fd(), PollFlags::POLLIN)];
        if has_agent {
            events.push(PollFd::new(agent.as_fd(), PollFlags::empty()));
        }
        let wait = if has_agent { PollTimeout::NONE } else { PollTimeout::from(LOOKS_EVERY_MS) };
        match poll(&mut events, wait) {
            Ok(_) if events[0].any() == Some(true) => return Ok(exit_code::DONE),
            Ok(_) => has_agent = false,
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(Error::io("wait for the end of", "the program", error)),
        }
        if !is_needed(arguments) {
            return Ok(exit_code::DONE);
        }
    }
}

/// Whether the program has not fetched its memory yet. Where Yama lets nobody but the agent see, it does as long as it is there.
fn is_needed(Arguments { pid, hold }: &Arguments) -> bool {
    let number = |offset: usize| {
        let mut bytes = [0; 4];
        read_memory(*pid, hold + offset as u64, &mut bytes).ok().map(|()| u32::from_ne_bytes(bytes))
    };
    let is_there = number(offset_of!(Hold, devices)) == Some(DEVICES_THERE);
    let is_kept_here = number(offset_of!(Hold, kept_by)).is_none_or(|by| by == std::process::id());
    !is_there && is_kept_here
}
