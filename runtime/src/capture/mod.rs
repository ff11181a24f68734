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
mod attempt;
mod behind_guards;
mod chunk_bytes;
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
mod lineage;
mod linked_names;
mod list;
mod locks;
mod mapped_files;
mod mapping_defaults;
mod member;
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
mod request;
mod reuse;
mod sent;
mod sharing;
mod snapshot;
mod still;
mod stillness;
mod stop;
mod stored_series;
mod syscalls;
mod sysv;
mod terminal;
mod threads;
mod timerfds;
mod tracer_thread;
mod tracking;
mod tree;
mod twin;
mod unbroken;
mod unseen;
mod waiting_calls;
mod watched;
mod write;

use std::cell::Cell;
use std::time::Instant;

use ckpt_store::{AttemptEnd, AttemptRow, Depth, Store};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::filtered;
use crate::image::{self, DevicesImage};
use crate::proc::task::FIRST_PROCESS;
use crate::ptrace::{Options, say_slow_way, wait_until_gone};
use devices::Devices;
use still::Still;
use tracer_thread::on_tracer_thread;

pub use adoption::{find_loaded, find_or_adopt, wait_until_ready};
pub use allocations::{Allocations, allocations};
pub use data::checkpoint as data_checkpoint;
pub use descent::root_of;
pub use kin::{Acquaintance, Kinship, LeftOut, Recorded, all_with, first};
pub use lineage::{Lineage, Unstored};
pub use priority::after_the_program;
pub use program::Program;
pub use refusals::refuse_other_pid_namespace;
pub use request::{Event, Request, Settings};
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
    on_tracer_thread(|| take(program, store, lineage, settings, request, events))
}

fn take(
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
    let mut attempt = attempt::begin(store, (&control, &lineage.processes.kin), request, Depth::Full)?;
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
                still::resume(&mut written.still, id, &mut events)?;
                held_ms += devices.resume();
            }
            if held_ms > 0.0 {
                log::debug!("checkpoint {id}: devices were held for {held_ms:.1} ms");
            }
            if let Err(error) = (settings.check)(id, &written.image) {
                return Err(attempt::failed(attempt, not_restartable(error), stop_ms.get().max(held_ms)));
            }
            if written.pending_bytes > 0 {
                // Before the seal: whoever finds the checkpoint sees that a writer is at it.
                match store.begin_completion(&attempt::job_id(&control, &lineage.processes.kin)) {
                    Ok(completion) => {
                        lineage.unstored =
                            Some(Unstored { id, completion, files: std::mem::take(&mut lineage.mapped) });
                    }
                    Err(error) => return Err(attempt::failed(attempt, error.into(), stop_ms.get().max(held_ms))),
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
            Err(attempt::failed(attempt, error, stop_ms.get().max(held_ms)))
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
