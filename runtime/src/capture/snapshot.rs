//! The stop: what is read of a job while all its threads stand still.
//!
//! Everything here costs the program time, so only what must be exact at one moment is done: kernel state, the
//! census of pages, copies of what a clone would not freeze, and the clones themselves.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ckpt_store::{Attempt, Depth};
use ckpt_wire::{Confinement, Control};

use super::ahead::{self, Ahead, Copies, Costs, Flags};
use super::allocated;
use super::behind_guards::BehindGuards;
use super::descent;
use super::descriptors::Tables;
use super::descriptors::entry::Owner;
use super::descriptors::table::Table;
use super::devices::Devices;
use super::directories;
use super::files::{self, HeldFiles, Wishes};
use super::guest::Guest;
use super::lineage::{Lineage, ProcessLineages};
use super::mapped_files;
use super::member::Member;
use super::pages::{PageSource, Place};
use super::phases::Phases;
use super::plan::{self, Base, Plan};
use super::program::Program;
use super::regions::{self, Draft, SharedMemory, SharedPart};
use super::request::{Event, Request};
use super::sent::{Sent, Source};
use super::still::{self, Still};
use super::sysv::{self, Sysv};
use super::threads::Captured;
use super::tracking::{Census, Scanner, Tracker};
use super::tree::{Chooser, Series};
use super::twin::{Memory, Twin};
use super::unseen::{Look, Unseen};
use super::{
    agent_note, allocations, descriptors, devices, filters, mapping_defaults, process, program, registered_rings,
    terminal, threads,
};
use crate::descriptor::can_fetch;
use crate::error::{Error, Result};
use crate::image::{Allocation, Backing, FileKind, Filter, LostLeader, Objects, OpenFile, ProcessImage, ThreadImage};
use crate::mapped_files::MappedFiles;
use crate::page_set::PageSet;
use crate::proc::{maps, task};
use crate::ptrace::{Pinned, SIGINFO_BYTES, remote_call};

/// How long, ms, a job runs on each time that something is underway in it which cannot be captured there.
const PAUSES_MS: [u64; 8] = [1, 2, 5, 10, 20, 50, 100, 200];

/// A captured job whose pages are not written yet.
#[derive(Debug)]
pub struct Snapshot {
    /// Its processes, parents before their children.
    pub processes: Vec<Frozen>,
    /// What their descriptors and shared mappings lead to, without the content of files.
    pub objects: Objects,
    /// System V objects that they use.
    pub sysv: Sysv,
    /// Their files.
    pub files: HeldFiles,
    /// Leaders of their sessions and process groups that have gone.
    pub lost_leaders: Vec<LostLeader>,
    /// Their mark.
    pub mark: u64,
    /// What confined the job when it began.
    pub confinement: Option<Confinement>,
    /// What the stop was for.
    pub phases: Phases,
}

impl Snapshot {
    /// Whether all of its processes run.
    pub fn runs_on(&self) -> bool {
        self.processes.iter().all(|process| !process.still.is_stopped())
    }
}

/// A captured process whose pages are not written yet.
#[derive(Debug)]
pub struct Frozen {
    /// All but its regions.
    pub image: ProcessImage,
    /// Its regions.
    pub parts: Vec<Part>,
    /// What the last sealed checkpoint has of them.
    pub known: Base,
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
    pub held: Option<Arc<Vec<u8>>>,
}

impl Part {
    /// The pages that are to be read of it, counted from address 0.
    pub fn pages_to_read(&self) -> PageSet {
        self.plan.read.clone().shifted(self.draft.mapping.pages().start)
    }
}

