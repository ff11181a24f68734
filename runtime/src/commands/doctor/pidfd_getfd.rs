//! Fetching a descriptor out of another process.

use std::os::fd::AsRawFd;

use super::finding::{Finding, State};
use super::trial::{Child, Failure, Outcome, in_child};
use crate::descriptor::made;

const PROBE: &str = "pidfd_getfd";
const TRIED: &str = "fetch a pipe's end from a child";
const ADVICE: &str = "use Linux 5.6 or newer and allow pidfd_open and pidfd_getfd in the container's seccomp profile; \
                      without them every checkpoint reads all memory";

/// The probe.
pub fn probe() -> Finding {
    Finding::of(PROBE, TRIED, in_child(fetch), State::Degraded, ADVICE)
}

fn fetch() -> Outcome {
    let (end, _other) = nix::unistd::pipe().map_err(|errno| Failure::call("pipe", errno))?;
    let child = Child::idle()?;
    // SAFETY: pidfd_open takes two integers.
    let pidfd = made(unsafe { libc::syscall(libc::SYS_pidfd_open, child.pid().as_raw(), 0) });
    let pidfd = pidfd.map_err(|errno| Failure::call("pidfd_open", errno))?;
    // SAFETY: pidfd_getfd takes three integers.
    let fetched = made(unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), end.as_raw_fd(), 0) });
    fetched.map_err(|errno| Failure::call("pidfd_getfd", errno))?;
    Ok("works".to_owned())
}
