//! What cannot be suspended, and is refused by name before anything has been asked of the driver.
//!
//! Managed memory is not if the driver lets it be evacuated. That is tried first, by a process of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ckpt_wire::Control;
use ckpt_wire::allocations::{CUDA_IMPORTED, CUDA_MANAGED, CUDA_MANAGED_GLOBAL};
use ckpt_wire::device::{DEVICES_SUSPENDED, EVENTS_HANDED_OUT, Hold as Shared, POOLS_HANDED_OUT};

use super::known::{Surveys, Trials};
use crate::capture::allocations::{self, Allocations};
use crate::capture::hold;
use crate::error::{Error, Result};
use crate::image::AllocationKind;
use crate::proc::{control_groups, memory, task};
use crate::survey::Survey;

/// Refuses what the driver cannot suspend, before anything has been asked of it.
pub fn refuse(pid: i32, control: &Control, trials: &mut Trials) -> Result<()> {
    let unsupported = |what: String, why: &str, advice: &str| {
        Err(Error::unsupported(format!("process {pid}: {what}"), why.to_owned(), advice.to_owned()))
    };
    let Allocations { known, exported, pooled, .. } = allocations::allocations(pid, control)?;
    let mut is_evacuated = false;
    for allocation in known {
        let (address, bytes) = (allocation.address, allocation.bytes);
        if exported.contains(&allocation.id) {
            return unsupported(
                format!("device memory that other processes may have, {bytes} bytes at {address:#x}"),
                "the program has made a handle of it (cuIpcGetMemHandle, cuMemExportToShareableHandle, \
                 cuMemGetHandleForAddressRange), or ckpt has for a checkpoint of data; the CUDA driver does not checkpoint what is \
                 exported",
                "free it before, or take checkpoints of data (ckpt checkpoint --data)",
            );
        }
        match allocation.kind {
            AllocationKind::Cuda(CUDA_MANAGED, _) if pooled.contains(&allocation.id) => {
                return unsupported(
                    format!("managed memory of a pool, {bytes} bytes at {address:#x}"),
                    "the CUDA driver does not checkpoint it",
                    "use cuMemAllocManaged, or take checkpoints of data (ckpt checkpoint --data)",
                );
            }
            AllocationKind::Cuda(CUDA_MANAGED, _) if !is_evacuated => {
                if let Some(why) = trials.why_not(pid, control)? {
                    return unsupported(
                        format!("managed memory (cuMemAllocManaged), {bytes} bytes at {address:#x}"),
                        &format!(
                            "the CUDA driver does not checkpoint it, nor can it be evacuated before, as was tried in a process of \
                             its own: {why}"
                        ),
                        "start it with CKPT_MANAGED_BACKING=pinned, use cuMemAlloc, or take checkpoints of data (ckpt checkpoint \
                         --data)",
                    );
                }
                is_evacuated = true;
            }
            AllocationKind::Cuda(CUDA_MANAGED_GLOBAL, _) => {
                return unsupported(
                    format!("a __managed__ variable, {bytes} bytes at {address:#x}"),
                    "the CUDA driver does not checkpoint it",
                    "use a __device__ variable, or take checkpoints of data (ckpt checkpoint --data)",
                );
            }
            AllocationKind::Cuda(CUDA_IMPORTED, _) => {
                return unsupported(
                    format!("device memory of another process or API, {bytes} bytes at {address:#x}"),
                    "the CUDA driver does not checkpoint it",
                    "close it before the checkpoint, or take checkpoints of data (ckpt checkpoint --data)",
                );
            }
            _ => {}
        }
    }
    let handed_out = hold::look(pid, control)?.map_or(0, |shared| shared.handed_out);
    for (kind, name, calls) in [
        (EVENTS_HANDED_OUT, "an event", "cuIpcGetEventHandle, cuIpcOpenEventHandle"),
        (POOLS_HANDED_OUT, "a pool", "cuMemPoolExportToShareableHandle, cuMemPoolImportFromShareableHandle"),
    ] {
        if handed_out & kind != 0 {
            return unsupported(
                format!("{name} that other processes may have"),
                &format!(
                    "there has been a handle of it ({calls}); the CUDA driver does not checkpoint what is exported"
                ),
                "do without, or take checkpoints of data (ckpt checkpoint --data)",
            );
        }
    }
    let environment = task::bytes(pid, "environ")?;
    let visible = environment.split(|&byte| byte == 0).find_map(|line| line.strip_prefix(b"CUDA_VISIBLE_DEVICES="));
    if visible.is_some_and(|devices| devices.windows(4).any(|part| part == b"MIG-")) {
        return Err(of_a_part(pid, "as CUDA_VISIBLE_DEVICES says"));
    }
    Ok(())
}

