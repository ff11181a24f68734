//! The devices of a job, suspended for as long as its host side is captured.
//!
//! The driver moves what a process has on its devices to the memory of the host, where it is captured like all other memory, and
//! lets the devices go ([`ckpt_wire::device`]). All processes hold their devices still before the first one is suspended: what
//! one of them waits for on a device may be the work of another one.
//!
//! From when a process is suspended, its keeper gives the devices back by itself if nobody listens at the name that it
//! knows any more: so whatever becomes of the agent, the program goes on.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ckpt_wire::Control;
use ckpt_wire::allocations::{
    CUDA_ARRAY, CUDA_DEVICE, CUDA_GLOBAL, CUDA_IMPORTED, CUDA_MANAGED, CUDA_MANAGED_GLOBAL, CUDA_MAPPED, CUDA_PINNED,
    CUDA_REGISTERED,
};
use ckpt_wire::device::{
    COMMAND_SUSPEND, Command, DEVICES_SUSPENDED, HELD, HELD_SUSPENDED, Hold as Shared, STEP_CHECKPOINT,
};

use super::hold::{self, Asked, Hold};
use super::page_set::PageSet;
use super::{Program, allocations};
use crate::error::{Error, Result};
use crate::fault::{hit, point};
use crate::image::{Allocation, AllocationKind, DeviceImage, DevicesImage};
use crate::keeper::{self, Kept, Line, Listener, MOVING_WITHIN, PATIENCE, command};
use crate::proc::{memory, task};
use crate::ptrace::write_memory;
use crate::survey::Survey;

/// How long the driver may wait for what the program has its devices do, behind the gate that is closed: for nothing.
const LOCK_WITHIN: Duration = Duration::from_secs(10);
/// `CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND`: what libckpt.so answers if the driver has no such function.
const NO_FUNCTION: i32 = 302;
/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: i32 = 801;

/// What drivers have, by their files, as far as that was to be learned. They are asked once, while the program runs.
#[derive(Default)]
pub struct Surveys(HashMap<PathBuf, Option<Survey>>);

impl Surveys {
    fn of(&mut self, driver: PathBuf) -> Option<&Survey> {
        let asked = self.0.entry(driver).or_insert_with_key(|driver| match Survey::apart(driver, None) {
            Ok(survey) => Some(survey),
            Err(error) => {
                log::warn!("a restart will not know the model of the devices: {error}");
                None
            }
        });
        asked.as_ref()
    }
}

/// The processes of a job that have devices.
pub struct Devices<'a> {
    /// Name of a socket at which the keeper of the first one can reach us; those of the others begin with it.
    socket: &'a Path,
    suspended: Vec<Suspended>,
}

/// A process whose devices are suspended.
struct Suspended {
    program: Program,
    hold: u64,
    /// Random number of the libckpt.so in it: another one after an exec.
    instance: u64,
    listener: Listener,
    began: Instant,
    image: DevicesImage,
}

