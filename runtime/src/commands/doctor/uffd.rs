//! userfaultfd: what the probes for it share, and whether it is there.

use std::os::fd::OwnedFd;

use super::finding::{Finding, State};
use super::trial::{Failure, in_child, unless_deadly};
use crate::{descriptor, userfaultfd};

const PROBE: &str = "userfaultfd";
const TRIED: &str = "userfaultfd(UFFD_USER_MODE_ONLY) with asynchronous write protection";
/// What to do where it does not work.
pub const ADVICE: &str = "use Linux 6.7 or newer and allow userfaultfd in the container's seccomp profile; without it \
                          every checkpoint reads all memory";

/// The probe.
pub fn probe() -> Finding {
    let outcome = in_child(|| open().map(|_| "works".to_owned()));
    Finding::of(PROBE, TRIED, outcome, State::Degraded, ADVICE)
        .gives_up("incremental tracking and --lazy (userfaultfd)", "--security-opt seccomp=FILE")
}

/// A userfaultfd of this process.
pub fn open() -> Result<OwnedFd, Failure> {
    unless_deadly(&[libc::SYS_userfaultfd])?;
    let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64 | userfaultfd::USER_MODE_ONLY;
    // SAFETY: userfaultfd takes an integer.
    let made = descriptor::made(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) });
    let tracker = made.map_err(|errno| Failure::call("userfaultfd", errno))?;
    userfaultfd::set_up(&tracker, userfaultfd::FEATURES_OF_TRACKING)
        .map_err(|errno| Failure::call("UFFDIO_API with WP_ASYNC", errno))?;
    Ok(tracker)
}