/// Stops the job of `program`, captures it, and lets those run on whose memory is cloned or copied. Some of it may be written to
/// `attempt` before. Devices are suspended meanwhile; where processes stay stopped, they stay so.
pub fn capture(
    program: &Program,
    control: &Control,
    lineage: &mut Lineage,
    (request, suspended): (&Request, &mut Devices<'_>),
    attempt: &mut Attempt,
    events: &mut dyn FnMut(Event),
) -> Result<Snapshot> {
    let id = attempt.id();
    let pids = descent::prepare(program.pid, control.mark, &mut lineage.processes)?;
    // Who does not run on again has no use for a short stop.
    let mut ahead = if request.kill { HashMap::new() } else { ahead::look(&pids, program.pid, lineage, attempt)? };
    // Where it does not run on, the seal is the last that this job gets.
    lineage.mapped =
        if request.kill { MappedFiles::default() } else { mapped_files::open(&pids, program.pid, lineage) };
    suspended.suspend(&pids, &mut lineage.devices, attempt)?;
    let (mut snapshot, flags) = capture_once(program, control, lineage, (request, &mut ahead), id, events)?;
    if !flags.iter().all(Flags::still_hold) {
        log::info!(
            "the flags of a mapping have changed around the stop: once more, with all that is known read in the stop"
        );
        drop(snapshot);
        snapshot = capture_once(program, control, lineage, (request, &mut HashMap::new()), id, events)?.0;
    }
    lineage.processes.kin.take_left_out().into_iter().for_each(|left_out| events(Event::LeftOut(left_out)));
    for process in &mut snapshot.processes {
        process.image.devices = suspended.of(process.image.pid, process.image.instance);
    }
    Ok(snapshot)
}

/// A snapshot, and what was known from before the stop of the mappings of each process.
fn capture_once(
    program: &Program,
    control: &Control,
    lineage: &mut Lineage,
    (request, ahead): (&Request, &mut HashMap<i32, Ahead>),
    id: u64,
    events: &mut dyn FnMut(Event),
) -> Result<(Snapshot, Vec<Flags>)> {
    let Stop { mut phases, members, lost_leaders, states, mut tables, mut sysv } =
        stop(program, control, &mut lineage.processes)?;
    // The job goes on to write them.
    lineage.mapped.leave_out(&written_inodes(&tables.files));
    let mut memory = SharedMemory::default();
    let mut frozen: Vec<Held> = Vec::with_capacity(members.len());
    for ((member, threads), table) in members.into_iter().zip(states).zip(std::mem::take(&mut tables.of_process)) {
        // Memory of the first process alone is stored finer.
        let chooser = lineage.series.as_mut().filter(|_| frozen.is_empty()).map(Series::begin).transpose();
        let ahead = ahead.remove(&member.program.pid).unwrap_or_default();
        // Parents come before their children.
        let of = |image: &ProcessImage| process::would_get_clones(image.pid, image.adopts_orphans);
        let is_below_adopter = frozen.iter().any(|held| of(&held.process.image));
        let (files, mapped) = (&tables.files, &lineage.mapped);
        let about = About { request, files, mapped, chooser: chooser?, ahead, is_below_adopter };
        frozen.push(freeze(member, threads, table, about, &mut memory, &mut lineage.processes, &mut phases)?);
    }
    let changed_root = frozen.iter().map(|it| &it.process.image).find(|image| !image.root_directory.is_empty());
    if let Some(image) = changed_root {
        descriptors::refuse_paths_of_sockets(image.pid, &tables.files)?;
    }
    let opened: Vec<(&[u8], u64)> =
        tables.unlinked.iter().map(|unlinked| (unlinked.target.as_slice(), unlinked.place.1)).collect();
    let drafts = frozen.iter_mut().flat_map(|it| {
        let pid = it.process.image.pid;
        it.process.parts.iter_mut().map(move |part| (pid, &mut part.draft))
    });
    regions::connect_private_views(drafts, &opened, &mut memory);
    sysv.connect(&mut memory)?;
    descriptors::connect_io_urings(&tables.files, &mut memory)?;
    for unlinked in &mut tables.unlinked {
        let is_mapped = |(name, inode): &(Vec<u8>, u64)| (name, *inode) == (&unlinked.target, unlinked.place.1);
        unlinked.file.object = memory.places.iter().position(is_mapped).map(|object| object as u32);
    }
    let wishes = Wishes::of(program.pid, control, &request.with_dirs);
    let parts = frozen.iter().flat_map(|it| it.process.parts.iter().map(|part| (it.process.image.pid, part)));
    let drafts: Vec<(i32, &Draft)> = parts.map(|(pid, part)| (pid, &part.draft)).collect();
    let runs_on = frozen.iter().any(|it| !matches!(it.freed, Freed::No));
    let files = files::hold(&tables, &drafts, &wishes, &std::mem::take(&mut lineage.files), runs_on)?;
    phases.end("files");
    let (processes, flags) = let_run(frozen, id, &mut phases, events)?;
    let Tables {
        files: open_files, pipes, signal_driven, pseudo_terminals, unlinked, message_queues, in_flight, ..
    } = tables;
    // Until here files that are in flight were read through these.
    drop(in_flight);
    let objects = Objects {
        files: open_files,
        pipes,
        signal_driven,
        pseudo_terminals,
        memory: memory.objects,
        message_queues,
        unlinked_files: unlinked.into_iter().map(|unlinked| unlinked.file).collect(),
        ..Objects::default()
    };
    Ok((
        Snapshot {
            processes,
            objects,
            sysv,
            files,
            lost_leaders,
            mark: control.mark,
            confinement: control.confinement(),
            phases,
        },
        flags,
    ))
}

/// The inodes of files that a job has open to write.
fn written_inodes(files: &[OpenFile]) -> HashSet<u64> {
    let written = files.iter().filter(|file| file.is_writable());
    let inode = |file: &OpenFile| match file.kind {
        FileKind::Regular { inode, .. } => Some(inode),
        _ => None,
    };
    written.filter_map(inode).collect()
}

/// A job that stands still, its threads and what it has open.
struct Stop {
    phases: Phases,
    members: Vec<Member>,
    lost_leaders: Vec<LostLeader>,
    states: Vec<Threads>,
    tables: Tables,
    sysv: Sysv,
}

/// Stops a job; more than once, with pauses in between, while it holds what cannot be captured and passes soon.
fn stop(program: &Program, control: &Control, known: &mut ProcessLineages) -> Result<Stop> {
    let mut pauses_ms = PAUSES_MS.iter();
    loop {
        match (stop_once(program, control, known), pauses_ms.next()) {
            (Err(error @ Error::Unsettled { .. }), Some(&ms)) => {
                log::debug!("the job goes on for a moment: {error}");
                thread::sleep(Duration::from_millis(ms));
            }
            (outcome, _) => return outcome,
        }
    }
}

fn stop_once(program: &Program, control: &Control, known: &mut ProcessLineages) -> Result<Stop> {
    let mut phases = Phases::begin();
    let descent::StillJob { mut members, lost_leaders } = descent::stop(program, control, known)?;
    phases.end("stopping");
    let awake =
        members.iter().try_for_each(|it| devices::refuse_awake(it.program.pid, &it.control, it.job_stopped.is_some()));
    let states: Result<Vec<_>> =
        awake.and_then(|()| members.iter_mut().map(|member| threads_of(member, known)).collect());
    phases.end("threads");
    // Behind the threads: an agent that died may have left a descriptor of its own, which was closed there.
    let looked = states.and_then(|states| {
        let owners = members.iter().zip(&states).map(|(it, threads)| Owner {
            pid: it.program.pid,
            source: Source::of(it.program.pidfd.as_fd(), threads.sent.as_ref()),
        });
        let owners: Vec<Owner<'_>> = owners.collect();
        let pids: Vec<i32> = owners.iter().map(|owner| owner.pid).collect();
        let made = sysv::made(members.iter().map(|it| (it.program.pid, it.control.as_ref())));
        let sysv = sysv::capture(&pids, &made, states.iter().flat_map(|threads| &threads.images))?;
        let tables = descriptors::capture(&owners)?;
        drop(owners);
        Ok((states, tables, sysv))
    });
    let looked = looked.and_then(|looked| {
        let (states, tables, _) = &looked;
        for ((member, threads), table) in members.iter_mut().zip(states).zip(&tables.of_process) {
            if descriptors::has_io_uring(table, &tables.files) {
                let Member { program, control, threads: stopped, .. } = member;
                registered_rings::refuse(program.pid, stopped, &threads.ways, control)?;
            }
        }
        Ok(looked)
    });
    phases.end("descriptors");
    match looked {
        Ok((states, tables, sysv)) => Ok(Stop { phases, members, lost_leaders, states, tables, sysv }),
        Err(error) => {
            descent::let_go(members);
            Err(error)
        }
    }
}

/// The threads of a process, how each goes on, and what is queued for all of them.
struct Threads {
    images: Vec<ThreadImage>,
    ways: Vec<Captured>,
    process_signals: Vec<[u8; SIGINFO_BYTES]>,
    /// Seccomp filters that they have added.
    filters: Vec<Filter>,
    /// Its descriptors, where they cannot be fetched.
    sent: Option<Sent>,
}

/// Captures the threads of a process, and has the kernel note from now on what it writes.
fn threads_of(member: &mut Member, known: &mut ProcessLineages) -> Result<Threads> {
    let Member { program, control, threads: stopped, is_first, .. } = member;
    let pid = program.pid;
    let _pinned = Pinned::to(task::last_cpu(pid)?);
    let began = known.confinement;
    filters::suspend(pid, stopped, began)?;
    let process_signals = stopped[0].queued_process_signals()?;
    let signal_mask = threads::mask_of(&process_signals);
    let is_read_whole = known.are_read_whole;
    let known = known.of(pid, control, *is_first);
    let (mut images, ways) = threads::capture_all(pid, stopped, control, signal_mask, &mut known.calls)?;
    let filters = filters::capture(pid, stopped, began, &mut images)?;
    if !is_read_whole {
        known.begin_tracking(program, control, &mut stopped[0], &ways[0])?;
    }
    let sent = match can_fetch() {
        Ok(()) => None,
        Err(_) => {
            let mut guest = Guest::enter(pid, &mut stopped[0], control, ways[0].home, &ways[0].reissued)?;
            let sent = Sent::where_needed(&mut guest)?;
            guest.leave()?;
            sent
        }
    };
    Ok(Threads { images, ways, process_signals, filters, sent })
}

/// What a process is frozen by.
struct About<'a> {
    request: &'a Request,
    /// The open files of the job.
    files: &'a [OpenFile],
    /// Files that can wait until the seal.
    mapped: &'a MappedFiles,
    chooser: Option<Chooser>,
    /// What was done before the stop.
    ahead: Ahead,
    /// Whether a process above adopts orphans, which a clone would be.
    is_below_adopter: bool,
}