impl<'a> Devices<'a> {
    /// None is suspended.
    pub fn new(socket: &'a Path) -> Devices<'a> {
        Devices { socket, suspended: Vec::new() }
    }

    /// Suspends the devices of these processes, which run, where they have any.
    ///
    /// # Errors
    /// When the driver cannot do it; then all have their devices again.
    pub fn suspend(&mut self, pids: &[i32], surveys: &mut Surveys) -> Result<()> {
        let outcome = self.try_to_suspend(pids, surveys);
        if outcome.is_err() {
            self.resume();
        }
        outcome
    }

    fn try_to_suspend(&mut self, pids: &[i32], surveys: &mut Surveys) -> Result<()> {
        let programs = with_devices(pids);
        if programs.is_empty() {
            return Ok(());
        }
        for (program, control) in &programs {
            refuse(program.pid, control)?;
            refuse_driver(program.pid, control, surveys)?;
        }
        let mut asked = Vec::new();
        for (number, (program, control)) in programs.iter().enumerate() {
            asked.extend(Asked::ask(program, control, self.name(number))?);
        }
        let held: Vec<(Hold<'_>, Listener)> = asked.into_iter().map(Asked::wait).collect::<Result<_>>()?;
        let mut lines = Vec::new();
        for ((hold, listener), (_, control)) in held.into_iter().zip(&programs) {
            let image = describe(&hold, control, surveys)?;
            lines.push((hold.into_line(), listener, image));
        }
        refuse_without_room(lines.iter().map(|(_, _, image)| image))?;
        // From here on it may take its time, and each takes its own.
        for ((line, _), ..) in &lines {
            line.send(Command { bytes: LOCK_WITHIN.as_millis() as u64, ..command(COMMAND_SUSPEND) })?;
        }
        hit(point::DEVICES_ASKED);
        let mut outcome = Ok(());
        for (((line, began), listener, image), (program, control)) in lines.into_iter().zip(&programs) {
            match suspended(line, program.pid) {
                Ok(()) => self.suspended.push(Suspended {
                    program: program.try_clone()?,
                    hold: control.hold,
                    instance: control.job,
                    listener,
                    began,
                    image,
                }),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        hit(point::DEVICES_SUSPENDED);
        outcome
    }

    fn name(&self, number: usize) -> PathBuf {
        if number == 0 {
            return self.socket.to_owned();
        }
        let mut name = self.socket.as_os_str().to_owned();
        name.push(format!(".{number}"));
        name.into()
    }

    /// What a restart has to know of the devices of a process that executes this instance of libckpt.so.
    pub fn of(&self, pid: i32, instance: u64) -> Option<DevicesImage> {
        let mut suspended = self.suspended.iter();
        suspended.find(|one| (one.program.pid, one.instance) == (pid, instance)).map(|one| one.image.clone())
    }

    /// Gives all processes their devices back, which run, and says for how long the longest had none, in ms. What cannot be done
    /// is left to their keepers.
    pub fn resume(&mut self) -> f64 {
        let suspended = std::mem::take(&mut self.suspended);
        let Some(began) = suspended.iter().map(|one| one.began).min() else { return 0.0 };
        // Each takes its own time, and none waits for another.
        let asked: Vec<_> = suspended.iter().map(Suspended::ask).collect();
        let begun: Vec<_> =
            suspended.iter().zip(asked).map(|(one, asked)| asked.and_then(|comes| one.begin(comes))).collect();
        let back: Vec<_> =
            suspended.iter().zip(begun).map(|(one, begun)| begun.and_then(|line| one.end(line))).collect();
        hit(point::DEVICES_RESUMED);
        for line in back {
            match line.and_then(|line| line.map_or(Ok(()), Line::open)) {
                Ok(()) | Err(Error::ProgramGone { .. } | Error::ThreadGone { .. }) => {}
                Err(error) => log::error!("{error}"),
            }
        }
        began.elapsed().as_secs_f64() * 1e3
    }
}

/// A process that is getting its devices back, unless it has them already.
struct Resuming<'a> {
    line: Line<'a>,
    has_them: bool,
}

impl Suspended {
    /// Has its keeper come to us; not if it executes another program by now, which has no devices.
    fn ask(&self) -> Result<bool> {
        let Suspended { program, hold, listener, .. } = self;
        let control = program.control()?;
        let Some(now) = hold::look(program.pid, &control)?.filter(|_| control.job == self.instance) else {
            return Ok(false);
        };
        for (offset, bytes) in listener.request(now.request.wrapping_add(1), PATIENCE) {
            write_memory(program.pid, hold + offset as u64, &bytes)?;
        }
        hold::wake(now.keeper).map(|()| true)
    }

    /// Has it begin, if it comes; nothing if it wants nothing of us.
    fn begin(&self, comes: bool) -> Result<Option<Resuming<'_>>> {
        if !comes {
            return Ok(None);
        }
        let kept = Kept { pid: self.program.pid, pidfd: self.program.pidfd.as_fd(), may_be_stopped: false };
        let (line, held) = self.listener.accept(kept, MOVING_WITHIN)?;
        match held.outcome {
            HELD => Ok(Some(Resuming { line, has_them: true })),
            HELD_SUSPENDED => {
                line.begin_to_resume(0, 0)?;
                Ok(Some(Resuming { line, has_them: false }))
            }
            _ => Ok(None),
        }
    }

    /// The line to its keeper, when it has them.
    fn end<'a>(&self, resuming: Option<Resuming<'a>>) -> Result<Option<Line<'a>>> {
        let Some(Resuming { line, has_them }) = resuming else { return Ok(None) };
        if !has_them && let Err((error, step)) = line.resumed()? {
            return Err(Error::environment(
                format!("giving process {} its devices back (step {step} of 4)", self.program.pid),
                keeper::why(error),
                "it tries again by itself; if it ends, `ckpt restart` brings it back",
            ));
        }
        Ok(Some(line))
    }
}

