//! Resource limits, from outside. They come after all that may need more than they allow, and before the change of
//! users: limiting somebody else's process would need CAP_SYS_RESOURCE, which root in a container may lack.

use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::image::{Limit, ProcessImage};

/// Gives the process its limits.
pub fn set(image: &ProcessImage) -> Result<()> {
    image.limits.iter().try_for_each(|limit| set_one(image.pid, limit))
}

fn set_one(pid: i32, limit: &Limit) -> Result<()> {
    match change(pid, limit.resource, limit.soft, limit.hard) {
        Err(Errno::EPERM) => set_lower(pid, limit),
        set => set.map_err(|errno| refused(pid, limit, errno)),
    }
}

/// An ordinary user cannot raise a hard limit; the program gets what there is, and the user is told.
fn set_lower(pid: i32, limit: &Limit) -> Result<()> {
    let hard = current(pid, limit.resource).map_err(|errno| refused(pid, limit, errno))?.rlim_max.min(limit.hard);
    log::warn!("resource limit {}: the program had {}, here it gets {hard}", limit.resource, limit.hard);
    change(pid, limit.resource, limit.soft.min(hard), hard).map_err(|errno| refused(pid, limit, errno))
}

fn refused(pid: i32, limit: &Limit, source: Errno) -> Error {
    let Limit { resource, soft, hard } = limit;
    Error::RemoteCall { pid, call: "prlimit", purpose: format!("limit {resource} to {soft}, {hard}"), source }
}

fn change(pid: i32, resource: u32, soft: u64, hard: u64) -> Result<(), Errno> {
    let new = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: prlimit reads `new` and writes nothing.
    Errno::result(unsafe { libc::prlimit(pid, resource, &new, std::ptr::null_mut()) }).map(drop)
}

fn current(pid: i32, resource: u32) -> Result<libc::rlimit, Errno> {
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: prlimit writes one rlimit to `old`.
    Errno::result(unsafe { libc::prlimit(pid, resource, std::ptr::null(), &mut old) })?;
    Ok(old)
}
