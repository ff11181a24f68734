//! Capturing a running program into the store.
//!
//! The program is stopped only while its kernel state is read and its memory is made to hold still; hashing and
//! writing go on while it runs. In order: stop every thread; read threads, descriptors, mappings; find out
//! which pages changed and protect them again; copy what a clone does not freeze; clone the twin; let the
//! program go; then read the twin, write, and seal. A failure at any point leaves the program running as it was
//! and every earlier checkpoint untouched.

mod adoption;
mod agent_note;
mod ahead;
mod allocated;
mod allocations;
mod behind_guards;
mod clocks;
mod comparison;
mod data;
mod descent;
mod descriptors;
mod device_pieces;
mod device_series;
mod device_variables;
mod devices;
mod directories;
mod files;
mod filters;
mod guest;
mod hold;
mod kin;
mod lazy_memory;
mod linked_names;
mod list;
mod locks;
mod mapped_files;
mod mapping_defaults;
mod own_children;
mod pages;
mod phases;
mod places;
mod plan;
mod posix_timers;
mod priority;
mod process;
mod program;
mod read_ahead;
mod refusals;
mod regions;
mod registered_rings;
mod reuse;
mod sent;
mod sharing;
mod snapshot;
mod stillness;
mod stop;
mod stored_series;
mod syscalls;
mod sysv;
mod terminal;
mod threads;
mod timerfds;
mod tracking;
mod tree;
mod twin;
mod unbroken;
mod unseen;
mod waiting_calls;
mod watched;
mod write;

use std::cell::Cell;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ckpt_store::{Attempt, AttemptEnd, AttemptRow, AttemptStart, Depth, Store};
use ckpt_wire::{Confinement, Control};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::filtered;
use crate::image::{self, DevicesImage, JobImage};
use crate::mapped_files::{MappedFiles, StoredFiles};
use crate::page_set;
use crate::proc::task;
use crate::ptrace::{Options, Stopped, say_slow_way, wait_until_gone};
use ahead::Costs;
use devices::{Devices, Known};
use guest::Guest;
use plan::Base;
use process::FIRST_PROCESS;
use snapshot::Still;
use threads::Captured;
use tracking::Tracker;
use tree::Series;
use unseen::Unseen;

pub use adoption::{find_loaded, find_or_adopt, wait_until_ready};
pub use allocations::{Allocations, allocations};
pub use data::checkpoint as data_checkpoint;
pub use descent::root_of;
pub use kin::{Acquaintance, Kinship, LeftOut, Recorded, all_with, first};
pub use priority::after_the_program;
pub use program::Program;
pub use refusals::refuse_other_pid_namespace;
pub use reuse::Reuse;
pub use stillness::{moves_memory, stand_still};
pub use tree::Options as TreeOptions;
pub use waiting_calls::WaitingCalls;

/// What this process calls for a checkpoint, and nothing takes the place of.
const NEEDED_CALLS: &[i64] = &[
    libc::SYS_ptrace,
    libc::SYS_get_robust_list,
    libc::SYS_sched_getattr,
    libc::SYS_getpriority,
    libc::SYS_ioprio_get,
];

/// What is remembered between two checkpoints of one job.
#[derive(Default)]
pub struct Lineage {
    processes: ProcessLineages,
    /// Files that are in the last sealed checkpoint.
    files: files::Known,
    /// Memory of the first process that is stored finer than a page.
    series: Option<Series>,
    /// What checkpoints of data alone remember.
    data: data::Data,
    /// Bytes that copies of pages may take, which are made before a stop.
    copies_bytes: u64,
    /// How much of the last checkpoint the next one may build on.
    reuse: Reuse,
    /// Memory that comes after a restart has come.
    memory_is_there: bool,
    /// What is known of devices.
    devices: Known,
    /// Files whose pages can be stored behind the seal of the checkpoint that is being taken.
    mapped: MappedFiles,
    /// The checkpoint that is sealed without these.
    unstored: Option<Unstored>,
}

/// A checkpoint that is sealed, and lacks pages of files.
#[derive(Debug)]
pub struct Unstored {
    /// Its number.
    pub id: u64,
    /// What is to write them: it was begun before the seal.
    pub completion: Attempt,
    /// The files that have them.
    pub files: MappedFiles,
}

/// What is remembered of each process.
#[derive(Default)]
struct ProcessLineages {
    /// What confined the job's first process when it began, by its own record: that of another may be forged.
    confinement: Option<Confinement>,
    /// Which other processes are of the job, and which are not.
    kin: Acquaintance,
    /// Full checkpoints read all of their memory.
    are_read_whole: bool,
    first: ProcessLineage,
    /// The others by their pids, and which programs they were.
    others: HashMap<i32, (Identity, ProcessLineage)>,
}

