//! Checkpoints of data: what a program has allocated, and no state of the kernel.
//!
//! They are for lineages that are taken many times a second, to be looked at or compared later. A program cannot be
//! restarted from one. Each place where allocations lie has a series of differences of its own (`stored_series`): memory of
//! the host is frozen by a clone, as for any checkpoint, and what has changed of it is found on the CPU (`host`).
//!
//! The two depths take turns with the same write-protection: `unseen` keeps for each what the other has found.

mod extent;
mod freeze;
mod host;
mod look;
mod parts;

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use ckpt_store::{Attempt, AttemptEnd, AttemptRow, Depth, Store};

use super::{Event, Lineage, Program, Request, TreeOptions, begin, failed, on_thread_of_its_own};
use crate::error::{Error, Result};
use crate::image::{self, CodeMapping, DataImage, Moved};
use crate::proc::maps::Mapping;
use crate::proc::task;
use freeze::Frozen;
use host::Host;

/// What is remembered between two checkpoints of data of one program.
#[derive(Default)]
pub struct Data {
    host: Host,
}

/// Takes a checkpoint of the data of `program` into `store`.
///
/// # Errors
/// When the program has nothing that is recorded, cannot be stopped, or the store refuses. The program runs on.
pub fn checkpoint(
    program: &Program,
    store: &Store,
    lineage: &mut Lineage,
    options: &TreeOptions,
    request: &Request,
    events: &mut (dyn FnMut(Event) + Send),
) -> Result<AttemptRow> {
    on_thread_of_its_own(|| attempt(program, store, lineage, options, request, events))
}

fn attempt(
    program: &Program,
    store: &Store,
    lineage: &mut Lineage,
    options: &TreeOptions,
    request: &Request,
    events: &mut (dyn FnMut(Event) + Send),
) -> Result<AttemptRow> {
    let started = Instant::now();
    let control = program.control()?;
    let mut attempt = begin(store, &control, request, Depth::Data)?;
    let stop_ms = Cell::new(0.0);
    let mut events = |event| {
        if let Event::Resumed { stop_ms: stopped_ms, .. } = event {
            stop_ms.set(stopped_ms);
        }
        events(event);
    };
    let id = attempt.id();
    let outcome = freeze::freeze(program, &control, lineage, id, &mut events).and_then(|mut frozen| {
        let image = write(program, &mut frozen, &mut lineage.data, options, store, &mut attempt, &mut events)?;
        frozen.still.resume(id, &mut events)?;
        Ok((image, frozen))
    });
    let (image, frozen) = match outcome {
        Ok(taken) => taken,
        Err(error) => {
            lineage.data.host.failed();
            return Err(failed(attempt, error, stop_ms.get()));
        }
    };
    let end = AttemptEnd {
        memory_bytes: frozen.parts.iter().map(|part| part.bytes).sum(),
        stop_ms: stop_ms.get(),
        total_ms: started.elapsed().as_secs_f64() * 1e3,
        processes: 1,
    };
    match attempt.seal(end, &image::encode(&image)) {
        Ok(row) => {
            lineage.data.host.sealed(&frozen);
            Ok(row)
        }
        Err(error) => {
            lineage.data.host.failed();
            Err(error.into())
        }
    }
}

/// Writes the content of all allocations, and says what there is.
fn write(
    program: &Program,
    frozen: &mut Frozen,
    data: &mut Data,
    options: &TreeOptions,
    store: &Store,
    attempt: &mut Attempt,
    events: &mut dyn FnMut(Event),
) -> Result<DataImage> {
    let pid = program.pid;
    if frozen.allocations.known.is_empty() {
        return Err(Error::environment(
            format!("taking a checkpoint of the data of process {pid}"),
            "it has no allocation that is recorded",
            "only those of CKPT_TRACK_MIN bytes (64K) and more are; without --data all of its memory is stored",
        ));
    }
    let mut written = |done_bytes, total_bytes| events(Event::Writing { done_bytes, total_bytes });
    let host_bytes = AtomicU64::new(0);
    let host = data.host.store(frozen, &host_bytes, options, store, attempt, &mut written)?;
    Ok(DataImage {
        version: image::IMAGE_VERSION,
        host: crate::host::this(),
        pid,
        executable: task::link(pid, "exe")?,
        command_line: task::bytes(pid, "cmdline")?,
        code: frozen.mappings.iter().filter_map(code).collect(),
        allocations: std::mem::take(&mut frozen.allocations.known),
        left_out: std::mem::take(&mut frozen.left_out),
        series: if host.is_empty() { Vec::new() } else { vec![host] },
        moved: Moved { host_bytes: host_bytes.into_inner(), ..Moved::default() },
    })
}

/// The mapping as code, if it is.
fn code(mapping: &Mapping) -> Option<CodeMapping> {
    let is_code = mapping.inode != 0 && mapping.protection & libc::PROT_EXEC != 0;
    is_code.then(|| {
        let now = std::fs::metadata(OsStr::from_bytes(&mapping.name)).ok();
        CodeMapping {
            address: mapping.start,
            bytes: mapping.bytes(),
            path: mapping.name.clone(),
            offset: mapping.offset,
            inode: mapping.inode,
            size: now.filter(|now| now.ino() == mapping.inode).map(|now| now.len()),
        }
    })
}