/// Those among these processes that have a keeper.
fn with_devices(pids: &[i32]) -> Vec<(Program, Box<Control>)> {
    let mut programs = Vec::new();
    for &pid in pids {
        // One that ends, or executes another program, is none: if it is, the stop finds out.
        let Ok(program) = Program::find(pid) else { continue };
        let Ok(control) = program.control() else { continue };
        if hold::look_for_keeper(pid, &control).is_ok_and(|found| found.is_some()) {
            programs.push((program, control));
        }
    }
    programs
}

/// What a restart has to know of the devices that are held.
fn describe(hold: &Hold<'_>, control: &Control, surveys: &mut Surveys) -> Result<DevicesImage> {
    let known = allocations::allocations(hold.pid(), control)?.known;
    let driver = hold.driver()?;
    let there: &[_] = surveys.of(driver.clone()).map_or(&[], |survey| &survey.devices);
    let describe = |number: i32| {
        let uuid = hold.identify(number)?;
        let used_bytes = known.iter().filter(|one| one.device() == number).map(bytes_there).sum();
        let found = there.iter().find(|one| one.uuid == uuid);
        let (model, capability) = found.map(|one| (one.model.clone(), one.capability)).unwrap_or_default();
        Ok(DeviceImage { uuid, model, capability, used_bytes })
    };
    let devices = (0..hold.devices() as i32).map(describe).collect::<Result<_>>()?;
    Ok(DevicesImage { hold: control.hold, driver: driver.into_os_string().into_encoded_bytes(), devices })
}

/// Bytes of an allocation that the driver has to move to the host.
fn bytes_there(allocation: &Allocation) -> u64 {
    match allocation.kind {
        AllocationKind::Cuda(CUDA_DEVICE | CUDA_MAPPED | CUDA_ARRAY | CUDA_GLOBAL, _) => allocation.bytes,
        _ => 0,
    }
}

