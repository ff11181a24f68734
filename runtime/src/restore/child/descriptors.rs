//! Rebuilds the descriptor tables.
//!
//! Every open file description is made once, by the first process, at a number above all of the program's, and then duplicated
//! in each process to its numbers, so that two numbers of one description share its offset and flags again. Epoll instances are filled
//! last: the kernel remembers the number under which a descriptor was added.
//!
//! What led outside has an outlet ([`crate::restore::outside`]), chosen for each number. The streams' status flags belong
//! to everybody who shares them, so a program that had made a terminal or pipe non-blocking gets a description of its own
//! where that can be opened.

use std::ffi::CString;
use std::os::fd::RawFd;

use nix::errno::Errno;

use super::calls;
use super::report::{At, Failed, Report, Step};
use super::{CHANNEL, FILES, Plan, STANDARD};
use crate::error::Result as CkptResult;
use crate::image::{FileKind, JobImage, OpenFile};
use crate::restore::outside::Outlet;
use crate::restore::paths::{c_path, reopened_path, reopening_flags};

type Result<T> = std::result::Result<T, Failed>;

/// Status flags that `F_SETFL` can change.
const SETTABLE: i32 = libc::O_APPEND | libc::O_NONBLOCK | libc::O_ASYNC | libc::O_DIRECT | libc::O_NOATIME;

/// Room for the descriptors in the making.
pub struct Workspace {
    /// One path per file, empty for those without.
    paths: Vec<CString>,
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
    /// The process that fills each epoll instance: the first that has it.
    fillers: Vec<Option<usize>>,
}

impl Workspace {
    /// Room for the files of `job`.
    pub fn new(job: &JobImage) -> CkptResult<Workspace> {
        let objects = &job.objects;
        let mut fillers = vec![None; objects.files.len()];
        for (index, process) in job.processes.iter().enumerate() {
            for descriptor in &process.descriptors {
                fillers[descriptor.file as usize].get_or_insert(index);
            }
        }
        let paths = objects.files.iter().map(|file| c_path(reopened_path(file).unwrap_or_default()));
        Ok(Workspace {
            paths: paths.collect::<CkptResult<_>>()?,
            opened: vec![-1; objects.files.len()],
            leading_outside: objects.files.iter().filter(|file| matches!(file.kind, FileKind::Standard { .. })).count(),
            outlets: vec![[-1; Outlet::COUNT]; objects.files.len()],
            pipes: vec![[-1; 2]; objects.pipes.len()],
            given: vec![[false; 2]; objects.pipes.len()],
            fillers,
        })
    }

    /// How many numbers may be in use for them at one time.
    pub fn numbers_needed(&self) -> usize {
        self.opened.len() + self.leading_outside * Outlet::COUNT
    }
}

/// Makes all descriptions.
pub fn make(plan: &mut Plan) -> Result<()> {
    for pipe in 0..plan.objects.pipes.len() {
        make_pipe(plan, pipe).at(Step::Pipe, pipe as u32)?;
    }
    for index in 0..plan.objects.files.len() {
        plan.files.opened[index] = open(plan, index).at(Step::Open, index as u32)?;
    }
    Ok(())
}

/// Gives the descriptions of this process their numbers, and closes the rest above what is kept.
pub fn give_numbers(plan: &mut Plan) -> Result<()> {
    for place in 0..plan.own().image.descriptors.len() {
        let descriptor = plan.own().image.descriptors[place];
        let from = match plan.own().outlets[place] {
            Some(outlet) => lead_outside(plan, descriptor.file as usize, outlet).at(Step::Open, descriptor.file)?,
            None => plan.files.opened[descriptor.file as usize],
        };
        calls::duplicate_to(from, descriptor.number, descriptor.close_on_exec)
            .at(Step::Number, descriptor.number as u32)?;
    }
    for index in 0..plan.objects.files.len() {
        if plan.files.fillers[index] == Some(plan.own) {
            watch(plan, index)?;
        }
    }
    calls::close_range(plan.kept_end() as u32, u32::MAX).at(Step::Keep, 0)
}