/// When a process has begun, and the random number of the libckpt.so in it: another one after an exec.
type Identity = (u64, u64);

/// What is remembered of one process.
#[derive(Default)]
struct ProcessLineage {
    /// What the last sealed checkpoint holds of its memory, as far as the next one may build on it.
    base: Base,
    tracker: Option<Tracker>,
    tracking_was_tried: bool,
    unseen: Unseen,
    /// The calls that its threads were stopped in.
    calls: WaitingCalls,
    /// What it takes to make its memory hold still.
    costs: Costs,
}

impl Lineage {
    /// Waits until all memory of a program is there that was restarted lazily. Only once: no later life has this lineage. In its
    /// first life, whoever handles its page faults is none of ours, and there is nothing to wait for.
    fn wait_for_memory(&mut self, program: &Program, control: &Control) {
        if !std::mem::replace(&mut self.memory_is_there, true) && control.generation > 0 {
            lazy_memory::wait_until_there(program.pid);
        }
    }

    /// The threads of the first process were stopped before, in these calls.
    pub fn knowing(mut self, calls: WaitingCalls) -> Lineage {
        self.processes.first.calls = calls;
        self
    }

    /// Who is of the job is known from before.
    pub fn acquainted(mut self, kin: Acquaintance) -> Lineage {
        self.acquaint(kin);
        self
    }

    /// The same.
    pub fn acquaint(&mut self, kin: Acquaintance) {
        self.processes.kin = kin;
    }

    /// What is known of who is of the job, for another lineage.
    pub fn take_acquaintance(&mut self) -> Acquaintance {
        std::mem::take(&mut self.processes.kin)
    }

    /// Copies of pages that are made before a stop may take so many bytes; without this there are none.
    pub fn copying_ahead(mut self, bytes: u64) -> Lineage {
        self.copies_bytes = bytes;
        self
    }

    /// A checkpoint has been sealed: what the next one may build on of the memory of each process, the first one first, and of
    /// files. Of processes that are not in it nothing is remembered.
    fn sealed(&mut self, processes: impl Iterator<Item = (i32, Base)>, files: files::Known) {
        self.processes.sealed(processes);
        self.files = files;
        if let Some(series) = &mut self.series {
            series.sealed();
        }
        self.devices.sealed();
    }

    /// The last checkpoint, if it is sealed without pages of files. Its taker is to store them, by [`crate::mapped_files::complete`].
    pub fn take_unstored(&mut self) -> Option<Unstored> {
        self.unstored.take()
    }

    /// So much of files has been stored meanwhile: the next checkpoint can build on it.
    pub fn know_stored(&mut self, files: &StoredFiles) {
        self.processes.all().flat_map(|known| known.base.values_mut()).for_each(|known| known.know_stored(files));
    }

    /// From the next checkpoint on, large memory is stored finer than a page, or not.
    ///
    /// # Errors
    /// For a length of chunks that there cannot be.
    pub fn store_finer(&mut self, tree: Option<TreeOptions>) -> Result<()> {
        self.series = tree.map(Series::new).transpose()?;
        Ok(())
    }

    /// From the next full checkpoint on, so much is made of those before it.
    pub fn reuse(&mut self, reuse: Reuse) {
        self.reuse = reuse;
        self.processes.are_read_whole = !reuse.keeps_unchanged;
        if !reuse.keeps_unchanged {
            self.processes.all().for_each(ProcessLineage::end_tracking);
        }
    }

    /// A full checkpoint is going to be taken: forgets what it is not to build on.
    fn begin(&mut self) {
        if !self.reuse.keeps_unchanged {
            self.processes.all().for_each(|known| known.base = Base::default());
            self.files = files::Known::default();
            self.devices.forget();
        }
    }
}

impl ProcessLineages {
    /// What is remembered of process `pid`; nothing if it is, or executes, another program by now.
    fn of(&mut self, pid: i32, control: &Control, is_first: bool) -> &mut ProcessLineage {
        if is_first {
            return &mut self.first;
        }
        let now = (task::start_time(pid).unwrap_or_default(), control.job);
        let (then, known) = self.others.entry(pid).or_default();
        if *then != now {
            (*then, *known) = (now, ProcessLineage::default());
        }
        known
    }

    fn all(&mut self) -> impl Iterator<Item = &mut ProcessLineage> {
        std::iter::once(&mut self.first).chain(self.others.values_mut().map(|(_, known)| known))
    }

    /// What is remembered of process `pid`, if anything is. It may be another process by now, or execute another program.
    fn known(&mut self, pid: i32, root: i32) -> Option<&mut ProcessLineage> {
        if pid == root { Some(&mut self.first) } else { self.others.get_mut(&pid).map(|(_, known)| known) }
    }