/// A process whose state is captured.
struct Held {
    process: Frozen,
    freed: Freed,
    control: Box<Control>,
    /// What was taken of its mappings from before the stop.
    flags: Option<Flags>,
}

/// What lets a process run on while its memory is written.
enum Freed {
    /// Nothing does.
    No,
    /// A clone.
    ByTwin(Twin),
    /// All that is to be read has been copied, and a clone that shares the memory can be asked for the rest.
    ByCopies(Copies, Option<Twin>),
}

/// Captures what belongs to a process alone, and makes its memory hold still.
fn freeze(
    member: Member,
    mut threads: Threads,
    table: Table,
    about: About<'_>,
    memory: &mut SharedMemory,
    known: &mut ProcessLineages,
    phases: &mut Phases,
) -> Result<Held> {
    let Member { program, control, threads: mut stopped, family, is_first, job_stopped } = member;
    let pid = program.pid;
    let _pinned = Pinned::to(task::last_cpu(pid)?);
    let began = known.confinement;
    let known = known.of(pid, &control, is_first);
    known.unseen.devices_write_to(devices::written_by_devices(pid, &control)?);
    // Until the new checkpoint is sealed there is nothing to build on: the scan forgets what had changed.
    let base = std::mem::take(&mut known.base);
    let source = Source::of(program.pidfd.as_fd(), threads.sent.as_ref());
    let terminal = terminal::capture(pid, source, &table, about.files);
    drop(threads.sent.take());

    agent_note::write(pid, &control);
    let way = &threads.ways[0];
    let mut guest = Guest::enter(pid, &mut stopped[0], &control, way.home, &way.reissued)?;
    let own = process::own_facts(pid, &mut guest)?;
    let facts = process::facts(pid, own.brk, began)?;
    phases.end("process");
    let Ahead { flags, mut copies } = about.ahead;
    let flags = flags.map(Flags::of_still).transpose()?.flatten();
    let mappings = match &flags {
        Some(flags) => flags.mappings().to_vec(),
        None => maps::mappings(pid)?,
    };
    let mut space = regions::sort(pid, mappings, memory)?;
    allocated::find(&mut guest, &mut space.drafts)?;
    let mapping_defaults = mapping_defaults::capture(&mut guest, &space.drafts)?;
    phases.end("mappings");
    let tracker = known.tracker.as_ref().map(|tracker| (tracker, &mut known.unseen));
    let behind = BehindGuards::map(&mut guest, &space.drafts)?;
    let parts =
        take_census(pid, (space.drafts, &behind), tracker, &mut copies, (&base, about.mapped), about.chooser, memory);
    behind.unmap(&mut guest)?;
    let parts = parts?;
    phases.end("pages");
    let copies = copies.map(|copies| complete(pid, copies, &parts, &known.costs)).transpose()?.flatten();
    let would_be_adopted = process::would_get_clones(pid, own.adopts_orphans) || about.is_below_adopter;
    let freed = match copies {
        _ if about.request.kill => Freed::No,
        Some(copies) if would_be_adopted => Freed::ByCopies(copies, None),
        Some(copies) => Freed::ByCopies(copies, Twin::create(&mut guest, Memory::Shared)?),
        None if has_own_huge_pages(&parts) => {
            // A clone would share them, and the next write take another page from the pool, which may have none.
            log::info!("process {pid} has huge pages of its own, which no clone can hold: it stays stopped instead");
            Freed::No
        }
        None if would_be_adopted => {
            log::info!("a clone of process {pid} would be adopted by the job: it stays stopped instead");
            Freed::No
        }
        None => clone_of(&mut guest, &parts, &mut known.costs)?,
    };
    match freed {
        Freed::No => {}
        Freed::ByCopies(..) => phases.end("copy"),
        Freed::ByTwin(_) => phases.end("clone"),
    }
    let (mut signal_actions, mut allocations) = (Vec::new(), Vec::new());
    if !matches!(freed, Freed::ByTwin(_)) {
        allocations = known_allocations(pid, &control);
    }
    if matches!(freed, Freed::No | Freed::ByCopies(_, None)) {
        let call = |number, arguments| guest.try_call(number, arguments);
        signal_actions = process::signal_actions(pid, control.scratch, call)?;
    }
    guest.leave()?;

    let cwd = Path::new("/proc").join(pid.to_string()).join("cwd");
    let (working_directory, working_directory_removed) = directories::place(&cwd, task::link(pid, "cwd")?)?;
    let image = ProcessImage {
        pid,
        executable: program::executable(pid, &control)?,
        command_line: task::bytes(pid, "cmdline")?,
        working_directory,
        working_directory_removed,
        root_directory: facts.root_directory,
        umask: facts.umask,
        personality: u32::from_str_radix(task::text(pid, "personality")?.trim(), 16).unwrap_or(0),
        oom_score_adj: task::text(pid, "oom_score_adj")?.trim().parse().unwrap_or(0),
        uids: facts.uids,
        gids: facts.gids,
        groups: facts.groups,
        no_new_privs: facts.no_new_privs,
        filters: threads.filters,
        capabilities: task::capabilities(pid)?,
        adopts_orphans: own.adopts_orphans,
        parent_death_signal: own.parent_death_signal,
        dumpable: own.dumpable,
        permitted_components: own.permitted_components,
        memory_barriers: own.memory_barriers,
        core_dump_filter: task::core_dump_filter(pid),
        broken_memory: own.broken_memory,
        family,
        limits: process::limits(pid)?,
        signal_actions,
        queued_signals: threads::stored(&threads.process_signals),
        interval_timers: own.interval_timers,
        posix_timers: own.posix_timers,
        clocks: Some(own.clocks),
        job_stopped: job_stopped.is_some(),
        stopped_by: job_stopped,
        layout: facts.layout,
        auxv: facts.auxv,
        special_mappings: space.special,
        mapping_defaults: Some(mapping_defaults),
        regions: Vec::new(),
        differences: Vec::new(),
        allocations,
        descriptors: table.descriptors,
        terminal,
        locks: table.locks,
        threads: threads.images,
        devices: None,
        instance: control.job,
        control: program.control_address,
    };
    let still = Still::Program(stopped, phases.began());
    phases.end("process");
    Ok(Held { process: Frozen { image, parts, known: base, still }, freed, control, flags })
}

