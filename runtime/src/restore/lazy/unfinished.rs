//! Programs whose memory is not all there, and ending them: they must not run on without it.

use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::descriptor;
use crate::proc::task;

/// A process whose memory is not all there.
#[derive(Debug)]
pub struct Unfinished {
    /// Its pid.
    pub pid: i32,
    /// It, whoever has that pid by now.
    pub pidfd: OwnedFd,
}

/// Ends this process, without what the one that it was forked from has left for its own end.
pub fn leave(status: i32) -> ! {
    // SAFETY: runs nothing.
    unsafe { libc::_exit(status) }
}

/// Ends `programs` and all that descends from them: each may have memory that is not there.
pub fn end_all(programs: &[Unfinished]) {
    // Once more for what has been made meanwhile. None can be made with memory that is missing: nobody takes note of it.
    for _ in 0..3 {
        for program in programs {
            for pid in descendants(program.pid) {
                // One that has ended meanwhile is what it should be.
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
    for program in programs {
        // One that has ended already is what it should be.
        let _ = descriptor::kill(program.pidfd.as_fd());
    }
}

fn descendants(pid: i32) -> Vec<i32> {
    let mut found = task::children(pid).unwrap_or_default();
    let mut next = 0;
    while let Some(&child) = found.get(next) {
        found.extend(task::children(child).unwrap_or_default());
        next += 1;
    }
    found.reverse();
    found
}
