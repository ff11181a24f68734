//! Pipes within the job: made, or opened where they have a name, with what lay in them, and their ends given to descriptions.

use std::os::fd::RawFd;

use nix::errno::Errno;

use super::{Plan, calls};
use crate::image::PipeContent;

type Result<T> = std::result::Result<T, Errno>;

/// Makes pipe `index`.
pub fn make(plan: &mut Plan, index: usize) -> Result<()> {
    let pipe = &plan.objects.pipes[index];
    let lowest = plan.kept_end();
    let ends = if pipe.fifo.is_some() {
        let found = plan.opened.place_of_fifo(index).map(|place| plan.opened_number(place)).ok_or(Errno::EBADF)?;
        let reader = calls::move_above(calls::reopen(found, libc::O_RDONLY | libc::O_NONBLOCK)?, lowest)?;
        // What somebody else has written into it would come before what lay there.
        if calls::unread(reader)? > 0 {
            return Err(Errno::EBUSY);
        }
        [reader, calls::move_above(calls::reopen(found, libc::O_WRONLY | libc::O_NONBLOCK)?, lowest)?]
    } else {
        let ends = calls::pipe(libc::O_NONBLOCK)?;
        [calls::move_above(ends[0], lowest)?, calls::move_above(ends[1], lowest)?]
    };
    if pipe.capacity > 0 {
        calls::set_pipe_capacity(ends[1], pipe.capacity)?;
    }
    if pipe.has_reader {
        fill(ends[1], pipe)?;
    }
    plan.files.pipes[index] = ends;
    if pipe.fifo.as_ref().is_some_and(|fifo| fifo.unwritten) {
        // To whoever opens it from now on, nobody has written yet.
        calls::close(ends[1]);
        let again = calls::reopen(ends[0], libc::O_RDONLY | libc::O_NONBLOCK)?;
        calls::close(ends[0]);
        plan.files.pipes[index] = [calls::move_above(again, lowest)?, -1];
    }
    Ok(())
}

fn fill(end: RawFd, pipe: &PipeContent) -> Result<()> {
    if pipe.pieces.is_empty() {
        return calls::write_all(end, &pipe.content);
    }
    let mut at = 0;
    for piece in &pipe.pieces {
        let next = (at + piece.bytes as usize).min(pipe.content.len());
        let mode = if piece.packet { libc::O_DIRECT } else { 0 };
        calls::set_status_flags(end, libc::O_NONBLOCK | mode)?;
        calls::write_all(end, &pipe.content[at..next])?;
        at = next;
    }
    calls::set_status_flags(end, libc::O_NONBLOCK)
}

/// The pipe's own end for the first description of it, an end opened again for every other.
pub fn end(plan: &mut Plan, pipe: usize, flags: i32) -> Result<RawFd> {
    let access = flags & libc::O_ACCMODE;
    let end = usize::from(access == libc::O_WRONLY);
    let own = plan.files.pipes[pipe][end];
    if flags & libc::O_PATH != 0 {
        let any = plan.files.pipes[pipe][0];
        return calls::move_above(calls::reopen(any, libc::O_PATH)?, plan.kept_end());
    }
    let taken = std::mem::replace(&mut plan.files.given[pipe][end], true);
    if !taken && access != libc::O_RDWR {
        return calls::with_flags(own, flags);
    }
    let again = calls::reopen(own, access | libc::O_NONBLOCK)?;
    calls::with_flags(calls::move_above(again, plan.kept_end())?, flags)
}