/// A clone of a process whose memory is `parts`, if there can be one.
fn clone_of(guest: &mut Guest<'_>, parts: &[Part], costs: &mut Costs) -> Result<Freed> {
    let begun = Instant::now();
    let Some(twin) = Twin::create(guest, Memory::Copied)? else {
        costs.cannot_be_cloned();
        return Ok(Freed::No);
    };
    costs.cloned(parts.iter().map(|part| part.census.present.len()).sum(), begun.elapsed());
    Ok(Freed::ByTwin(twin))
}

/// Whether a clone would have huge pages in common with its program.
fn has_own_huge_pages(parts: &[Part]) -> bool {
    let is_such =
        |Draft { mapping, advice, .. }: &Draft| !mapping.shared && advice.huge_page_bytes > 0 && !advice.dont_fork;
    parts.iter().any(|part| is_such(&part.draft))
}

/// Copies what is still to be read of private memory, if that is shorter than to clone it, and there is room.
fn complete(pid: i32, mut copies: Copies, parts: &[Part], costs: &Costs) -> Result<Option<Copies>> {
    if parts.iter().any(|part| part.finer) {
        return Ok(None);
    }
    let parts: Vec<_> = parts.iter().filter(|part| part.held.is_none()).collect();
    let missing: Vec<_> = parts.iter().map(|part| copies.missing(&part.pages_to_read())).collect();
    let present = parts.iter().map(|part| part.census.present.len()).sum();
    let changed = missing.iter().map(PageSet::len).sum();
    if !costs.copying_is_shorter(changed, present) || !copies.have_room_for(changed) {
        return Ok(None);
    }
    let source = PageSource::open(pid)?;
    for (part, missing) in parts.iter().zip(&missing).filter(|(_, missing)| !missing.is_empty()) {
        copies.add(&source, &place(&part.draft), missing)?;
    }
    Ok(Some(copies))
}

