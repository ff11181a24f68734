//! Fetching a descriptor out of another process.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::finding::{Finding, State};
use super::trial::{Child, Outcome, checked, in_child};

const PROBE: &str = "pidfd_getfd";
const TRIED: &str = "fetch a pipe's end from a child";
const ADVICE: &str = "use Linux 5.6 or newer and allow pidfd_open and pidfd_getfd in the container's seccomp profile; \
                      without them every checkpoint reads all memory";

/// The probe.
pub fn probe() -> Finding {
    Finding::of(PROBE, TRIED, in_child(fetch), State::Degraded, ADVICE)
}

fn fetch() -> Outcome {
    let (end, _other) = nix::unistd::pipe().map_err(|errno| super::trial::Failure::call("pipe", errno))?;
    let child = Child::idle()?;
    // SAFETY: pidfd_open takes two integers.
    let pidfd = checked("pidfd_open", unsafe { libc::syscall(libc::SYS_pidfd_open, child.pid().as_raw(), 0) })?;
    // SAFETY: the descriptor is new and belongs to nobody else.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd as i32) };
    // SAFETY: pidfd_getfd takes three integers.
    let fetched = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), end.as_raw_fd(), 0) };
    checked("pidfd_getfd", fetched)?;
    Ok("works".to_owned())
}
