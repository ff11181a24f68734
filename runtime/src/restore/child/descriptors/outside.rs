//! What led outside the job, and leads to the restarter's standard streams now.

use std::os::fd::RawFd;

use nix::errno::Errno;

use super::{Plan, STANDARD, calls};
use crate::restore::outside::Outlet;

type Result<T> = std::result::Result<T, Errno>;

/// What those numbers of file `index` share that have this outlet.
pub fn lead(plan: &mut Plan, index: usize, outlet: Outlet) -> Result<RawFd> {
    let known = plan.files.outlets[index][outlet.place()];
    if known != -1 {
        return Ok(known);
    }
    let (flags, lowest) = (plan.objects.files[index].flags, plan.kept_end());
    let wanted = flags & (libc::O_ACCMODE | libc::O_NONBLOCK) | libc::O_NOCTTY;
    let number = match if outlet.own_terminal { calls::open(c"/dev/tty", wanted) } else { Err(Errno::ENXIO) } {
        Ok(number) => calls::move_above(number, lowest)?,
        Err(_) => standard(plan.number_of(STANDARD + outlet.stream as i32), flags, lowest)?,
    };
    plan.files.outlets[index][outlet.place()] = number;
    Ok(number)
}

/// The stream, or a description of its own when the program needs another blocking mode.
fn standard(inherited: RawFd, flags: i32, lowest: RawFd) -> Result<RawFd> {
    let current = calls::status_flags(inherited)?;
    if (current ^ flags) & libc::O_NONBLOCK == 0 {
        return Ok(inherited);
    }
    let wanted = current & !libc::O_NONBLOCK | flags & libc::O_NONBLOCK;
    match calls::file_type(inherited)? {
        libc::S_IFREG => return Ok(inherited), // never blocks, and a new description would begin at offset 0
        libc::S_IFCHR | libc::S_IFIFO => {
            if let Ok(own) = calls::reopen(inherited, wanted & (libc::O_ACCMODE | libc::O_NONBLOCK) | libc::O_NOCTTY) {
                return calls::move_above(own, lowest);
            }
        }
        _ => {}
    }
    calls::set_status_flags(inherited, wanted)?;
    Ok(inherited)
}