/// Lets the processes run on whose memory a clone holds or is copied, and asks clones for what they have of them. Gives what was
/// known of the mappings of each from before the stop, too.
fn let_run(
    held: Vec<Held>,
    id: u64,
    phases: &mut Phases,
    events: &mut dyn FnMut(Event),
) -> Result<(Vec<Frozen>, Vec<Flags>)> {
    let (mut run_on, mut processes) = (Vec::new(), Vec::with_capacity(held.len()));
    let mut known = Vec::new();
    for Held { mut process, freed, control, flags } in held {
        let (still, shadow) = match freed {
            Freed::No => (None, None),
            Freed::ByTwin(twin) => (Some(Still::Twin(Box::new(twin))), None),
            Freed::ByCopies(copies, shadow) => (Some(Still::Copied(copies)), shadow),
        };
        if let Some(still) = still {
            run_on.push(std::mem::replace(&mut process.still, still));
        }
        processes.push((process, shadow, control));
        known.extend(flags);
    }
    still::resume(&mut run_on, id, events)?;
    phases.end("resuming");
    let ask = |(process, shadow, control): (Frozen, Option<Twin>, Box<Control>)| ask_clone(process, shadow, &control);
    Ok((processes.into_iter().map(ask).collect::<Result<_>>()?, known))
}