fn make_pipe(plan: &mut Plan, index: usize) -> std::result::Result<(), Errno> {
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

fn open(plan: &mut Plan, index: usize) -> std::result::Result<RawFd, Errno> {
    let file = &plan.objects.files[index];
    let lowest = plan.kept_end();
    match &file.kind {
        FileKind::Regular { offset, .. } | FileKind::Directory { offset, .. } => {
            let number = open_path(plan, index)?;
            if !file.is_path_only() {
                calls::seek(number, *offset)?;
            }
            Ok(number)
        }
        FileKind::Unlinked { file: unlinked, offset } => {
            let made = plan.number_of(FILES + plan.unlinked[*unlinked as usize] as i32);
            let number = calls::move_above(calls::reopen(made, reopening_flags(file))?, lowest)?;
            if !file.is_path_only() {
                calls::seek(number, *offset)?;
            }
            Ok(number)
        }
        FileKind::Device { .. } => open_path(plan, index),
        // Each of its numbers by itself, in `lead_outside`.
        FileKind::Standard { .. } => Ok(-1),
        FileKind::Pipe { pipe } => pipe_end(plan, *pipe as usize, file.flags),
        FileKind::EventFd { count, semaphore } => {
            let number = calls::move_above(calls::eventfd(*semaphore)?, lowest)?;
            if *count > 0 {
                calls::write_all(number, &count.to_ne_bytes())?;
            }
            with_flags(number, file.flags)
        }
        // It is set when all else is done.
        FileKind::TimerFd { clock, .. } => with_flags(calls::move_above(calls::timerfd(*clock)?, lowest)?, file.flags),
        FileKind::SignalFd { mask } => with_flags(calls::move_above(calls::signalfd(*mask)?, lowest)?, file.flags),
        FileKind::Epoll { .. } => calls::move_above(calls::epoll()?, lowest),
    }
}

fn open_path(plan: &Plan, index: usize) -> std::result::Result<RawFd, Errno> {
    let file = &plan.objects.files[index];
    let number = calls::open(&plan.files.paths[index], reopening_flags(file))?;
    let number = calls::move_above(number, plan.kept_end())?;
    if file.flags & libc::O_ASYNC != 0 && !file.is_path_only() {
        return with_flags(number, file.flags);
    }
    Ok(number)
}

fn with_flags(number: RawFd, flags: i32) -> std::result::Result<RawFd, Errno> {
    calls::set_status_flags(number, flags & SETTABLE)?;
    Ok(number)
}

/// What those numbers of file `index` share that have this outlet.
fn lead_outside(plan: &mut Plan, index: usize, outlet: Outlet) -> std::result::Result<RawFd, Errno> {
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
fn standard(inherited: RawFd, flags: i32, lowest: RawFd) -> std::result::Result<RawFd, Errno> {
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

/// The pipe's own end for the first description of it, an end opened again for every other.
fn pipe_end(plan: &mut Plan, pipe: usize, flags: i32) -> std::result::Result<RawFd, Errno> {
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

/// Fills an epoll instance. A standard stream that is a file today cannot be watched; the program has to live with
/// what it was given, so that is a warning.
fn watch(plan: &Plan, index: usize) -> Result<()> {
    let FileKind::Epoll { targets } = &plan.objects.files[index].kind else { return Ok(()) };
    for target in targets {
        let added = calls::watch(plan.files.opened[index], target.number, target.events, target.data)
            .at(Step::Watch, target.number as u32);
        match added {
            Err(failed) if is_standard(plan, target.number) => {
                calls::send(plan.number_of(CHANNEL), &Report::warning(plan.own, failed).to_bytes());
            }
            added => added?,
        }
    }
    Ok(())
}

fn is_standard(plan: &Plan, number: i32) -> bool {
    let descriptor = plan.own().image.descriptors.iter().find(|descriptor| descriptor.number == number);
    let file = descriptor.and_then(|descriptor| plan.objects.files.get(descriptor.file as usize));
    matches!(file, Some(OpenFile { kind: FileKind::Standard { .. }, .. }))
}