/// Refuses a part of a device, which a program sees also without having asked for it: as a model of its own.
pub fn refuse_part(pid: i32, model: &str) -> Result<()> {
    if model.split_whitespace().any(|word| word == "MIG") { Err(of_a_part(pid, model)) } else { Ok(()) }
}

fn of_a_part(pid: i32, which: &str) -> Error {
    Error::unsupported(
        format!("process {pid}: a part of a device (MIG, {which})"),
        "the CUDA driver does not checkpoint what runs there",
        "use a whole device, or take checkpoints of data (ckpt checkpoint --data)",
    )
}

/// Refuses a driver that has no calls for it, which is said for each checkpoint that is asked for.
pub fn refuse_driver(pid: i32, control: &Control, surveys: &mut Surveys) -> Result<()> {
    let Some(there) = hold::look(pid, control)? else { return Ok(()) };
    match surveys.of(hold::file_of(pid, there.driver)?) {
        Some(Survey { can_checkpoint: false, .. }) => Err(too_old(pid)),
        _ => Ok(()),
    }
}

pub fn too_old(pid: i32) -> Error {
    Error::unsupported(
        format!("a checkpoint of what process {pid} has on devices"),
        "its CUDA driver has no calls for it, which are there from version 570 on",
        "take checkpoints of data (ckpt checkpoint --data)",
    )
}

/// Refuses if there is no room in the memory of the host for so many bytes that each process has on devices, or in a control group
/// that it is in. (The kernel would end the program for it.)
pub fn refuse_without_room(needs: &[(i32, u64)]) -> Result<()> {
    let needed = needs.iter().map(|(_, bytes)| bytes).sum();
    refuse_more(needed, memory::available_bytes()?, "available")?;
    let mut groups: BTreeMap<PathBuf, (u64, u64)> = BTreeMap::new();
    for &(pid, bytes) in needs {
        for left in control_groups::memory_left(pid) {
            groups.entry(left.group).or_insert((0, left.bytes)).0 += bytes;
        }
    }
    groups.iter().try_for_each(|(group, &(needed, left))| {
        refuse_more(needed, left, &format!("left of the limit of the control group {}", group.display()))
    })
}

fn refuse_more(needed: u64, left: u64, of_what: &str) -> Result<()> {
    if needed <= left {
        return Ok(());
    }
    Err(Error::environment(
        "moving what is on the devices to the memory of the host",
        format!("it is {} MiB, and {} MiB are {of_what}", needed >> 20, left >> 20),
        "free memory or raise the limit, or take checkpoints of data (ckpt checkpoint --data)",
    ))
}

/// Refuses a process that stands still and has a device, its own or the one of the process that it was forked from.
///
/// # Errors
/// When it has one, or is just being asked about it, or about to execute another program, which passes.
pub fn refuse_awake(pid: i32, control: &Control, is_job_stopped: bool) -> Result<()> {
    match hold::look(pid, control)? {
        Some(_) if is_job_stopped => Err(hold::is_stopped(pid)),
        None => Ok(()),
        // Forked from one that had begun to use the driver, and no device: what it has open of that is looked at as such.
        Some(shared) if shared.contexts == 0 && !hold::has_own_keeper(pid, &shared) => Ok(()),
        Some(shared) if !hold::has_own_keeper(pid, &shared) => Err(Error::Unsettled {
            what: format!("process {pid}: a CUDA context that its parent had when it was forked"),
            why: "the CUDA driver does not checkpoint what two processes have".to_owned(),
            advice: "fork before a device is used for the first time, or let the child execute a program".to_owned(),
        }),
        Some(Shared { devices: DEVICES_SUSPENDED, line: 0, .. }) => Ok(()),
        Some(Shared { line: 0, .. }) => Err(Error::environment(
            format!("capturing process {pid}"),
            "it has begun to use a CUDA device meanwhile",
            "it goes on; try again",
        )),
        Some(_) => Err(Error::Unsettled {
            what: format!("process {pid}: a connection of its keeper's"),
            why: "it is just looking whether we are there".to_owned(),
            advice: "try again".to_owned(),
        }),
    }
}