/// Adds what can be asked of a clone as well as of its program, if there is one; `shadow` shares its memory, and ends here.
fn ask_clone(mut process: Frozen, mut shadow: Option<Twin>, control: &Control) -> Result<Frozen> {
    if let Still::Twin(twin) = &process.still {
        process.image.allocations = known_allocations(twin.pid(), control);
    }
    let clone = match &mut process.still {
        Still::Twin(twin) => Some(&mut **twin),
        Still::Program(..) | Still::Copied(_) => shadow.as_mut(),
    };
    if let Some(clone) = clone {
        let pid = clone.pid();
        let (caller, site) = clone.caller();
        process.image.signal_actions = process::signal_actions(pid, control.scratch, |number, arguments| {
            Ok(remote_call(caller, site, number, arguments)?.result)
        })?;
    }
    Ok(process)
}

/// The allocations of `pid`, which is a process or its clone.
fn known_allocations(pid: i32, control: &Control) -> Vec<Allocation> {
    match allocations::allocations(pid, control) {
        Ok(allocations) => allocations.known,
        // The records are for people; a program that has written over them is still whole without.
        Err(error) => {
            log::warn!("the allocations of process {pid} are not known: {error}");
            Vec::new()
        }
    }
}

/// Finds out what each region holds and what must be read of it; copies what a clone would not freeze.
fn take_census(
    pid: i32,
    (drafts, behind): (Vec<Draft>, &BehindGuards),
    mut tracker: Option<(&Tracker, &mut Unseen)>,
    copies: &mut Option<Copies>,
    (base, mapped): (&Base, &MappedFiles),
    mut chooser: Option<Chooser>,
    memory: &mut SharedMemory,
) -> Result<Vec<Part>> {
    let scanner = Scanner::open(pid)?;
    let source = PageSource::open(pid)?;
    let mut changed = PageSet::default();
    let parts: Result<Vec<Part>> = drafts
        .into_iter()
        .map(|draft| {
            let (mut census, now_changed) = census_of(&scanner, &mut tracker, &draft)?;
            let second = behind.of(&draft);
            census.guards = second.map_or(census.guards, |second| second.guards.clone());
            now_changed.ranges().for_each(|run| changed.push(run));
            if chooser.as_mut().is_some_and(|chooser| chooser.takes(&draft, &census)) {
                return Ok(Part { draft, census, plan: Plan::default(), finer: true, held: None });
            }
            let plan = plan::plan(&draft, &census, base, draft.file.is_some_and(|stamp| mapped.has(&stamp)));
            let frozen_by_a_clone = match draft.backing {
                Backing::Anonymous | Backing::PrivateFile(_) => !draft.advice.dont_fork,
                Backing::SharedFile { may_write, .. } => !may_write && !draft.advice.dont_fork && second.is_none(),
                Backing::SharedObject { .. } => false,
            };
            let mut place = place(&draft);
            place.address = second.map_or(place.address, |second| second.address);
            let held = match SharedPart::of(&draft) {
                _ if frozen_by_a_clone || plan.read.is_empty() => None,
                // All processes stand still: what one has of it is what the others have.
                Some(part) => Some(match memory.held.entry(part) {
                    Entry::Occupied(known) => known.get().clone(),
                    Entry::Vacant(new) => new.insert(Arc::new(source.read_set(&place, &plan.read)?)).clone(),
                }),
                None => Some(Arc::new(source.read_set(&place, &plan.read)?)),
            };
            Ok(Part { draft, census, plan, finer: false, held })
        })
        .collect();
    if let Some(copies) = copies {
        copies.forget(&changed);
    }
    parts
}

