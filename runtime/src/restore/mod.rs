//! Rebuilds the processes of a job from their image.
//!
//! The story is the order of [`rebuild`]: everything that can be refused is refused before anything is built; the
//! files for the mappings are opened and compared; a child with the program's own pid is forked, does by itself what
//! a process can only do for itself, and is stopped; then its memory is exchanged and its threads are made by remote
//! calls. It is a half-built process until [`Rebuilt::release`]: whatever goes wrong before, it is killed, and files
//! on disk are changed only after the last thing that could fail.
//!
//! No code of ours stays in the program's address space: remote calls are made at a `syscall` instruction in its
//! vdso, which also removes the last page of the rebuild; where they are many, by code in the scratch area ([`call_table`]). Every page is verified before the first instruction runs.
//!
//! Tracing belongs to a thread, so all of this happens in the caller's.

mod address_space;
mod ascending;
mod call_table;
mod captured_files;
mod child;
mod clocks;
mod clone_call;
mod confinement;
mod content;
mod control;
mod copy;
mod copy_on_write;
mod credentials;
mod devices;
mod directories;
mod ended;
mod environment;
mod fanotify;
mod fifos;
mod file_comparison;
mod file_mappings;
mod filters;
mod first_process;
mod fresh_memory;
mod groups;
mod grown_files;
mod guards;
mod handed;
mod host;
mod huge_pages;
mod in_common;
mod interfaces;
mod io_urings;
mod lazy;
mod limits;
mod locks;
mod mapping_defaults;
mod mapping_plan;
mod memory_barriers;
mod message_queues;
mod of_processes;
mod on_faults;
mod on_restart;
mod open_files;
mod options;
mod outside;
mod page_writer;
mod paths;
mod place;
mod posix_timers;
mod preflight;
mod process;
mod pseudo_terminals;
mod ranges;
mod reach;
mod removed_directories;
#[cfg(test)]
mod sample;
mod saved_copy;
mod scheduling;
mod settle;
mod shared_pages;
mod signal_driven;
mod signals;
mod sockets;
mod spawn;
mod sysv;
#[cfg(test)]
mod tests;
mod threads;
mod tiles;
mod timerfds;
mod unlinked_files;
mod vdso;
mod window;
mod xstate;

pub use ascending::{ENV_SEARCH, Ids, SEARCH_DEFAULT};
pub use clocks::ClockWish;
pub use copy::Copied;
pub use on_restart::OnRestart;
pub use options::{Progress, RestoreOptions, Stage};
pub use outside::Stdio;
pub use place::{Lasting, Place};
pub use preflight::shape::check as check_shape;

/// A process that is complete, for tests elsewhere.
#[cfg(test)]
pub fn sample_process() -> ProcessImage {
    sample::process(&Machine::this().expect("this machine has a vdso"))
}

use std::path::Path;

use ckpt_store::Store;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::descriptor;
use crate::differences::Differences;
use crate::error::{Error, Result};
use crate::filtered;
use crate::image::{self, AtTerminal, JobImage, ProcessImage};
use crate::namespace;
use crate::ptrace::{Pinned, Registers};
use captured_files::CapturedFiles;
use clocks::ClockPlan;
use copy_on_write::CopyOnWrite;
use devices::{Devices, Replacements};
pub use preflight::check_before_seal;

use directories::MadeDirectories;
use fresh_memory::FreshMemory;
use host::Machine;
use lazy::Lazy;
use mapping_plan::MappingPlan;
use message_queues::Queues;
use open_files::OpenFiles;
use outside::{Outside, Regained};
use process::HalfBuilt;
use pseudo_terminals::{PseudoTerminals, give_foreground};
use saved_copy::SavedCopies;
use settle::Changes;
use sockets::Sockets;
use spawn::{Ready, Spawned};
use vdso::VdsoPlan;

/// Processes that are complete and stand still. Dropping it ends them.
#[derive(Debug)]
pub struct Rebuilt {
    processes: Vec<HalfBuilt>,
    devices: Devices,
    job: JobImage,
    terminal: Regained,
}

impl Rebuilt {
    /// The pid of the first process, which is the program's. It is a child of the caller.
    pub fn pid(&self) -> i32 {
        self.image().pid
    }

    /// What that was built from.
    pub fn image(&self) -> &ProcessImage {
        self.job.root()
    }

