//! `--lazy`: the program runs before its memory is there.
//!
//! Long runs of private anonymous memory are left out when the memory is filled, and registered with a userfaultfd. A
//! process of its own, the *filler*, brings a page when the program touches it, in the program's own code or in a system
//! call, and all others meanwhile. Every page is verified before the program sees it; where one is damaged the program is
//! ended. When all are there the userfaultfd is closed, and the memory is what it would have been.
//!
//! ```text
//! ckpt restart ── (ends at once) ── guard ── filler
//! ```
//!
//! When the last copy of a userfaultfd is closed, the kernel shows zeros where pages are missing. So the *guard* has a copy
//! too, and nothing to do but to wait for the end of the filler: if that is not done by then, the guard ends the program
//! and only then lets go. The filler does the same for the guard. Both are made before anything of the program's is open,
//! and hold nothing of it but memory.
//!
//! What the program does to memory that is not there yet (fork, munmap, mremap, madvise) the kernel tells the filler, and
//! has the program wait until it has taken note ([`pages`], [`space`]).

mod fill;
mod guard;
mod link;
mod needed;
mod pages;
mod plan;
mod processes;
mod space;
mod unfinished;
mod userfaultfd;

use std::os::fd::AsFd;

use ckpt_store::Store;

use super::process::HalfBuilt;
use crate::descriptor::pidfd_open;
use crate::error::{Error, Result};
use crate::image::JobImage;
use link::{Link, Word};
use plan::Plan;
use userfaultfd::Userfaultfd;

pub use plan::Rest;

/// Memory that comes later, and who brings it.
#[derive(Debug)]
pub struct Lazy {
    plan: Plan,
    to_filler: Link,
    to_guard: Link,
}

impl Lazy {
    /// Starts the processes that bring the memory of `job`. `None` where this host or user cannot have it: then one line says
    /// so, and all memory comes first.
    ///
    /// It forks, so nothing of the program's may be open yet.
    pub fn start(job: &JobImage, store: &Store) -> Result<Option<Lazy>> {
        if let Err(why) = userfaultfd::is_permitted() {
            say_without_effect(&why);
            return Ok(None);
        }
        let plan = Plan::of(job, store)?;
        if plan.ranges.is_empty() {
            return Ok(None);
        }
        let (plan, to_filler, to_guard) = processes::start(job, plan, store)?;
        Ok(Some(Lazy { plan, to_filler, to_guard }))
    }

    /// Waits until the filler can begin. `None` where it cannot, as above.
    pub fn when_ready(self) -> Result<Option<Lazy>> {
        match self.to_filler.listen()? {
            Some((Word::Ready, _)) => Ok(Some(self)),
            Some((Word::Refused(why), _)) => {
                say_without_effect(&why);
                Ok(None)
            }
            _ => Err(gone()),
        }
    }

    /// What of a region has to be there first; `None` if all of it has to.
    pub fn rest(&self, process: usize, region: usize) -> Option<&Rest> {
        self.plan.rests.get(&(process, region))
    }

    /// Has what is missing of `process`, the one with this number in the job, brought from now on.
    pub fn hand_over(&self, process: &mut HalfBuilt, number: usize) -> Result<()> {
        if !self.plan.ranges.iter().any(|range| range.process == number) {
            return Ok(());
        }
        let pidfd = pidfd_open(process.pid())?;
        let failed = |source| Error::io("set up", "a userfaultfd", source);
        let userfaultfd = Userfaultfd::set_up(process.make_userfaultfd(userfaultfd::FLAGS)??).map_err(failed)?;
        for range in self.plan.ranges.iter().filter(|range| range.process == number) {
            let failed = |source| Error::io("register memory that comes later with", "a userfaultfd", source);
            userfaultfd.register(range.address, range.bytes()).map_err(failed)?;
        }
        for link in [&self.to_guard, &self.to_filler] {
            let word = Word::Process { number, pid: process.pid() };
            link.say(&word, &[userfaultfd.as_fd(), pidfd.as_fd()])?;
        }
        Ok(())
    }

    /// That was all. Fails if one of the two has gone, which ends the program.
    pub fn complete(&self) -> Result<()> {
        self.to_guard.say(&Word::Complete, &[])?;
        self.to_filler.say(&Word::Complete, &[])
    }
}

/// Says that all memory comes first.
pub fn say_without_effect(why: &str) {
    crate::say!("restart: --lazy has no effect: {why}; all memory is read before the program runs");
}

fn gone() -> Error {
    Error::environment(
        "restarting with --lazy",
        "the process that was to bring the memory has ended",
        "restart again, or without --lazy",
    )
}