/// Looks at a mapping. Gives what it holds, and what has changed of it, counted from address 0: all that the kernel does not
/// vouch for to be as it was at the last look.
fn census_of(
    scanner: &Scanner,
    tracker: &mut Option<(&Tracker, &mut Unseen)>,
    draft: &Draft,
) -> Result<(Census, PageSet)> {
    let mapping = &draft.mapping;
    let is_watched = draft.advice.huge_page_bytes == 0;
    let (census, changed) = match (&draft.backing, tracker.as_mut().filter(|_| is_watched)) {
        (Backing::Anonymous | Backing::PrivateFile(_), Some((tracker, unseen))) => {
            let Look { census, latest } = unseen.look(Depth::Full, scanner, tracker, mapping)?;
            (census, latest)
        }
        (Backing::Anonymous | Backing::PrivateFile(_), None) => {
            (scanner.census(mapping)?, PageSet::of(mapping.pages()))
        }
        (Backing::SharedFile { .. } | Backing::SharedObject { .. }, _) => {
            (Census::default(), PageSet::of(mapping.pages()))
        }
    };
    let changed = match draft.backing {
        // One that has become the file's again stays protected.
        Backing::PrivateFile(_) => {
            let own = census.own.clone().shifted(mapping.pages().start);
            PageSet::of(mapping.pages()).difference(&own.difference(&changed))
        }
        _ => changed,
    };
    Ok((census, changed))
}

