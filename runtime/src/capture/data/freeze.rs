//! The stop of a checkpoint of data: as long as it takes to make memory hold still, and to see what has been written.
//!
//! No state of the kernel is read. Threads whose call the stop has broken off issue it again, as after any stop.

use std::time::Instant;

use ckpt_wire::Control;

use super::frozen::Frozen;
use super::look::look;
use super::parts;
use crate::capture::allocations::allocations;
use crate::capture::guest::Guest;
use crate::capture::lineage::Lineage;
use crate::capture::program::Program;
use crate::capture::request::Event;
use crate::capture::still::Still;
use crate::capture::tree::Options as TreeOptions;
use crate::capture::twin::{Memory, Twin};
use crate::capture::{devices, filters, process, stop, threads};
use crate::error::Result;
use crate::proc::maps;
use crate::proc::task;
use crate::ptrace::Pinned;

/// Freezes the program's allocations, and lets it run on: behind a copy if little of them has changed, else behind a clone.
/// Where it cannot be cloned, it stays stopped.
///
/// # Errors
/// When the program cannot be stopped, or be made to freeze its memory. It runs on.
pub fn freeze(
    program: &Program,
    control: &Control,
    lineage: &mut Lineage,
    options: &TreeOptions,
    id: u64,
    events: &mut dyn FnMut(Event),
) -> Result<Frozen> {
    let pid = program.pid;
    let Lineage { processes, data, .. } = lineage;
    let known = &mut processes.first;
    known.calls.look(pid);
    let began = Instant::now();
    let mut stopped = stop::stop(pid)?;
    let pinned = Pinned::to(task::last_cpu(pid)?);
    filters::suspend(pid, &mut stopped, control.confinement())?;
    let process_signals = threads::mask_of(&stopped[0].queued_process_signals()?);
    let way_home = |thread| threads::way_home(pid, thread, control, process_signals, &mut known.calls);
    let homes: Vec<_> = stopped.iter().map(way_home).collect::<Result<_>>()?;
    known.begin_tracking(program, control, &mut stopped[0], &homes[0])?;
    let allocations = allocations(pid, control)?;
    let mappings = maps::outline(pid)?;
    let (mut parts, mut left_out) = parts::of(&allocations.known, &mappings);
    let kept_back = &data.host.kept_from_clones;
    parts::leave_out_kept_back(&mut parts, &mut left_out, |part| kept_back.contains(&part.id));
    known.unseen.devices_write_to(devices::written_by_devices(pid, control)?);
    let seen = look(pid, &parts, &mappings, known.tracker.as_ref().map(|tracker| (tracker, &mut known.unseen)))?;
    data.host.note_changes(&mut parts, &seen);
    parts::copy_shared(pid, &mut parts, &mut left_out)?;
    let is_copied = match data.host.to_copy(&parts, options) {
        Some(wanted) => parts::copy(pid, &mut parts, wanted)?,
        None => false,
    };
    let twin = match is_copied {
        true => None,
        false => {
            let mut guest = Guest::enter(pid, &mut stopped[0], control, homes[0].home, &homes[0].reissued)?;
            // A clone would become its child.
            let adopts_orphans = process::adopts_orphans(&mut guest)?;
            let twin = match process::would_get_clones(pid, adopts_orphans) {
                true => None,
                false => Twin::create(&mut guest, Memory::Copied)?,
            };
            guest.leave()?;
            twin
        }
    };
    stopped.iter().zip(&homes).try_for_each(|(thread, home)| home.lead_home(thread))?;
    drop(pinned);

    let mut still = Still::Program(stopped, began);
    if is_copied {
        still.resume(id, events)?;
    }
    if let Some(twin) = twin {
        still.resume(id, events)?;
        let cloned = maps::outline(twin.pid())?;
        let kept_back = parts::leave_out_kept_back(&mut parts, &mut left_out, |part| !part.is_in(&cloned));
        data.host.kept_from_clones.extend(kept_back);
        still = Still::Twin(Box::new(twin));
    }
    Ok(Frozen { allocations, mappings, parts, left_out, present: seen.present, still })
}
