//! The two processes, and how they end a program that must not run on.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, OwnedFd};

use ckpt_store::Store;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, dup2_stdin, dup2_stdout, fork, getpid, setsid};

use super::link::Link;
use super::plan::Plan;
use super::{fill, guard};
use crate::descriptor;
use crate::error::{Error, Result};
use crate::image::JobImage;
use crate::proc::task;

/// A process whose memory is not all there.
#[derive(Debug)]
pub struct Unfinished {
    /// Its pid.
    pub pid: i32,
    /// It, whoever has that pid by now.
    pub pidfd: OwnedFd,
}

/// Makes guard and filler, which are nobody's children; gives `plan` and the ends of the links to the filler and to the guard.
pub fn start(job: &JobImage, plan: Plan, store: &Store) -> Result<(Plan, Link, Link)> {
    let (to_filler, filler_from_restarter) = Link::pair()?;
    let (to_guard, guard_from_restarter) = Link::pair()?;
    let between = match fork_beside(job)? {
        Some(between) => between,
        None => {
            drop((to_filler, to_guard));
            if let Ok(Some(_)) = fork_beside(job) {
                leave(0);
            }
            be_nobodys();
            let Ok((to_other, from_other)) = Link::pair() else { leave(1) };
            match fork_beside(job) {
                Err(_) => leave(1),
                Ok(None) => {
                    drop((to_other, guard_from_restarter));
                    fill::live(job, plan, store, filler_from_restarter, from_other)
                }
                Ok(Some(filler)) => {
                    drop((from_other, filler_from_restarter));
                    guard::live(filler, guard_from_restarter, to_other)
                }
            }
        }
    };
    while waitpid(between, None) == Err(Errno::EINTR) {}
    Ok((plan, to_filler, to_guard))
}

/// Forks, again if the child has an id that the job needs; `None` in the child.
fn fork_beside(job: &JobImage) -> Result<Option<Pid>> {
    let is_taken = |pid: Pid| job.ids().any(|id| id == pid.as_raw());
    loop {
        // SAFETY: the child allocates, which the C library allows behind its own fork. Nobody else holds a lock of ours: one
        // other thread waits for signals, and those of the store are idle. The child makes threads of its own for it.
        match unsafe { fork() }.map_err(|source| Error::io("start", "the process that brings memory", source))? {
            ForkResult::Child if is_taken(getpid()) => leave(0),
            ForkResult::Child => return Ok(None),
            ForkResult::Parent { child } if is_taken(child) => while waitpid(child, None) == Err(Errno::EINTR) {},
            ForkResult::Parent { child } => return Ok(Some(child)),
        }
    }
}

/// A process that no terminal and no group sends signals to, and whose end nobody awaits at the end of a pipe.
fn be_nobodys() {
    crate::parent::block_all();
    // It cannot fail: this process has just been made, and leads no group.
    let _ = setsid();
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = dup2_stdin(&null).and(dup2_stdout(&null));
    }
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
