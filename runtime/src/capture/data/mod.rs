//! Checkpoints of data: what a program has allocated, and no state of the kernel.
//!
//! They are for lineages that are taken many times a second, to be looked at or compared later. A program cannot be
//! restarted from one. Each place where allocations lie has a series of differences of its own (`stored_series`): memory of
//! the host is frozen by a clone, as for any checkpoint, and what has changed of it is found on the CPU (`host`); what has
//! changed on a device is found there (`device`). Devices are held before the program is stopped, so what is taken of both
//! fits together: between the two the program cannot have had a device do anything.
//!
//! The two depths take turns with the same write-protection: `unseen` keeps for each what the other has found.

mod device;
mod extent;
mod freeze;
mod frozen;
mod host;
mod look;
mod parts;
pub mod remembered;
mod seen_pages;

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use ckpt_store::{Attempt, AttemptEnd, AttemptRow, Depth, Store};
use ckpt_wire::Control;

use super::attempt::{begin, failed};
use super::hold::Hold;
use super::lineage::Lineage;
use super::program::Program;
use super::request::{Event, Request, Settings};
use super::tracer_thread::on_tracer_thread;
use crate::error::{Error, Result};
use crate::image::{self, CodeMapping, DataImage, Moved};
use crate::proc::maps::Mapping;
use crate::proc::task;
use device::StoredDevices;
use frozen::Frozen;
use remembered::Remembered;

/// Takes a checkpoint of the data of `program` into `store`.
///
/// # Errors
/// When the program has nothing that is recorded, cannot be stopped, or the store refuses. The program runs on.
pub fn checkpoint(
    program: &Program,
    store: &Store,
    lineage: &mut Lineage,
    settings: &Settings<'_>,
    request: &Request,
    events: &mut (dyn FnMut(Event) + Send),
) -> Result<AttemptRow> {
    on_tracer_thread(|| attempt(program, store, lineage, settings, request, events))
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
    lineage.wait_for_memory(program, &control);
    let started = Instant::now();
    let mut attempt = begin(store, (&control, &lineage.processes.kin), request, Depth::Data)?;
    if control.allocations == 0 {
        let error = Error::unsupported(
            format!("a checkpoint of data of process {}", program.pid),
            "libckpt.so is not loaded into it or is an older one, so nobody has recorded what it has allocated",
            "take a full checkpoint",
        );
        return Err(failed(attempt, error, 0.0));
    }
    let stop_ms = Cell::new(0.0);
    let mut events = |event| {
        if let Event::Resumed { stop_ms: stopped_ms, .. } = event {
            stop_ms.set(stopped_ms);
        }
        events(event);
    };
    let id = attempt.id();
    let taken = take(program, &control, lineage, settings, store, &mut attempt, &mut events);
    let (image, frozen, device_bytes, held_ms) = match taken {
        Ok(taken) => taken,
        Err(error) => {
            lineage.data.host.failed();
            return Err(failed(attempt, error, stop_ms.get()));
        }
    };
    let end = AttemptEnd {
        memory_bytes: frozen.parts.iter().map(|part| part.bytes).sum::<u64>() + device_bytes,
        stop_ms: stop_ms.get().max(held_ms),
        total_ms: started.elapsed().as_secs_f64() * 1e3,
        processes: 1,
        ..AttemptEnd::default()
    };
    log::debug!("checkpoint {id} of data: stopped {:.1} ms, devices held {held_ms:.1} ms", stop_ms.get());
    match attempt.seal(end, &image::encode(&image)) {
        Ok(row) => {
            lineage.data.host.sealed(&frozen);
            lineage.data.devices.sealed();
            Ok(row)
        }
        Err(error) => {
            lineage.data.host.failed();
            Err(error.into())
        }
    }
}

/// Writes the content of all allocations, and says what there is; how many bytes of it were on devices, and how long
/// those were held.
fn take(
    program: &Program,
    control: &Control,
    lineage: &mut Lineage,
    settings: &Settings<'_>,
    store: &Store,
    attempt: &mut Attempt,
    events: &mut dyn FnMut(Event),
) -> Result<(DataImage, Frozen, u64, f64)> {
    let id = attempt.id();
    // Nothing stands still meanwhile; behind it there is little left to read.
    lineage.data.variables.read(program, control)?;
    let hold = Hold::begin(program, control, settings.socket)?;
    if let Some(hold) = &hold {
        lineage.data.variables.record(hold, program, control)?;
    }
    let mut frozen = freeze::freeze(program, control, lineage, settings.tree, id, events)?;
    let known = std::mem::take(&mut frozen.allocations.known);
    if known.is_empty() {
        return Err(nothing_recorded(program.pid));
    }
    let Remembered { host, devices, .. } = &mut lineage.data;
    let host_bytes = AtomicU64::new(0);
    let mut of_host = Vec::new();
    let is_stopped = frozen.still.is_stopped();
    if is_stopped {
        // It could not be cloned. Its keeper, who shows the devices, is to go on.
        of_host = host.store(&frozen, &host_bytes, settings.tree, store, attempt, &mut progress(events))?;
        frozen.still.resume(id, events)?;
    }
    let (mut on_devices, mut held_ms) = (StoredDevices::default(), 0.0);
    if let Some(hold) = hold {
        let program = (&hold, program.pid, control.hold);
        on_devices = devices.store(program, &known, settings.tree, attempt, &mut progress(events))?;
        held_ms = hold.open()?.as_secs_f64() * 1e3;
    }
    if !is_stopped {
        of_host = host.store(&frozen, &host_bytes, settings.tree, store, attempt, &mut progress(events))?;
    }
    let mut left_out = std::mem::take(&mut frozen.left_out);
    left_out.append(&mut on_devices.left_out);
    let mut series = on_devices.series;
    series.extend((!of_host.is_empty()).then_some(of_host));
    let image = DataImage {
        version: image::IMAGE_VERSION,
        host: crate::host::this(),
        pid: program.pid,
        executable: super::program::executable(program.pid, control)?,
        command_line: task::bytes(program.pid, "cmdline")?,
        code: frozen.mappings.iter().filter_map(code).collect(),
        allocations: known,
        left_out,
        series,
        moved: Moved { host_bytes: host_bytes.into_inner(), ..on_devices.moved },
    };
    Ok((image, frozen, on_devices.bytes, held_ms))
}

/// Tells how much has been written.
fn progress(events: &mut dyn FnMut(Event)) -> impl FnMut(u64, u64) {
    |done_bytes, total_bytes| events(Event::Writing { done_bytes, total_bytes })
}

fn nothing_recorded(pid: i32) -> Error {
    Error::environment(
        format!("taking a checkpoint of the data of process {pid}"),
        "it has no allocation that is recorded",
        "only those of CKPT_TRACK_MIN bytes (64K) and more are; without --data all of its memory is stored",
    )
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