    /// What it finds again at its terminal, if it has one again that controls it.
    pub fn at_terminal(&self) -> AtTerminal {
        if self.terminal.controls { AtTerminal::of(&self.job) } else { AtTerminal::default() }
    }

    /// Lets everything run at once, or stand still again under SIGSTOP if it was stopped when it was captured. It is
    /// told by SIGWINCH if its terminal is another one.
    ///
    /// # Errors
    /// When it cannot be let run, or cannot have its devices back: then it has been ended.
    pub fn release(self, progress: &mut Progress) -> Result<()> {
        let stops = |pid: i32| {
            let process = self.job.processes.iter().find(|process| process.pid == pid)?;
            process.job_stopped.then(|| stop_signal(&self.job, process))
        };
        let mut processes = self.processes;
        if first_process::is_in(&self.job) {
            first_process::leave_by_stub(&mut processes[0], self.job.root())?;
        }
        HalfBuilt::release_all(processes, &stops)?;
        self.devices.give_back(progress)?;
        let is_news_for = |process: &&ProcessImage| self.terminal.is_news_for(process);
        for pid in self.job.processes.iter().filter(is_news_for).map(|process| process.pid) {
            // One that has ended meanwhile need not know.
            if let Err(error) = kill(Pid::from_raw(pid), Signal::SIGWINCH)
                && error != Errno::ESRCH
            {
                log::warn!("telling process {pid} the size of its terminal: {error}");
            }
        }
        Ok(())
    }
}

/// The signal that stops a process again, of which its parent is told. The kernel ignores those of the terminal in a group that has no
/// parent in its session: without one in the job it is SIGSTOP.
fn stop_signal(job: &JobImage, stopped: &ProcessImage) -> Signal {
    let family = &stopped.family;
    let parent = family.parent.and_then(|parent| job.processes.get(parent as usize)).map(|parent| &parent.family);
    let is_controlled = parent.is_some_and(|parent| parent.session == family.session && parent.group != family.group);
    let signal = stopped.stopped_by.and_then(|signal| Signal::try_from(signal).ok());
    signal.filter(|_| is_controlled).unwrap_or(Signal::SIGSTOP)
}

/// What the program of `job` finds again at its terminal, if a restart by this process gives it one that controls it.
///
/// # Errors
/// When this process has no streams to give.
pub fn at_terminal(mut job: JobImage, stdio: &Stdio) -> Result<AtTerminal> {
    stdio.apply_to(&mut job);
    let regained = Outside::of(&job, stdio)?.regained;
    Ok(if regained.controls { AtTerminal::of(&job) } else { AtTerminal::default() })
}

