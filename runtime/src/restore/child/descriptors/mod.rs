//! Rebuilds the descriptor tables.
//!
//! Every open file description is made once, by the first process, at a number above all of the program's, and then duplicated
//! in each process to its numbers, so that two numbers of one description share its offset and flags again. Epoll instances are filled
//! last: the kernel remembers the number under which a descriptor was added.
//!
//! What led outside has an outlet ([`crate::restore::outside`]), chosen for each number. The streams' status flags belong
//! to everybody who shares them, so a program that had made a terminal or pipe non-blocking gets a description of its own
//! where that can be opened.

mod epoll;
mod handed;
mod outside;
mod pipes;
mod pseudo_terminals;
mod sockets;

use std::os::fd::RawFd;

use nix::errno::Errno;

use super::calls;
use super::report::{At, Failed, Step};
use super::{FILES, Plan, STANDARD};
use crate::image::{FileKind, JobImage};
use crate::restore::outside::Outlet;
use crate::restore::paths::reopening_flags;
pub use pseudo_terminals::take_control;

pub use handed::receive;

type Result<T> = std::result::Result<T, Failed>;

/// Room for the descriptors in the making.
pub struct Workspace {
    /// Where each file is open meanwhile.
    opened: Vec<RawFd>,
    /// How many of them led outside.
    leading_outside: usize,
    /// Where those are open, by outlet.
    outlets: Vec<[RawFd; Outlet::COUNT]>,
    /// Both ends of each pipe.
    pipes: Vec<[RawFd; 2]>,
    /// Whether an end has been given to a description.
    given: Vec<[bool; 2]>,
    /// Whether the description that has made a memory file has been given to one of the job.
    memory_given: Vec<bool>,
    /// The process that fills each epoll instance: the first that has it.
    fillers: Vec<Option<usize>>,
    /// The process that opens a file which the first one cannot.
    openers: Vec<Option<usize>>,
}

impl Workspace {
    /// Room for the files of `job`.
    pub fn new(job: &JobImage) -> Workspace {
        let objects = &job.objects;
        let mut fillers = vec![None; objects.files.len()];
        for (index, process) in job.processes.iter().enumerate() {
            for descriptor in &process.descriptors {
                fillers[descriptor.file as usize].get_or_insert(index);
            }
        }
        Workspace {
            opened: vec![-1; objects.files.len()],
            leading_outside: objects.files.iter().filter(|file| matches!(file.kind, FileKind::Standard { .. })).count(),
            outlets: vec![[-1; Outlet::COUNT]; objects.files.len()],
            pipes: vec![[-1; 2]; objects.pipes.len()],
            given: vec![[false; 2]; objects.pipes.len()],
            memory_given: vec![false; objects.unlinked_files.len()],
            fillers,
            openers: pseudo_terminals::openers(job),
        }
    }

    /// How many numbers may be in use for them at one time.
    pub fn numbers_needed(&self) -> usize {
        // One more while an epoll instance is filled.
        self.opened.len() + self.leading_outside * Outlet::COUNT + 1
    }
}

/// Makes all descriptions.
pub fn make(plan: &mut Plan) -> Result<()> {
    for pipe in 0..plan.objects.pipes.len() {
        pipes::make(plan, pipe).at(Step::Pipe, pipe as u32)?;
    }
    for index in 0..plan.objects.files.len() {
        plan.files.opened[index] = open(plan, index).at(Step::Open, index as u32)?;
    }
    sockets::deliver(plan)
}

/// Gives the descriptions of this process their numbers, but for those that are handed over later.
pub fn give_numbers(plan: &mut Plan) -> Result<()> {
    for place in 0..plan.own().image.descriptors.len() {
        let descriptor = plan.own().image.descriptors[place];
        if plan.objects.files[descriptor.file as usize].is_handed_over() {
            continue;
        }
        let from = match plan.own().outlets[place] {
            Some(outlet) => outside::lead(plan, descriptor.file as usize, outlet).at(Step::Open, descriptor.file)?,
            None => plan.files.opened[descriptor.file as usize],
        };
        calls::duplicate_to(from, descriptor.number, descriptor.close_on_exec)
            .at(Step::Number, descriptor.number as u32)?;
    }
    Ok(())
}

