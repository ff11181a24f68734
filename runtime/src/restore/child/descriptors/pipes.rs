//! Pipes within the job: made with what lay in them, and their ends given to descriptions.

use std::os::fd::RawFd;

use nix::errno::Errno;

use super::{Plan, calls, with_flags};
use crate::image::FileKind;

type Result<T> = std::result::Result<T, Errno>;

/// Makes pipe `index`.
pub fn make(plan: &mut Plan, index: usize) -> Result<()> {
    let pipe = &plan.objects.pipes[index];
    let packets = plan.objects.files.iter().any(|file| {
        matches!(file.kind, FileKind::Pipe { pipe } if pipe as usize == index) && file.flags & libc::O_DIRECT != 0
    });
    let mode = if packets { libc::O_DIRECT } else { 0 };
    let ends = calls::pipe(libc::O_NONBLOCK | mode)?;
    let lowest = plan.kept_end();
    let ends = [calls::move_above(ends[0], lowest)?, calls::move_above(ends[1], lowest)?];
    if pipe.capacity > 0 {
        calls::set_pipe_capacity(ends[1], pipe.capacity)?;
    }
    if pipe.has_reader {
        calls::write_all(ends[1], &pipe.content)?;
    }
    plan.files.pipes[index] = ends;
    Ok(())
}

/// The pipe's own end for the first description of it, an end opened again for every other.
pub fn end(plan: &mut Plan, pipe: usize, flags: i32) -> Result<RawFd> {
    let access = flags & libc::O_ACCMODE;
    let end = usize::from(access == libc::O_WRONLY);
    let own = plan.files.pipes[pipe][end];
    let taken = std::mem::replace(&mut plan.files.given[pipe][end], true);
    if !taken && access != libc::O_RDWR {
        return with_flags(own, flags);
    }
    let again = calls::reopen(own, access | libc::O_NONBLOCK)?;
    with_flags(calls::move_above(again, plan.kept_end())?, flags)
}
