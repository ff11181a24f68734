//! Capturing a running program into the store.
//!
//! The program is stopped only while its kernel state is read and its memory is made to hold still; hashing and
//! writing go on while it runs. In order: stop every thread; read threads, descriptors, mappings; find out
//! which pages changed and protect them again; copy what a clone does not freeze; clone the twin; let the
//! program go; then read the twin, write, and seal. A failure at any point leaves the program running as it was
//! and every earlier checkpoint untouched.

mod descriptors;
mod guest;
mod pages;
mod plan;
mod process;
mod program;
mod ranges;
mod regions;
mod stop;
mod syscalls;
mod threads;
mod tracking;
mod twin;

use std::cell::Cell;
use std::os::fd::AsFd;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ckpt_store::{Attempt, AttemptEnd, AttemptRow, AttemptStart, PAGE_BYTES, Store};
use ckpt_wire::Control;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::host;
use crate::image::{self, Backing, PageRange, ProcessImage, Region};
use crate::proc::{maps, task};
use crate::ptrace::{Pinned, Stopped, remote_call, wait_until_gone};
use guest::Guest;
use pages::{PageSource, Place};
use plan::{Base, Known, Plan};
use ranges::PageSet;
use regions::Draft;
use tracking::{Census, Scanner, Tracker};
use twin::Twin;

pub use program::Program;
pub use syscalls::pidfd_open;

/// What is remembered between two checkpoints of one program.
#[derive(Debug, Default)]
pub struct Lineage {
    base: Base,
    tracker: Option<Tracker>,
    tracking_was_tried: bool,
}

/// How a checkpoint is to be taken.
#[derive(Clone, Debug)]
pub struct Request {
    /// What asked for it, for the row: `signal`, `command`, `interval`, `api`.
    pub trigger: String,
    /// End the program once the checkpoint is sealed, without letting it run on.
    pub kill: bool,
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
}

/// Takes a checkpoint of `program` into `store`.
///
/// It runs on a thread of its own: ptrace belongs to a thread, and whatever that thread has not let go when it
/// ends, for whatever reason, the kernel lets go.
pub fn checkpoint(
    program: &Program,
    store: &Store,
    lineage: &mut Lineage,
    request: &Request,
    events: &mut (dyn FnMut(Event) + Send),
) -> Result<AttemptRow> {
    std::thread::scope(|scope| {
        let capture = scope.spawn(|| attempt(program, store, lineage, request, events));
        // A panic aborts the process (see Cargo.toml), so a thread that ended has a result.
        capture.join().unwrap_or_else(|_| std::process::abort())
    })
}

fn attempt(
    program: &Program,
    store: &Store,
    lineage: &mut Lineage,
    request: &Request,
    events: &mut (dyn FnMut(Event) + Send),
) -> Result<AttemptRow> {
    let started = Instant::now();
    let control = program.control()?;
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut attempt = store.begin(AttemptStart {
        job: format!("{:016x}", control.job),
        name: String::from_utf8_lossy(ckpt_wire::text(&control.name)).into_owned(),
        trigger: request.trigger.clone(),
        started_unix_ms: since_epoch.as_millis() as u64,
        processes: 1,
    })?;
    let stop_ms = Cell::new(0.0);
    let mut events = |event| {
        if let Event::Resumed { stop_ms: stopped_ms, .. } = event {
            stop_ms.set(stopped_ms);
        }
        events(event);
    };
    // Until the new checkpoint is sealed there is nothing to build on: the scan has forgotten what had changed.
    let base = std::mem::take(&mut lineage.base);
    let id = attempt.id();
    let outcome = capture(program, &control, lineage, base, request, id, &mut events)
        .and_then(|snapshot| write(snapshot, &mut attempt, &mut events));
    match outcome {
        Ok(mut written) => {
            if !request.kill {
                written.still.resume(id, &mut events)?;
            }
            let end = AttemptEnd {
                memory_bytes: written.memory_bytes,
                stop_ms: stop_ms.get(),
                total_ms: started.elapsed().as_secs_f64() * 1e3,
                processes: 1,
            };
            let row = attempt.seal(end, &image::encode(&written.image))?;
            lineage.base = written.base;
            if request.kill {
                end_program(program.pid, written.still)?;
            }
            Ok(row)
        }
        Err(error) => {
            attempt.fail(&error.to_string(), stop_ms.get())?;
            Err(error)
        }
    }
}

