//! The calls of a userfaultfd that more than one side makes.

use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

/// Flag of userfaultfd(2): not told of faults in system calls. Every user may have such a one.
pub const USER_MODE_ONLY: u64 = 1;

/// Pages that are not there: whoever touches one waits.
pub const MODE_MISSING: u64 = 1 << 0;
/// Pages that are write-protected.
pub const MODE_WRITE_PROTECT: u64 = 1 << 1;

/// Holes can be write-protected too.
const FEATURE_WRITE_PROTECT_UNPOPULATED: u64 = 1 << 13;
/// The kernel lifts a protection by itself, and nobody waits.
const FEATURE_WRITE_PROTECT_ASYNC: u64 = 1 << 15;
/// What it takes to find written pages by `PAGEMAP_SCAN` (Linux 6.7).
pub const FEATURES_OF_TRACKING: u64 = FEATURE_WRITE_PROTECT_UNPOPULATED | FEATURE_WRITE_PROTECT_ASYNC;

const API: u64 = 0xAA;

/// `struct uffdio_api`.
#[repr(C)]
struct ApiArgument {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
pub struct RangeArgument {
    /// First address.
    pub start: u64,
    /// Length.
    pub bytes: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
struct RegisterArgument {
    range: RangeArgument,
    mode: u64,
    ioctls: u64,
}

/// `struct uffdio_copy`.
#[repr(C)]
struct CopyArgument {
    to: u64,
    from: u64,
    bytes: u64,
    mode: u64,
    copied: i64,
}

mod ioctls {
    use super::{ApiArgument, CopyArgument, RangeArgument, RegisterArgument};

    nix::ioctl_readwrite!(uffdio_api, 0xAA, 0x3F, ApiArgument);
    nix::ioctl_readwrite!(uffdio_register, 0xAA, 0x00, RegisterArgument);
    nix::ioctl_read!(uffdio_unregister, 0xAA, 0x01, RangeArgument);
    nix::ioctl_readwrite!(uffdio_copy, 0xAA, 0x03, CopyArgument);
}

/// Tells a new userfaultfd what it is for.
///
/// # Errors
/// The kernel's: EINVAL where it does not have all of `features`, EPERM where the user may not have them.
pub fn set_up(userfaultfd: &impl AsFd, features: u64) -> nix::Result<()> {
    let mut argument = ApiArgument { api: API, features, ioctls: 0 };
    // SAFETY: reads and writes one struct uffdio_api, which `argument` is.
    unsafe { ioctls::uffdio_api(userfaultfd.as_fd().as_raw_fd(), &mut argument) }.map(drop)
}

/// From now on `bytes` at `start`, of the process that has made it, are watched in `mode`.
///
/// # Errors
/// The kernel's: EINVAL where such memory cannot be.
pub fn register(userfaultfd: &impl AsFd, start: u64, bytes: u64, mode: u64) -> nix::Result<()> {
    let mut argument = RegisterArgument { range: RangeArgument { start, bytes }, mode, ioctls: 0 };
    // SAFETY: reads and writes one struct uffdio_register, which `argument` is. What the memory holds stays.
    unsafe { ioctls::uffdio_register(userfaultfd.as_fd().as_raw_fd(), &mut argument) }.map(drop)
}

/// `bytes` at `start`, which are registered, are not watched any more: no page there is protected, or marked as such.
///
/// # Errors
/// The kernel's.
pub fn unregister(userfaultfd: &impl AsFd, start: u64, bytes: u64) -> nix::Result<()> {
    let mut argument = RangeArgument { start, bytes };
    // SAFETY: reads one struct uffdio_range, which `argument` is. What the memory holds stays.
    unsafe { ioctls::uffdio_unregister(userfaultfd.as_fd().as_raw_fd(), &mut argument) }.map(drop)
}

/// How far a copy has come, and why not further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partly {
    /// So many bytes are there.
    pub bytes: u64,
    /// What is wrong with the next page.
    pub errno: Errno,
}

/// Puts `content`, whole pages, to `address` of memory that is registered. Whoever waits for one of them looks again.
///
/// # Errors
/// The kernel's, with what has been copied: EEXIST where there is a page already.
pub fn copy(userfaultfd: &impl AsFd, address: u64, content: &[u8]) -> Result<(), Partly> {
    let (from, bytes) = (content.as_ptr() as u64, content.len() as u64);
    let mut argument = CopyArgument { to: address, from, bytes, mode: 0, copied: 0 };
    // SAFETY: reads `bytes` bytes of `content` and one struct uffdio_copy, and writes the latter.
    let copied = unsafe { ioctls::uffdio_copy(userfaultfd.as_fd().as_raw_fd(), &mut argument) };
    copied.map(drop).map_err(|errno| Partly { bytes: argument.copied.max(0) as u64, errno })
}
