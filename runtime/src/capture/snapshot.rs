//! The stop: what is read of a program while all its threads stand still.
//!
//! Everything here costs the program time, so only what must be exact at one moment is done: kernel state, the
//! census of pages, copies of what a clone would not freeze, and the clone itself.

use std::os::fd::AsFd;
use std::time::Instant;

use ckpt_store::{Depth, PageList};
use ckpt_wire::Control;

use super::files::{self, HeldFiles, Wishes};
use super::guest::Guest;
use super::page_set::PageSet;
use super::pages::{PageSource, Place};
use super::plan::{self, Base, Plan};
use super::regions::{self, Draft};
use super::tracking::{Census, Scanner, Tracker};
use super::tree::{Chooser, Series};
use super::twin::Twin;
use super::unseen::Unseen;
use super::{
    Event, LastSealed, Lineage, Program, Request, allocations, descriptors, mapping_defaults, process, refusals, stop,
    terminal, threads,
};
use crate::error::Result;
use crate::image::{Backing, Objects, ProcessImage};
use crate::proc::{maps, task};
use crate::ptrace::{Pinned, Stopped, remote_call};

/// What holds still while its memory is written.
#[derive(Debug)]
pub enum Still {
    /// A clone, while the program runs.
    Twin(Box<Twin>),
    /// The program itself, since the moment given.
    Program(Vec<Stopped>, Instant),
}

impl Still {
    /// The process whose memory holds still.
    pub fn holder(&self) -> i32 {
        match self {
            Still::Twin(twin) => twin.pid(),
            // The main thread is the first; its tid is the pid.
            Still::Program(threads, _) => threads.first().map_or(0, Stopped::tid),
        }
    }

    /// Whether the program itself stands still.
    pub fn is_stopped(&self) -> bool {
        matches!(self, Still::Program(threads, _) if !threads.is_empty())
    }

    /// Lets the program run on if it is still stopped.
    pub fn resume(&mut self, id: u64, events: &mut dyn FnMut(Event)) -> Result<()> {
        if let Still::Program(threads, since) = self {
            for thread in threads.drain(..) {
                thread.detach_if_alive()?;
            }
            events(Event::Resumed { stop_ms: since.elapsed().as_secs_f64() * 1e3, id });
        }
        Ok(())
    }
}

/// A captured program whose pages are not written yet.
#[derive(Debug)]
pub struct Snapshot {
    /// All but its regions.
    pub image: ProcessImage,
    /// What its descriptors and shared mappings lead to, without the content of files.
    pub objects: Objects,
    /// Its regions.
    pub parts: Vec<Part>,
    /// Its files.
    pub files: HeldFiles,
    /// Where their pages are.
    pub still: Still,
}

/// One region of a snapshot.
#[derive(Debug)]
pub struct Part {
    /// The mapping.
    pub draft: Draft,
    /// Its page tables.
    pub census: Census,
    /// What is to be read of it.
    pub plan: Plan,
    /// Whether it is stored finer than a page, by [`super::tree`].
    pub finer: bool,
    /// Content that was copied during the stop because no clone freezes it.
    pub held: Option<Vec<u8>>,
}