/// What holds still while its memory is written.
#[derive(Debug)]
enum Still {
    Twin(Box<Twin>),
    /// The program itself, since the moment given.
    Program(Vec<Stopped>, Instant),
}

impl Still {
    /// Lets the program run on if it is still stopped.
    fn resume(&mut self, id: u64, events: &mut dyn FnMut(Event)) -> Result<()> {
        if let Still::Program(threads, since) = self {
            for thread in threads.drain(..) {
                thread.detach()?;
            }
            events(Event::Resumed { stop_ms: since.elapsed().as_secs_f64() * 1e3, id });
        }
        Ok(())
    }
}

/// A captured program whose pages are not written yet.
#[derive(Debug)]
struct Snapshot {
    image: ProcessImage,
    parts: Vec<Part>,
    still: Still,
    pid: i32,
}

/// One region of a snapshot.
#[derive(Debug)]
struct Part {
    draft: Draft,
    census: Census,
    plan: Plan,
    /// Content that was copied during the stop because no clone freezes it.
    held: Option<Vec<u8>>,
}

fn capture(
    program: &Program,
    control: &Control,
    lineage: &mut Lineage,
    base: Base,
    request: &Request,
    id: u64,
    events: &mut dyn FnMut(Event),
) -> Result<Snapshot> {
    let pid = program.pid;
    let job_stopped = process::is_job_stopped(pid);
    let stop_began = Instant::now();
    let mut stopped = stop::stop(pid)?;

    let pinned = Pinned::to(task::last_cpu(pid)?);
    let process_signals = stopped[0].queued_process_signals()?;
    let mut threads = Vec::with_capacity(stopped.len());
    let mut homes = Vec::with_capacity(stopped.len());
    for thread in &mut stopped {
        let (image, home) = threads::capture(pid, thread, control, threads::mask_of(&process_signals))?;
        threads.push(image);
        homes.push(home);
    }
    let table = descriptors::capture(pid, program.pidfd.as_fd())?;

    let mut guest = Guest::enter(pid, &mut stopped[0], control, homes[0].home, &homes[0].reissued)?;
    let own = process::own_facts(pid, &mut guest)?;
    let facts = process::facts(pid, own.brk)?;
    let space = regions::sort(pid, maps::mappings(pid)?)?;
    if !std::mem::replace(&mut lineage.tracking_was_tried, true) {
        lineage.tracker = Tracker::create(&mut guest, program.pidfd.as_fd())?;
    }
    let parts = take_census(pid, space.drafts, lineage.tracker.as_ref(), &base)?;
    let twin = if request.kill { None } else { Twin::create(&mut guest)? };
    let signal_actions = match twin {
        Some(_) => Vec::new(),
        None => process::signal_actions(pid, control.scratch, |number, arguments| guest.try_call(number, arguments))?,
    };
    guest.leave()?;

    let mut image = ProcessImage {
        version: image::IMAGE_VERSION,
        host: host::this(),
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
        job_stopped,
        layout: facts.layout,
        auxv: facts.auxv,
        special_mappings: space.special,
        regions: Vec::new(),
        shared_objects: space.objects,
        files: table.files,
        descriptors: table.descriptors,
        pipes: table.pipes,
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
    Ok(Snapshot { image, parts, still, pid })
}

/// Finds out what each region holds and what must be read of it; copies what a clone would not freeze.
fn take_census(pid: i32, drafts: Vec<Draft>, tracker: Option<&Tracker>, base: &Base) -> Result<Vec<Part>> {
    let scanner = Scanner::open(pid)?;
    let source = PageSource::open(pid)?;
    drafts
        .into_iter()
        .map(|draft| {
            let census = match draft.backing {
                Backing::Anonymous | Backing::PrivateFile(_) => private_census(&scanner, tracker, &draft)?,
                Backing::SharedFile { .. } | Backing::SharedObject { .. } => Census::default(),
            };
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
            Ok(Part { draft, census, plan, held })
        })
        .collect()
}

fn private_census(scanner: &Scanner, tracker: Option<&Tracker>, draft: &Draft) -> Result<Census> {
    let mapping = &draft.mapping;
    let Some(tracker) = tracker else { return scanner.census(mapping) };
    let written = scanner.take_written(mapping)?;
    if written.is_none() && tracker.register(mapping) {
        scanner.protect(mapping)?;
    }
    Ok(Census { written, ..scanner.census(mapping)? })
}

fn place(draft: &Draft) -> Place {
    Place {
        address: draft.mapping.start,
        readable: draft.mapping.protection & libc::PROT_READ != 0,
        may_end_early: !matches!(draft.backing, Backing::Anonymous),
    }
}

/// A snapshot whose pages are in the store.
#[derive(Debug)]
struct Written {
    image: ProcessImage,
    base: Base,
    memory_bytes: u64,
    still: Still,
}

fn write(snapshot: Snapshot, attempt: &mut Attempt, events: &mut dyn FnMut(Event)) -> Result<Written> {
    let Snapshot { mut image, parts, still, pid } = snapshot;
    let source = PageSource::open(match &still {
        Still::Twin(twin) => twin.pid(),
        Still::Program(..) => pid,
    })?;
    let page_bytes = PAGE_BYTES as u64;
    let total_bytes = parts.iter().map(|part| part.plan.read.len()).sum::<u64>() * page_bytes;
    let mut done_bytes = 0;
    let mut base = Base::new();
    let mut memory_bytes = 0;
    for Part { draft, census, plan: Plan { mut list, read }, held } in parts {
        match held {
            Some(held) => {
                pages::store_held(&held, &read, attempt, &mut list)?;
                done_bytes += held.len() as u64;
            }
            None => pages::store_from(&source, &place(&draft), &read, attempt, &mut list, &mut |bytes| {
                done_bytes += bytes;
                events(Event::Writing { done_bytes, total_bytes });
            })?,
        }
        memory_bytes += list.page_count() * page_bytes;
        let own = match draft.backing {
            Backing::PrivateFile(_) => census.own.clone(),
            _ => PageSet::default(),
        };
        image.regions.push(Region {
            address: draft.mapping.start,
            bytes: draft.mapping.bytes(),
            protection: draft.mapping.protection,
            backing: draft.backing,
            advice: draft.advice,
            name: draft.mapping.name,
            pages: attempt.write_page_list(&list)?,
            own_pages: own.ranges().map(|run| PageRange { first: run.start, count: run.end - run.start }).collect(),
        });
        let file = draft.file.map(|stamp| (stamp, draft.mapping.offset));
        base.insert(
            draft.mapping.start,
            Known { list, pages: (draft.mapping.end - draft.mapping.start) / page_bytes, own: census.own, file },
        );
    }
    Ok(Written { image, base, memory_bytes, still })
}

/// Ends the program, which has been stopped since it was captured.
fn end_program(pid: i32, still: Still) -> Result<()> {
    kill(Pid::from_raw(pid), Signal::SIGKILL).map_err(|source| Error::io("kill", format!("/proc/{pid}"), source))?;
    if let Still::Program(threads, _) = still {
        // The main thread last: its end is not reported before that of all others.
        for thread in threads.iter().rev() {
            wait_until_gone(thread.tid())?;
        }
    }
    Ok(())
}

fn without_deleted(mut path: Vec<u8>) -> Vec<u8> {
    if path.ends_with(b" (deleted)") {
        path.truncate(path.len() - b" (deleted)".len());
    }
    path
}
