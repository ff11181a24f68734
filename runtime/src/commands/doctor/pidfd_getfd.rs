//! Fetching a descriptor out of another process.

use std::os::fd::{AsRawFd, OwnedFd};

use super::finding::{Finding, State};
use super::trial::{Child, Failure, Outcome, in_child, unless_deadly};
use crate::descriptor::made;

const PROBE: &str = "pidfd_getfd";
const TRIED: &str = "fetch a pipe's end from a child";
const ADVICE: &str = "nothing needs to be done: programs send their descriptors instead, which takes a clone of each in the stop; \
                      allow pidfd_getfd in the container's seccomp profile for io_uring and GPUs";
const ADVICE_OPEN: &str = "use Linux 5.9 or newer and allow pidfd_open in the container's seccomp profile";

/// The probe.
pub fn probe() -> Finding {
    Finding::of(PROBE, TRIED, in_child(fetch), State::Degraded, ADVICE)
        .gives_up("io_uring instances and GPUs (pidfd_getfd)", "--cap-add SYS_PTRACE")
}

/// The probe of what all of ckpt follows processes by.
pub fn probe_open() -> Finding {
    let tried = "open a pidfd of a child";
    let outcome = in_child(|| open(&Child::idle()?).map(|_| "works".to_owned()));
    Finding::of("pidfd_open", tried, outcome, State::No, ADVICE_OPEN)
        .required()
        .gives_up("", "--security-opt seccomp=FILE")
}

fn open(child: &Child) -> Result<OwnedFd, Failure> {
    unless_deadly(&[libc::SYS_pidfd_open])?;
    // SAFETY: pidfd_open takes two integers.
    let pidfd = made(unsafe { libc::syscall(libc::SYS_pidfd_open, child.pid().as_raw(), 0) });
    pidfd.map_err(|errno| Failure::call("pidfd_open", errno))
}

fn fetch() -> Outcome {
    unless_deadly(&[libc::SYS_pidfd_getfd])?;
    let (end, _other) = nix::unistd::pipe().map_err(|errno| Failure::call("pipe", errno))?;
    let child = Child::idle()?;
    let pidfd = open(&child)?;
    // SAFETY: pidfd_getfd takes three integers.
    let fetched = made(unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), end.as_raw_fd(), 0) });
    fetched.map_err(|errno| Failure::call("pidfd_getfd", errno))?;
    Ok("works".to_owned())
}