/// Stops the program, captures it, and lets it run on if it could be cloned.
pub fn capture(
    program: &Program,
    control: &Control,
    lineage: &mut Lineage,
    base: LastSealed,
    request: &Request,
    id: u64,
    events: &mut dyn FnMut(Event),
) -> Result<Snapshot> {
    let pid = program.pid;
    let job_stopped = process::is_job_stopped(pid);
    lineage.calls.look(pid);
    let stop_began = Instant::now();
    let mut stopped = stop::stop(pid)?;

    let pinned = Pinned::to(task::last_cpu(pid)?);
    stopped.iter().try_for_each(|thread| refusals::refuse_seccomp(pid, thread.tid()))?;
    let process_signals = stopped[0].queued_process_signals()?;
    let mut threads = Vec::with_capacity(stopped.len());
    let mut homes = Vec::with_capacity(stopped.len());
    let signal_mask = threads::mask_of(&process_signals);
    for thread in &mut stopped {
        let (image, home) = threads::capture(pid, thread, control, signal_mask, &mut lineage.calls)?;
        threads.push(image);
        homes.push(home);
    }
    // Before the descriptors: an agent that died may have left one of its own among them, which is closed here.
    lineage.begin_tracking(program, control, &mut stopped[0], &homes[0])?;
    let mut table = descriptors::capture(pid, program.pidfd.as_fd())?;
    let terminal = terminal::capture(pid, program.pidfd.as_fd(), &table);

    let mut guest = Guest::enter(pid, &mut stopped[0], control, homes[0].home, &homes[0].reissued)?;
    let own = process::own_facts(pid, &mut guest)?;
    let facts = process::facts(pid, own.brk)?;
    let space = regions::sort(pid, maps::mappings(pid)?)?;
    let mapping_defaults = mapping_defaults::capture(&mut guest, &space.drafts)?;
    let chooser = lineage.series.as_mut().map(Series::begin).transpose()?;
    let tracker = lineage.tracker.as_ref().map(|tracker| (tracker, &mut lineage.unseen));
    for unlinked in &mut table.unlinked {
        let is_mapped = |(name, inode): &(Vec<u8>, u64)| (name, *inode) == (&unlinked.target, unlinked.place.1);
        unlinked.file.object = space.object_places.iter().position(is_mapped).map(|object| object as u32);
    }
    let parts = take_census(pid, space.drafts, tracker, &base.memory, chooser)?;
    let twin = if request.kill { None } else { Twin::create(&mut guest)? };
    let signal_actions = match twin {
        Some(_) => Vec::new(),
        None => process::signal_actions(pid, control.scratch, |number, arguments| guest.try_call(number, arguments))?,
    };
    guest.leave()?;
    let wishes = Wishes::of(control, &request.with_dirs);
    let drafts: Vec<&Draft> = parts.iter().map(|part| &part.draft).collect();
    let files = files::hold(pid, &table, &drafts, &wishes, &base.files, twin.is_some())?;

    let mut image = ProcessImage {
        pid,
        executable: without_deleted(task::link(pid, "exe")?),
        command_line: task::bytes(pid, "cmdline")?,
        working_directory: task::link(pid, "cwd")?,
        umask: facts.umask,
        personality: u32::from_str_radix(task::text(pid, "personality")?.trim(), 16).unwrap_or(0),
        oom_score_adj: task::text(pid, "oom_score_adj")?.trim().parse().unwrap_or(0),
        uids: facts.uids,
        gids: facts.gids,
        groups: facts.groups,
        no_new_privs: facts.no_new_privs,
        capabilities: task::capabilities(pid)?,
        parent_death_signal: own.parent_death_signal,
        dumpable: own.dumpable,
        role: facts.role,
        limits: process::limits(pid)?,
        signal_actions,
        queued_signals: threads::stored(&process_signals),
        interval_timers: own.interval_timers,
        posix_timers: own.posix_timers,
        clocks: Some(own.clocks),
        job_stopped,
        layout: facts.layout,
        auxv: facts.auxv,
        special_mappings: space.special,
        mapping_defaults: Some(mapping_defaults),
        regions: Vec::new(),
        differences: Vec::new(),
        allocations: Vec::new(),
        descriptors: table.descriptors,
        terminal,
        locks: table.locks,
        threads,
        control: program.control_address,
    };
    drop(pinned);
    let mut still = Still::Program(stopped, stop_began);
    let still = match twin {
        Some(mut twin) => {
            still.resume(id, events)?;
            let twin_pid = twin.pid();
            let (caller, site) = twin.caller();
            image.signal_actions = process::signal_actions(twin_pid, control.scratch, |number, arguments| {
                Ok(remote_call(caller, site, number, arguments)?.result)
            })?;
            Still::Twin(Box::new(twin))
        }
        None => still,
    };
    image.allocations = match allocations::allocations(still.holder(), control) {
        Ok(allocations) => allocations.known,
        // The records are for people; a program that has written over them is still whole without.
        Err(error) => {
            log::warn!("the allocations of process {pid} are not known: {error}");
            Vec::new()
        }
    };
    let objects = Objects {
        files: table.files,
        pipes: table.pipes,
        memory: space.objects,
        unlinked_files: table.unlinked.into_iter().map(|unlinked| unlinked.file).collect(),
        ..Objects::default()
    };
    Ok(Snapshot { image, objects, parts, files, still })
}

/// Finds out what each region holds and what must be read of it; copies what a clone would not freeze.
fn take_census(
    pid: i32,
    drafts: Vec<Draft>,
    mut tracker: Option<(&Tracker, &mut Unseen)>,
    base: &Base,
    mut chooser: Option<Chooser>,
) -> Result<Vec<Part>> {
    let scanner = Scanner::open(pid)?;
    let source = PageSource::open(pid)?;
    drafts
        .into_iter()
        .map(|draft| {
            let census = match draft.backing {
                Backing::Anonymous | Backing::PrivateFile(_) => private_census(&scanner, &mut tracker, &draft)?,
                Backing::SharedFile { .. } | Backing::SharedObject { .. } => Census::default(),
            };
            if chooser.as_mut().is_some_and(|chooser| chooser.takes(&draft, &census)) {
                let plan = Plan { list: PageList::new(), read: PageSet::default() };
                return Ok(Part { draft, census, plan, finer: true, held: None });
            }
            let plan = plan::plan(&draft, &census, base);
            let frozen_by_a_clone = match draft.backing {
                Backing::Anonymous | Backing::PrivateFile(_) => !draft.advice.dont_fork,
                Backing::SharedFile { may_write, .. } => !may_write && !draft.advice.dont_fork,
                Backing::SharedObject { .. } => false,
            };
            let held = if frozen_by_a_clone || plan.read.is_empty() {
                None
            } else {
                Some(source.read_set(&place(&draft), &plan.read)?)
            };
            Ok(Part { draft, census, plan, finer: false, held })
        })
        .collect()
}

fn private_census(scanner: &Scanner, tracker: &mut Option<(&Tracker, &mut Unseen)>, draft: &Draft) -> Result<Census> {
    let mapping = &draft.mapping;
    let Some((tracker, unseen)) = tracker else { return scanner.census(mapping) };
    unseen.look(Depth::Full, scanner, tracker, mapping)
}

/// How the pages of a region are read.
pub fn place(draft: &Draft) -> Place {
    Place {
        address: draft.mapping.start,
        readable: draft.mapping.protection & libc::PROT_READ != 0,
        may_end_early: !matches!(draft.backing, Backing::Anonymous),
    }
}

fn without_deleted(mut path: Vec<u8>) -> Vec<u8> {
    if path.ends_with(b" (deleted)") {
        path.truncate(path.len() - b" (deleted)".len());
    }
    path
}
