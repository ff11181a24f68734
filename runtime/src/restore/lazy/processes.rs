//! The two processes that bring the memory.

use std::fs::OpenOptions;

use ckpt_store::Store;
use nix::errno::Errno;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, dup2_stdin, dup2_stdout, fork, getpid, setsid};

use super::link::Link;
use super::plan::Plan;
use super::unfinished::leave;
use super::{fill, guard};
use crate::error::{Error, Result};
use crate::image::JobImage;

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