    fn sealed(&mut self, mut processes: impl Iterator<Item = (i32, Base)>) {
        if let Some((_, base)) = processes.next() {
            self.first.base = base;
        }
        let mut bases: HashMap<i32, Base> = processes.collect();
        self.others.retain(|pid, (_, known)| match bases.remove(pid) {
            Some(base) => {
                known.base = base;
                true
            }
            None => false,
        });
    }
}

impl ProcessLineage {
    /// Has the kernel note from now on what the program writes, if it can. Only once in a lineage; `main` is the main thread,
    /// which goes on by `way`.
    fn begin_tracking(
        &mut self,
        program: &Program,
        control: &Control,
        main: &mut Stopped,
        way: &Captured,
    ) -> Result<()> {
        if !std::mem::replace(&mut self.tracking_was_tried, true) {
            let mut guest = Guest::enter(program.pid, main, control, way.home, &way.reissued)?;
            self.tracker = Tracker::create(&mut guest, control, program.pidfd.as_fd())?;
            guest.leave()?;
        }
        Ok(())
    }

    /// Has the kernel note no longer what the program writes, which costs the program something, and forgets what it has
    /// noted. It can be begun again.
    fn end_tracking(&mut self) {
        (self.tracker, self.tracking_was_tried, self.unseen) = (None, false, Unseen::default());
    }
}

/// How a checkpoint is to be taken.
#[derive(Clone, Debug)]
pub struct Request {
    /// What asked for it, for the row: `signal`, `command`, `interval`, `api`.
    pub trigger: String,
    /// End the program once the checkpoint is sealed, without letting it run on.
    pub kill: bool,
    /// Directories to be captured with all that is in them, beside those that the program's environment names.
    pub with_dirs: Vec<PathBuf>,
}

/// What a checkpoint is taken with.
pub struct Settings<'a> {
    /// How memory is stored that is stored finer than a page: that of devices is always.
    pub tree: &'a TreeOptions,
    /// Name of a socket at which the program's keepers of devices can reach us, or at one that is a little longer.
    pub socket: &'a Path,
    /// Refuses what could not be restarted. It is asked before anything is sealed.
    pub check: fn(u64, &JobImage) -> Result<()>,
}

/// What happens while a checkpoint is taken.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// The program runs again, after so many milliseconds.
    Resumed {
        /// How long it was stopped.
        stop_ms: f64,
        /// The id that the checkpoint will have.
        id: u64,
    },
    /// So much of what has to be read has been written.
    Writing {
        /// Bytes done.
        done_bytes: u64,
        /// Bytes in all.
        total_bytes: u64,
    },
    /// A process with the job's mark is not in the checkpoint: it cannot be told from a stranger.
    LeftOut(LeftOut),
}

/// Takes a checkpoint of `program` into `store`.
///
/// It runs on a thread of its own: ptrace belongs to a thread, and whatever that thread has not let go when it
/// ends, for whatever reason, the kernel lets go.
pub fn checkpoint(
    program: &Program,
    store: &Store,
    lineage: &mut Lineage,
    settings: &Settings<'_>,
    request: &Request,
    events: &mut (dyn FnMut(Event) + Send),
) -> Result<AttemptRow> {
    on_thread_of_its_own(|| attempt(program, store, lineage, settings, request, events))
}

fn on_thread_of_its_own<T: Send>(take: impl FnOnce() -> T + Send) -> T {
    // A panic aborts the process (see Cargo.toml), so a thread that ended has a result.
    std::thread::scope(|scope| scope.spawn(take).join().unwrap_or_else(|_| std::process::abort()))
}