/// How the pages of a region are read.
pub fn place(draft: &Draft) -> Place {
    Place {
        address: draft.mapping.start,
        // What is pinned is no longer shared with other processes: huge pages would each take another one from the pool.
        readable: draft.mapping.protection & libc::PROT_READ != 0 && draft.advice.huge_page_bytes == 0,
        may_end_early: !matches!(draft.backing, Backing::Anonymous),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::FileIdentity;
    use crate::proc::maps::Mapping;

    /// Memory of this process, and copies of it.
    fn copied(content: &[u8]) -> (Mapping, Copies) {
        let start = (content.as_ptr() as u64).next_multiple_of(4096);
        let mapping = Mapping { start, end: start + 8 * 4096, inode: 1, ..Mapping::default() };
        let mut copies = Copies::with_room(100);
        copies.add_of_running(&PageSource::open(std::process::id() as i32).unwrap(), &PageSet::of(mapping.pages()));
        assert!(copies.missing(&PageSet::of(mapping.pages())).is_empty());
        (mapping, copies)
    }

    #[test]
    fn what_was_copied_where_a_file_lies_now_is_not_what_is_there() {
        let path = b"/x".to_vec();
        let file = FileIdentity {
            path,
            deleted: false,
            device: (0, 0),
            inode: 1,
            size: 9 * 4096,
            mode: 0o644,
            offset: 0,
            times: None,
        };
        let shared = Backing::SharedFile { file: file.clone(), may_write: false };
        let content = vec![1; 9 * 4096];
        // Without a tracker nothing is known of the private one.
        for backing in [shared, Backing::PrivateFile(file), Backing::Anonymous] {
            let (mapping, copies) = copied(&content);
            let pages = PageSet::of(mapping.pages());
            let drafts = vec![Draft::new(mapping, backing)];
            let (own, mut copies, mut memory) = (std::process::id() as i32, Some(copies), SharedMemory::default());
            let parts = take_census(
                own,
                (drafts, &BehindGuards::default()),
                None,
                &mut copies,
                (&Base::new(), &MappedFiles::default()),
                None,
                &mut memory,
            )
            .unwrap();
            assert_eq!(copies.unwrap().missing(&pages), pages, "{:?}", parts[0].draft.backing);
        }
    }
}