/// Does what needs all numbers, and closes what is left of the work.
pub fn complete(plan: &Plan) -> Result<()> {
    for index in 0..plan.objects.files.len() {
        if plan.files.fillers[index] == Some(plan.own) {
            epoll::fill(plan, index)?;
        }
    }
    calls::close_range(plan.kept_end() as u32, u32::MAX).at(Step::Keep, 0)
}

fn open(plan: &mut Plan, index: usize) -> std::result::Result<RawFd, Errno> {
    let file = &plan.objects.files[index];
    let lowest = plan.kept_end();
    match &file.kind {
        FileKind::Regular { .. } | FileKind::Directory { .. } | FileKind::Device { .. } | FileKind::Named { .. } => {
            plan.opened.place_of(index).map(|place| plan.opened_number(place)).ok_or(Errno::EBADF)
        }
        FileKind::Unlinked { file: unlinked, offset } => {
            let (unlinked, flags) = (*unlinked as usize, file.flags);
            let made = plan.number_of(FILES + plan.unlinked[unlinked] as i32);
            let is_memory = plan.objects.unlinked_files[unlinked].memory_seals.is_some();
            let could_be_made = is_memory && !file.is_path_only() && flags & libc::O_ACCMODE == libc::O_RDWR;
            let number = match could_be_made && !std::mem::replace(&mut plan.files.memory_given[unlinked], true) {
                // As memfd_create has made it, it does not count as opened for writing: such a file can be executed.
                true => calls::with_flags(calls::duplicate_above(made, lowest)?, flags)?,
                false => calls::move_above(calls::reopen(made, reopening_flags(file))?, lowest)?,
            };
            if !file.is_path_only() {
                calls::seek(number, *offset)?;
            }
            Ok(number)
        }
        // Each of its numbers by itself, in [`outside::lead`].
        FileKind::Standard { .. } => Ok(-1),
        FileKind::TerminalMaster { terminal } => pseudo_terminals::master(plan, *terminal as usize, file.flags),
        FileKind::Terminal { terminal, .. } => pseudo_terminals::slave(plan, index, *terminal as usize),
        FileKind::HungUpTerminal { .. } => pseudo_terminals::hung_up(plan, file.flags),
        FileKind::Pipe { pipe } => pipes::end(plan, *pipe as usize, file.flags),
        FileKind::Socket(_) => calls::with_flags(sockets::number(plan, index)?, file.flags),
        FileKind::EventFd { count, semaphore } => {
            let number = calls::move_above(calls::eventfd(*semaphore)?, lowest)?;
            if *count > 0 {
                calls::write_all(number, &count.to_ne_bytes())?;
            }
            calls::with_flags(number, file.flags)
        }
        // It is set when all else is done.
        FileKind::TimerFd { clock, .. } => {
            calls::with_flags(calls::move_above(calls::timerfd(*clock)?, lowest)?, file.flags)
        }
        FileKind::SignalFd { mask } => {
            calls::with_flags(calls::move_above(calls::signalfd(*mask)?, lowest)?, file.flags)
        }
        FileKind::Epoll { .. } => calls::move_above(calls::epoll()?, lowest),
        FileKind::IoUring(_) => {
            let made = plan.rings.iter().find(|(file, _)| *file == index).ok_or(Errno::EBADF)?.1;
            calls::with_flags(plan.number_of(FILES + made as i32), file.flags)
        }
        // When all processes are there, in [`handed::receive`].
        FileKind::PidFd { .. } | FileKind::OfProcess { .. } => Ok(-1),
        FileKind::Inotify { .. } | FileKind::Fanotify(_) | FileKind::MessageQueue { .. } => Ok(-1),
    }
}