/// Refuses what the driver cannot suspend, before anything has been asked of it.
fn refuse(pid: i32, control: &Control) -> Result<()> {
    let unsupported = |what: String, why: &str, advice: &str| {
        Err(Error::unsupported(format!("process {pid}: {what}"), why.to_owned(), advice.to_owned()))
    };
    for allocation in allocations::allocations(pid, control)?.known {
        let (address, bytes) = (allocation.address, allocation.bytes);
        match allocation.kind {
            AllocationKind::Cuda(CUDA_MANAGED, _) => {
                return unsupported(
                    format!("managed memory (cuMemAllocManaged), {bytes} bytes at {address:#x}"),
                    "the CUDA driver does not checkpoint it",
                    "use cuMemAlloc, or take checkpoints of data (ckpt checkpoint --data)",
                );
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
    let environment = task::bytes(pid, "environ")?;
    let visible = environment.split(|&byte| byte == 0).find_map(|line| line.strip_prefix(b"CUDA_VISIBLE_DEVICES="));
    if visible.is_some_and(|devices| devices.windows(4).any(|part| part == b"MIG-")) {
        return unsupported(
            "a part of a device (MIG, as CUDA_VISIBLE_DEVICES says)".to_owned(),
            "the CUDA driver does not checkpoint what runs there",
            "use a whole device",
        );
    }
    Ok(())
}

/// Refuses a driver that has no calls for it, which is said for each checkpoint that is asked for.
fn refuse_driver(pid: i32, control: &Control, surveys: &mut Surveys) -> Result<()> {
    let Some(there) = hold::look(pid, control)? else { return Ok(()) };
    match surveys.of(hold::file_of(pid, there.driver)?) {
        Some(Survey { can_checkpoint: false, .. }) => Err(too_old(pid)),
        _ => Ok(()),
    }
}

fn too_old(pid: i32) -> Error {
    Error::unsupported(
        format!("a checkpoint of what process {pid} has on devices"),
        "its CUDA driver has no calls for it, which are there from version 570 on",
        "take checkpoints of data (ckpt checkpoint --data)",
    )
}

/// Refuses if the host has no room for what is on the devices. (The kernel would end the program for it.)
fn refuse_without_room<'b>(images: impl Iterator<Item = &'b DevicesImage>) -> Result<()> {
    let bytes: u64 = images.flat_map(|image| &image.devices).map(|device| device.used_bytes).sum();
    let available = memory::available_bytes()?;
    if bytes <= available {
        return Ok(());
    }
    Err(Error::environment(
        "moving what is on the devices to the memory of the host",
        format!("it is {} MiB, and {} MiB are available", bytes >> 20, available >> 20),
        "free memory, or take checkpoints of data (ckpt checkpoint --data)",
    ))
}

/// Waits until the devices are suspended, and nobody in the process has a connection to us.
fn suspended(line: Line<'_>, pid: i32) -> Result<()> {
    let answer = line.receive(MOVING_WITHIN)?;
    if answer.error == 0 {
        return line.wait_until_closed();
    }
    let what = format!("a checkpoint of what process {pid} has on devices");
    Err(match (answer.error, answer.values[0]) {
        (NO_FUNCTION, _) => too_old(pid),
        (NOT_SUPPORTED, STEP_CHECKPOINT) => Error::unsupported(
            what,
            "the CUDA driver refuses it, as it does for managed memory and variables, memory that other processes may have, MIG \
             and MPS",
            "do without these, or take checkpoints of data (ckpt checkpoint --data)",
        ),
        (error, step) => Error::environment(
            format!("suspending the devices of process {pid} (step {step} of 4)"),
            keeper::why(error),
            "it goes on with its devices; try again",
        ),
    })
}

/// Refuses a process that stands still and has a device, its own or the one of the process that it was forked from.
///
/// # Errors
/// When it has one, or is just being asked about it, or about to execute another program, which passes.
pub fn refuse_awake(pid: i32, control: &Control, is_job_stopped: bool) -> Result<()> {
    match hold::look(pid, control)? {
        Some(_) if is_job_stopped => Err(hold::is_stopped(pid)),
        None => Ok(()),
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

/// Pages of the host, counted from address 0, that a device may write to at any time, which no protection of pages shows.
pub fn written_by_devices(pid: i32, control: &Control) -> Result<PageSet> {
    let mut pages = PageSet::default();
    if hold::look(pid, control)?.is_none() {
        return Ok(pages);
    }
    for allocation in allocations::allocations(pid, control)?.known {
        if let AllocationKind::Cuda(CUDA_PINNED | CUDA_REGISTERED | CUDA_MANAGED | CUDA_MANAGED_GLOBAL, _) =
            allocation.kind
        {
            let addresses = allocation.addresses();
            let (first, end) = (addresses.start / PAGE, addresses.end.div_ceil(PAGE));
            pages = pages.union(&PageSet::of(first..end));
        }
    }
    Ok(pages)
}

const PAGE: u64 = ckpt_store::PAGE_BYTES as u64;
