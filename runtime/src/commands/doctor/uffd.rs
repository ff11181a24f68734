//! userfaultfd: what the probes for it share, and whether it is there.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::finding::{Finding, State};
use super::trial::{Failure, checked, in_child};

const PROBE: &str = "userfaultfd";
const TRIED: &str = "userfaultfd(UFFD_USER_MODE_ONLY) with asynchronous write protection";
/// What to do where it does not work.
pub const ADVICE: &str = "use Linux 6.7 or newer and allow userfaultfd in the container's seccomp profile; without it \
                          every checkpoint reads all memory";

const UFFD_USER_MODE_ONLY: i32 = 1;
const UFFD_API: u64 = 0xaa;
const UFFD_FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;
const UFFDIO_API: u64 = 0xc018_aa3f;

/// `struct uffdio_api`.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// The probe.
pub fn probe() -> Finding {
    let outcome = in_child(|| open().map(|_| "works".to_owned()));
    Finding::of(PROBE, TRIED, outcome, State::Degraded, ADVICE)
}

/// A userfaultfd of this process.
pub fn open() -> Result<OwnedFd, Failure> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | UFFD_USER_MODE_ONLY;
    // SAFETY: userfaultfd takes an integer.
    let descriptor = checked("userfaultfd", unsafe { libc::syscall(libc::SYS_userfaultfd, flags) })?;
    // SAFETY: the descriptor is new and belongs to nobody else.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor as i32) };
    let features = UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED;
    let mut api = Api { api: UFFD_API, features, ioctls: 0 };
    // SAFETY: UFFDIO_API reads and writes one `Api`.
    let result = unsafe { libc::ioctl(descriptor.as_raw_fd(), UFFDIO_API, &raw mut api) };
    checked("UFFDIO_API with WP_ASYNC", result.into())?;
    Ok(descriptor)
}