/// Rebuilds the process of checkpoint `id`.
///
/// # Errors
/// What is wrong with the host, the user, the files or the store, by name. Then nothing is left of the attempt.
pub fn rebuild(store: &Store, id: u64, options: &RestoreOptions, progress: &mut Progress) -> Result<Rebuilt> {
    progress(Stage::Reading, 0, 0);
    let manifest = store.manifest(id)?;
    let mut job = image::job_of(&manifest)?;
    if job.pending().next().is_some() {
        let why = "pages of files that its program has mapped are not stored yet";
        return Err(Error::environment(format!("checkpoint {id}"), why, "give the command again"));
    }
    filtered::refuse_without(&format!("restarting checkpoint {id}"), &[libc::SYS_ptrace])?;
    // Without pidfds the program could not be followed.
    descriptor::pidfd_open(std::process::id() as i32)?;
    job.map_paths(&options.paths);
    interfaces::renumber(&mut job)?;
    options.stdio.apply_to(&mut job);

    let machine = Machine::this()?;
    if options.place.is_own_namespace() {
        let highest = job.ids().max().unwrap_or(job.root().pid);
        namespace::let_new_ids_begin_after(highest)?;
    }
    preflight::check(id, &job, &machine, options)?;
    sockets::move_addresses(&mut job, &options.addresses)?;
    confinement::compare(&job.host, &machine.host);
    let directories = MadeDirectories::of(&job)?;
    let replacements = Replacements::find(&job)?;
    let clocks = ClockPlan::new(job.root(), options.clocks)?;
    // Before anything of the program's is open here.
    let lazy = match (options.lazy, options.ids) {
        (false, _) => None,
        (true, Ids::Chosen) if !first_process::is_in(&job) => Lazy::start(&job, store)?,
        (true, _) => {
            lazy::say_without_effect("the processes that bring the memory would take ids before those of the program");
            None
        }
    };
    let of_each = || job.processes.iter();
    let vdsos: Vec<_> = of_each().map(|image| VdsoPlan::new(image, &job.host, &machine)).collect::<Result<_>>()?;
    let differences: Vec<_> = of_each().map(|image| Differences::of(image, store)).collect::<Result<_>>()?;
    let captured = CapturedFiles::compare(&job, store)?;
    if options.copy.is_some() {
        in_common::refuse(&job, &captured)?;
    }
    let prepared = captured.prepare(&job)?;
    // The store of a copy's checkpoint is others'.
    let spare_directory = options.store_dir.clone().unwrap_or_else(std::env::temp_dir);
    let mut plan = plan_mappings(&job, store, &spare_directory, progress)?;
    let changes = Changes::find(&job, &plan, captured, store)?;
    let outside = Outside::of(&job, &options.stdio)?;
    Stdio::name_lost(&job);
    let fifos = fifos::make_missing(&job)?;
    let queues = Queues::of(&job)?;
    let sockets = Sockets::make(&job)?;
    let opened = OpenFiles::of(&job)?;

    let terminals = PseudoTerminals::make(&job)?;

    let mut filling = Filling::of(&job, &plan, progress);
    let mut common = match &lazy {
        // All of the memory comes later, to each for itself.
        Some(_) => CopyOnWrite::default(),
        None => {
            let elsewhere = vdsos.iter().flat_map(|vdso| &vdso.wanted);
            let elsewhere = elsewhere.chain(of_each().flat_map(|image| &image.special_mappings));
            CopyOnWrite::stage(&job, &plan.sources, elsewhere, store, &mut |bytes| filling.add(bytes))?
        }
    };

    let pinned = Pinned::here();
    let ready = Ready { mappings: &plan, opened: &opened, queues: &queues, sockets: &sockets, terminals: &terminals };
    let Spawned { mut processes, handed, first_kept, first_file, first_terminal } =
        spawn::spawn(&job, &outside, &ready, (&clocks, options.ids), machine.syscall())?;
    (filling.progress)(Stage::Born, 0, 0);
    common.leave_to_forks();
    drop(opened);
    sockets.settle();
    terminals.shut(&job)?;
    drop(terminals);
    groups::join(&mut processes, &job)?;
    let mut made = sysv::Made::default();
    sysv::make_memory(&mut processes, &job, &mut made)?;
    plan.segments = sysv::attach_here(&job, store)?;
    for (index, (process, image)) in processes.iter_mut().zip(&job.processes).enumerate() {
        mapping_defaults::set_for_pages(process, image)?;
        let mappings = (plan.sources[index].as_slice(), plan.executables[index]);
        address_space::exchange(
            process,
            (image, &job.objects),
            (&machine, &vdsos[index]),
            mappings,
            first_file,
            common.of(index),
        )?;
        give_foreground(process, image, &job, first_terminal)?;
    }
    // A table may be that of several.
    processes.iter_mut().try_for_each(|process| address_space::close_kept(process, first_kept))?;
    let lazy = lazy.map(Lazy::when_ready).transpose()?.flatten();
    let mut fresh = Vec::new();
    for (index, (process, image)) in processes.iter_mut().zip(&job.processes).enumerate() {
        match &lazy {
            Some(lazy) => lazy.hand_over(process, index)?,
            None => fresh.push(FreshMemory::of(process, image, &plan.sources[index])?),
        }
    }
    drop(pinned);
    fill(&processes, &job, &plan, (store, &differences), (lazy.as_ref(), &fresh, &common), &mut filling)?;
    drop((differences, fresh, common));
    plan.segments.clear();
    sysv::make_others(&mut processes, &job, &mut made)?;
    sysv::settle_memory(&job.objects)?;

    let _pinned = Pinned::here();
    progress(Stage::Threads, 0, 0);
    let mut lasting = None;
    for (index, (process, image)) in processes.iter_mut().zip(&job.processes).enumerate() {
        let told = control::update(process, image, options)?;
        lasting = lasting.or(told);
        address_space::complete(process, image)?;
        guards::install(process, image)?;
        memory_barriers::register(process, image)?;
        on_faults::set(process, image)?;
        make_threads(process, (&job, index), id, &options.place)?;
    }
    if let Some(on_restart) = &options.on_restart {
        on_restart.run(job.root(), lasting.as_ref(), &options.place)?;
    }
    directories.keep();
    prepared.keep();
    fifos.keep();
    made.keep();
    let copies = SavedCopies::of(options.store_dir.as_deref(), store.is_encrypted(), &options.place, id);
    changes.settle(&copies, &job, &plan, store)?;
    for (process, image) in processes.iter_mut().zip(&job.processes) {
        locks::take_leases(process, image, &job.objects)?;
    }
    handed.settle(&job)?;
    queues.settle(&job)?;
    if let Some(lazy) = lazy {
        lazy.complete()?;
    }
    let devices = Devices::ask(&processes, &job, &replacements, store)?;
    Ok(Rebuilt { processes, devices, job, terminal: outside.regained })
}