fn attempt(
    program: &Program,
    store: &Store,
    lineage: &mut Lineage,
    settings: &Settings<'_>,
    request: &Request,
    events: &mut (dyn FnMut(Event) + Send),
) -> Result<AttemptRow> {
    let control = program.control()?;
    say_slow_way();
    filtered::refuse_without(&format!("checkpointing process {}", program.pid), NEEDED_CALLS)?;
    lineage.wait_for_memory(program, &control);
    let started = Instant::now();
    lineage.processes.confinement = control.confinement();
    let mut attempt = begin(store, (&control, &lineage.processes.kin), request, Depth::Full)?;
    attempt.share(lineage.reuse.sharing);
    lineage.begin();
    let stop_ms = Cell::new(0.0);
    let mut events = |event| {
        if let Event::Resumed { stop_ms: stopped_ms, .. } = event {
            stop_ms.set(stopped_ms);
        }
        events(event);
    };
    let id = attempt.id();
    let mut devices = Devices::new(settings);
    let mut held_ms = 0.0;
    let outcome = snapshot::capture(program, &control, lineage, (request, &mut devices), &mut attempt, &mut events)
        .and_then(|snapshot| {
            if snapshot.runs_on() {
                held_ms = devices.resume();
            }
            write::write(snapshot, lineage.series.as_mut(), store, &mut attempt, &mut events)
        });
    match outcome {
        Ok(mut written) => {
            if !request.kill {
                snapshot::resume(&mut written.still, id, &mut events)?;
                held_ms += devices.resume();
            }
            if held_ms > 0.0 {
                log::debug!("checkpoint {id}: devices were held for {held_ms:.1} ms");
            }
            if let Err(error) = (settings.check)(id, &written.image) {
                return Err(failed(attempt, not_restartable(error), stop_ms.get().max(held_ms)));
            }
            if written.pending_bytes > 0 {
                // Before the seal: whoever finds the checkpoint sees that a writer is at it.
                match store.begin_completion(&job_id(&control, &lineage.processes.kin)) {
                    Ok(completion) => {
                        lineage.unstored =
                            Some(Unstored { id, completion, files: std::mem::take(&mut lineage.mapped) });
                    }
                    Err(error) => return Err(failed(attempt, error.into(), stop_ms.get().max(held_ms))),
                }
            }
            let in_pieces = written.image.processes.iter().filter_map(|process| process.devices.as_ref());
            let end = AttemptEnd {
                pending_bytes: written.pending_bytes,
                memory_bytes: written.memory_bytes + in_pieces.map(DevicesImage::piece_bytes).sum::<u64>(),
                stop_ms: stop_ms.get().max(held_ms),
                stop_phases_ms: written.stop_phases_ms,
                total_ms: started.elapsed().as_secs_f64() * 1e3,
                processes: written.image.processes.len() as u32,
            };
            let sealed = attempt.seal(end, &image::encode(&written.image));
            let row = sealed.inspect_err(|_| lineage.unstored = None)?;
            lineage.sealed(written.image.processes.iter().map(|process| process.pid).zip(written.bases), written.files);
            if request.kill {
                end_job(written.still)?;
            }
            Ok(row)
        }
        Err(error) => {
            held_ms += devices.resume();
            Err(failed(attempt, error, stop_ms.get().max(held_ms)))
        }
    }
}

/// A seal is a promise: what a restart would refuse is refused while the program runs.
fn not_restartable(error: Error) -> Error {
    match error {
        Error::Environment { what, why, advice } => {
            Error::unsupported(format!("a checkpoint that could not be restarted ({what})"), why, advice)
        }
        other => other,
    }
}

/// The id of a job in a store.
fn job_id(control: &Control, kin: &Acquaintance) -> String {
    format!("{:016x}", kin.job_id(control))
}

/// Begins an attempt, if there is room for one.
fn begin(store: &Store, (control, kin): (&Control, &Acquaintance), request: &Request, depth: Depth) -> Result<Attempt> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let attempt = store.begin(AttemptStart {
        job: job_id(control, kin),
        name: String::from_utf8_lossy(ckpt_wire::text(&control.name)).into_owned(),
        trigger: request.trigger.clone(),
        started_unix_ms: since_epoch.as_millis() as u64,
        processes: 1,
        depth,
    })?;
    match attempt.check_room() {
        Ok(()) => Ok(attempt),
        Err(error) => Err(failed(attempt, error.into(), 0.0)),
    }
}

/// Ends an attempt, and gives the error back: it matters more than that it could not be written down (a full disk, say).
fn failed(attempt: Attempt, error: Error, stop_ms: f64) -> Error {
    if let Err(unrecorded) = attempt.fail(&error.to_string(), stop_ms) {
        log::warn!("recording a failed attempt: {unrecorded}");
    }
    error
}

/// Ends all processes, which have been stopped since they were captured.
fn end_job(still: Vec<Still>) -> Result<()> {
    let stopped = || still.iter().filter_map(Still::stopped);
    if let Some(threads) = stopped().find(|threads| threads.first().is_some_and(|main| main.tid() == FIRST_PROCESS)) {
        // No signal from within ends the first process of a pid namespace. The end of its tracer does, which is this thread's, and with
        // it all others end, and we.
        threads.iter().try_for_each(|thread| thread.set_options(Options::EXPENDABLE_ALONE))?;
        std::mem::forget(still);
        return Ok(());
    }
    for main in stopped().filter_map(|threads| threads.first()) {
        let pid = main.tid();
        kill(Pid::from_raw(pid), Signal::SIGKILL)
            .map_err(|source| Error::io("kill", format!("/proc/{pid}"), source))?;
    }
    // The main thread last: its end is not reported before that of all others.
    stopped().flat_map(|threads| threads.iter().rev()).try_for_each(|thread| wait_until_gone(thread.tid()))
}