fn plan_mappings(
    job: &JobImage,
    store: &Store,
    spare_directory: &Path,
    progress: &mut Progress,
) -> Result<MappingPlan> {
    let total = job.processes.iter().flat_map(|process| &process.regions).map(|region| region.bytes).sum();
    let mut done = 0;
    progress(Stage::Verifying, 0, total);
    MappingPlan::new(job, store, spare_directory, &mut |bytes| {
        done += bytes;
        progress(Stage::Verifying, done, total);
    })
}

/// How much of the memory has been filled.
struct Filling<'a, 'b> {
    done: u64,
    total: u64,
    progress: &'a mut Progress<'b>,
}

impl<'a, 'b> Filling<'a, 'b> {
    fn of(job: &JobImage, plan: &MappingPlan, progress: &'a mut Progress<'b>) -> Filling<'a, 'b> {
        let regions = job.processes.iter().flat_map(|process| &process.regions);
        let sources = plan.sources.iter().flatten();
        let total = regions.zip(sources).map(|(region, &source)| content::bytes_to_fill(region, source)).sum();
        Filling { done: 0, total, progress }
    }

    fn add(&mut self, bytes: u64) {
        self.done = (self.done + bytes).min(self.total);
        (self.progress)(Stage::Mapping, self.done, self.total);
    }
}

fn fill(
    processes: &[HalfBuilt],
    job: &JobImage,
    plan: &MappingPlan,
    (store, differences): (&Store, &[Differences]),
    (lazy, fresh, common): (Option<&Lazy>, &[Option<FreshMemory>], &CopyOnWrite),
    filling: &mut Filling<'_, '_>,
) -> Result<()> {
    for (index, process) in processes.iter().enumerate() {
        let filled = &mut |bytes| filling.add(bytes);
        let mut writer = page_writer::Writer::of(store, filled);
        for (number, (region, &source)) in job.processes[index].regions.iter().zip(&plan.sources[index]).enumerate() {
            let rest = lazy.and_then(|lazy| lazy.rest(index, number));
            let fresh = fresh.get(index).and_then(Option::as_ref).filter(|fresh| fresh.has(region));
            let region = (number, region, common.of(index));
            content::fill(&mut writer, (process, fresh), region, (source, rest), plan, &differences[index])?;
        }
        writer.finish()?;
    }
    Ok(())
}

/// Makes the threads and their state; the last remote call removes what is ours.
fn make_threads(process: &mut HalfBuilt, (job, index): (&JobImage, usize), id: u64, place: &Place) -> Result<()> {
    let (image, objects) = (&job.processes[index], &job.objects);
    threads::create(process, image)?;
    let registers: Vec<Registers> =
        image.threads.iter().map(|thread| threads::first_registers(process, id, thread)).collect::<Result<_>>()?;
    let timers = &image.posix_timers;
    let queued = posix_timers::without_their_signals(timers, &image.queued_signals);
    signals::queue(process, 0, queued, signals::For::Process)?;
    for (index, thread) in image.threads.iter().enumerate() {
        threads::settle(process, index, thread, timers)?;
    }
    mapping_defaults::lock_new(process, image)?;
    directories::change_root(process, image)?;
    limits::set(image)?;
    // While it has the rights that it may have given up.
    filters::put_on(process, image)?;
    for index in 0..image.threads.len() {
        credentials::set(process, index, image, place)?;
    }
    locks::set(process, image, objects)?;
    signals::start_timers(process, image)?;
    posix_timers::restore(process, image)?;
    timerfds::set(process, image, objects)?;
    signal_driven::set(process, job, index)?;
    process.unmap_scratch()?;
    for (index, (thread, registers)) in image.threads.iter().zip(&registers).enumerate() {
        threads::load(process, index, thread, registers)?;
    }
    Ok(())
}
