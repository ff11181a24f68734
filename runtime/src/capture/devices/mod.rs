//! The devices of a job, suspended for as long as its host side is captured.
//!
//! What libckpt.so has backed is stored first, found on the device ([`content`]), and kept by a process of its own meanwhile
//! ([`memory_keeper`]). The driver moves the rest of what a process has on its devices to the memory of the host, where it is captured
//! like all other memory, and lets the devices go ([`ckpt_wire::device`]). All processes hold their devices still before the first one is suspended: what
//! one of them waits for on a device may be the work of another one.
//!
//! Managed memory, which the driver does not move, is evacuated before and brought back behind ([`evacuated`]).
//!
//! From when a process is suspended, its keeper gives the devices back by itself if nobody listens at the name that it
//! knows any more: so whatever becomes of the agent, the program goes on.

mod content;
mod evacuated;
pub mod known;
mod memory_keeper;
mod refusals;
mod room;

use std::mem::offset_of;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::allocations;
use super::device_series::Uuid;
use super::hold::{self, Asked, Hold};
use super::program::Program;
use super::request::Settings;
use crate::descriptor;
use crate::error::{Error, Result};
use crate::evacuation::bring_back_still;
use crate::fault::{hit, point};
use crate::image::{Allocation, AllocationKind, DeviceImage, DevicesImage};
use crate::keeper::{self, Kept, Line, Listener, MOVING_WITHIN, PATIENCE, command};
use crate::page_set::PageSet;
use crate::ptrace::write_memory;
use ckpt_store::Attempt;
use ckpt_wire::Control;
use ckpt_wire::allocations::{
    CUDA_ARRAY, CUDA_DEVICE, CUDA_GLOBAL, CUDA_MANAGED, CUDA_MANAGED_EVACUATED, CUDA_MANAGED_GLOBAL,
    CUDA_MANAGED_PINNED, CUDA_MANAGED_REGISTERED, CUDA_MAPPED, CUDA_PINNED, CUDA_REGISTERED,
};
use ckpt_wire::device::{
    COMMAND_SUSPEND, Command, HELD, HELD_SUSPENDED, Hold as Shared, Piece as ShownPiece, STEP_CHECKPOINT, step_name,
};
use content::Content;
use known::{Known, Surveys};
use memory_keeper::MemoryKeeper;
use refusals::{refuse, refuse_driver, refuse_part, refuse_without_room, too_old};
use room::Room;

pub use refusals::refuse_awake;

/// How long the driver may wait for what the program has its devices do, behind the gate that is closed: for nothing.
const LOCK_WITHIN: Duration = Duration::from_secs(10);
/// `CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND`: what libckpt.so answers if the driver has no such function.
const NO_FUNCTION: i32 = 302;
/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: i32 = 801;

/// The processes of a job that have devices.
pub struct Devices<'a> {
    settings: &'a Settings<'a>,
    suspended: Vec<Suspended>,
    /// What they need to have their devices again.
    room: Room,
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
    memory: Option<MemoryKeeper>,
}

/// A process whose devices are held.
struct Held<'a> {
    program: &'a Program,
    control: &'a Control,
    hold: Hold<'a>,
    listener: Listener,
}

/// The same, when its pieces are stored.
struct Stored<'a> {
    program: &'a Program,
    control: &'a Control,
    line: Line<'a>,
    listener: Listener,
    began: Instant,
    image: DevicesImage,
    /// Bytes that the driver has to move to the host, by device.
    to_move: Vec<(Uuid, u64)>,
    /// How long the program waits for devices that it cannot have back.
    waits: Duration,
    /// Whether its managed memory is evacuated.
    is_evacuated: bool,
    /// Addresses of what shows a piece, and who keeps their memory.
    kept: Option<(Vec<u64>, MemoryKeeper)>,
}

impl<'a> Devices<'a> {
    /// None is suspended.
    pub fn new(settings: &'a Settings<'a>) -> Devices<'a> {
        Devices { settings, suspended: Vec::new(), room: Room::default() }
    }

    /// Suspends the devices of these processes, which run, where they have any, and writes what is in pieces.
    ///
    /// # Errors
    /// When the driver or the store cannot do it; then all have their devices again.
    pub fn suspend(&mut self, pids: &[i32], known: &mut Known, attempt: &mut Attempt) -> Result<()> {
        let outcome = self.try_to_suspend(pids, known, attempt);
        if outcome.is_err() {
            self.resume();
        }
        outcome
    }

    fn try_to_suspend(&mut self, pids: &[i32], known: &mut Known, attempt: &mut Attempt) -> Result<()> {
        known.contents.begin();
        let programs = with_devices(pids);
        if programs.is_empty() {
            return Ok(());
        }
        known.variables.retain(|instance, _| programs.iter().any(|(_, control)| control.job == *instance));
        for (program, control) in &programs {
            let may_be = refuse_driver(program.pid, control, &mut known.surveys)
                .and_then(|()| refuse(program.pid, control, &mut known.trials))
                .and_then(|()| known.variables.entry(control.job).or_default().read(program, control));
            unless_ended(program, may_be)?;
        }
        let mut stored = Vec::new();
        for held in hold::between_captures(|| self.hold(&programs))? {
            let program = held.program;
            stored.extend(unless_ended(program, self.store(held, known, attempt))?);
        }
        let to_move: Vec<(Uuid, u64)> = stored.iter().flat_map(|one| one.to_move.iter().copied()).collect();
        let needs: Vec<(i32, u64)> = stored.iter().map(|one| (one.program.pid, one.host_bytes())).collect();
        refuse_without_room(&needs)?;
        let waits = stored.iter().map(|one| one.waits).max().unwrap_or_default();
        let room = Room::before(&to_move, known.contents.contexts(), waits);
        for one in &stored {
            unless_ended(one.program, tell_who_keeps(one.program.pid, one.control.hold, one.kept.as_ref()))?;
        }
        hit(point::DEVICES_KEPT);
        let evacuated = stored.iter_mut().try_for_each(|one| {
            let program = one.program;
            unless_ended(program, one.evacuate()).map(drop)
        });
        if let Err(error) = evacuated {
            stored.iter().for_each(Stored::bring_back);
            return Err(error);
        }
        hit(point::DEVICES_EVACUATED);
        // From here on it may take its time, and each takes its own.
        for one in &mut stored {
            if let Some((_, memory)) = &mut one.kept {
                memory.is_needed();
            }
        }
        let asked = Command { bytes: LOCK_WITHIN.as_millis() as u64, ..command(COMMAND_SUSPEND) };
        let all = stored.iter().try_for_each(|one| unless_ended(one.program, one.line.send(asked)).map(drop));
        if let Err(error) = all {
            stored.iter().for_each(Stored::bring_back);
            return Err(error);
        }
        hit(point::DEVICES_ASKED);
        let mut outcome = Ok(());
        for one in stored {
            let done = suspended(&one.line, one.program.pid).inspect_err(|_| one.bring_back());
            let Stored { program, control, line, listener, began, image, kept, .. } = one;
            match unless_ended(program, done.and_then(|()| line.wait_until_closed())) {
                Ok(None) => {}
                Ok(Some(())) => self.suspended.push(Suspended {
                    program: program.try_clone()?,
                    hold: control.hold,
                    instance: control.job,
                    listener,
                    began,
                    image,
                    memory: kept.map(|(_, memory)| memory),
                }),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        hit(point::DEVICES_SUSPENDED);
        if outcome.is_ok() {
            self.room = room.after();
        }
        outcome
    }

    /// Has all hold their devices still.
    fn hold<'b>(&self, programs: &'b [(Program, Box<Control>)]) -> Result<Vec<Held<'b>>> {
        let mut asked = Vec::new();
        for (number, (program, control)) in programs.iter().enumerate() {
            // One that executes another program by now has none any more.
            let keeper = unless_ended(program, Asked::ask(program, control, self.name(number)))?.flatten();
            asked.extend(keeper.map(|keeper| (program, &**control, keeper)));
        }
        let mut all = Vec::new();
        for (program, control, keeper) in asked {
            let held = unless_ended(program, keeper.wait())?;
            all.extend(held.map(|(hold, listener)| Held { program, control, hold, listener }));
        }
        Ok(all)
    }

    /// Stores what is in pieces, and has their memory kept.
    fn store<'b>(&self, held: Held<'b>, known: &mut Known, attempt: &mut Attempt) -> Result<Stored<'b>> {
        let Held { program, control, hold, listener } = held;
        // Where somebody else has suspended them, nobody can look.
        let mut content = Content::default();
        if hold.devices() > 0 {
            // Also a variable that the program has never asked for may be one that is refused.
            known.variables.entry(control.job).or_default().record(&hold, program, control)?;
            refuse(program.pid, control, &mut known.trials)?;
            content = known.contents.store(&hold, control, self.settings.tree, attempt)?;
        }
        let (mut image, to_move) = describe(&hold, control, &content, &mut known.surveys)?;
        image.pieces = std::mem::take(&mut content.image);
        let (shown, memory): (Vec<u64>, Vec<_>) = content.memory.into_iter().unzip();
        let kept = match memory.is_empty() {
            true => None,
            false => Some((shown, MemoryKeeper::start(program, control.hold, memory)?)),
        };
        let waits = hold.waits();
        let (line, began) = hold.into_line();
        Ok(Stored { program, control, line, listener, began, image, to_move, waits, is_evacuated: false, kept })
    }

    fn name(&self, number: usize) -> PathBuf {
        if number == 0 {
            return self.settings.socket.to_owned();
        }
        let mut name = self.settings.socket.as_os_str().to_owned();
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
        let mut suspended = std::mem::take(&mut self.suspended);
        let Some(began) = suspended.iter().map(|one| one.began).min() else { return 0.0 };
        std::mem::take(&mut self.room).wait(|| suspended.iter().all(|one| descriptor::has_ended(&one.program.pidfd)));
        // Each takes its own time, and none waits for another.
        let asked: Vec<_> = suspended.iter_mut().map(Suspended::ask).collect();
        let memories: Vec<_> = suspended.iter_mut().map(|one| one.memory.take()).collect();
        let begun: Vec<_> =
            suspended.iter().zip(asked).map(|(one, asked)| asked.and_then(|comes| one.begin(comes))).collect();
        let back: Vec<_> =
            suspended.iter().zip(begun).map(|(one, begun)| begun.and_then(|line| one.end(line))).collect();
        hit(point::DEVICES_RESUMED);
        for (memory, line) in memories.into_iter().zip(&back) {
            // Whoever has no memory yet fetches it by himself.
            if let Some(memory) = memory.filter(|_| is_back(line)) {
                memory.end();
            }
        }
        renew(&back);
        hit(point::DEVICES_RENEWED);
        back.into_iter().for_each(open);
        began.elapsed().as_secs_f64() * 1e3
    }
}

/// Whether a process has its devices back, or needs them no more.
fn is_back(line: &Result<Option<Line<'_>>>) -> bool {
    matches!(line, Ok(_) | Err(Error::ProgramGone { .. } | Error::ThreadGone { .. }))
}

/// Has the pieces renewed whose memory was kept, of each process in its own time. What is not, is tried again when it is to be
/// exported.
fn renew(back: &[Result<Option<Line<'_>>>]) {
    let lines = || back.iter().filter_map(|line| line.as_ref().ok()?.as_ref());
    let asked: Vec<_> = lines().map(Line::begin_to_renew).collect();
    for (line, asked) in lines().zip(asked) {
        match asked.and_then(|()| line.renewed()) {
            Ok(0) | Err(Error::ProgramGone { .. } | Error::ThreadGone { .. }) => {}
            Ok(left) => {
                log::warn!("there is no room on the device to copy {left} allocations: the next checkpoint tries again")
            }
            Err(error) => log::warn!("{error}"),
        }
    }
}

/// Lets the devices go on that are back.
fn open(line: Result<Option<Line<'_>>>) {
    match line.and_then(|line| line.map_or(Ok(()), Line::open)) {
        Ok(()) | Err(Error::ProgramGone { .. } | Error::ThreadGone { .. }) => {}
        Err(error) => log::error!("{error}"),
    }
}

impl Stored<'_> {
    /// What it needs of the host's memory while its devices are suspended.
    fn host_bytes(&self) -> u64 {
        self.image.evacuated_bytes + self.to_move.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    fn evacuate(&mut self) -> Result<()> {
        evacuated::evacuate(self.program, &self.line, self.image.evacuated_bytes)?;
        self.is_evacuated = true;
        Ok(())
    }

    /// What cannot be done is left to its keeper.
    fn bring_back(&self) {
        if self.is_evacuated
            && let Err(error) = bring_back_still(&self.line, self.image.evacuated_bytes, self.program.pid)
        {
            log::error!("{error}");
        }
    }
}

/// A process that is getting its devices back, unless it has them already.
struct Resuming<'a> {
    line: Line<'a>,
    has_them: bool,
}

impl Suspended {
    /// Has its keeper come to us; not if it executes another program by now, which has no devices.
    fn ask(&mut self) -> Result<bool> {
        let Suspended { program, hold, listener, memory, .. } = self;
        let control = program.control()?;
        let Some(now) = hold::look(program.pid, &control)?.filter(|_| control.job == self.instance) else {
            return Ok(false);
        };
        if let Some(memory) = memory
            && memory.revive(program)?
        {
            log::warn!("the process that kept device memory of process {} was dead: another one does", program.pid);
            write_memory(program.pid, *hold + offset_of!(Shared, kept_by) as u64, &memory.pid().to_ne_bytes())?;
        }
        for (offset, bytes) in listener.request(now.request.wrapping_add(1), PATIENCE) {
            write_memory(program.pid, *hold + offset as u64, &bytes)?;
        }
        hold::wake(program.pid, now.keeper).map(|()| true)
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
                line.begin_to_resume(0, 0, self.image.evacuated_bytes > 0)?;
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
                format!("giving process {} its devices back ({})", self.program.pid, step_name(step)),
                keeper::why(error),
                "it tries again by itself; if it ends, `ckpt restart` brings it back",
            ));
        }
        if !has_them {
            bring_back_still(&line, self.image.evacuated_bytes, self.program.pid)?;
        }
        Ok(Some(line))
    }
}

/// What came of something, or nothing if the process has ended meanwhile: then it has no devices, and the job goes on without it.
fn unless_ended<T>(program: &Program, outcome: Result<T>) -> Result<Option<T>> {
    descriptor::unless_ended(&program.pidfd, outcome)
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

/// What a restart has to know of the devices that are held, and how many bytes the driver has to move from each to the host.
fn describe(
    hold: &Hold<'_>,
    control: &Control,
    content: &Content,
    surveys: &mut Surveys,
) -> Result<(DevicesImage, Vec<(Uuid, u64)>)> {
    let known = allocations::allocations(hold.pid(), control)?.known;
    let driver = hold.driver()?;
    let there: &[_] = surveys.of(driver.clone()).map_or(&[], |survey| &survey.devices);
    let mut to_move = Vec::new();
    let describe = |number: i32| {
        let uuid = hold.identify(number)?;
        let of_driver = known.iter().filter(|one| one.device() == number && !content.has(one));
        let bytes: u64 = of_driver.map(bytes_there).sum();
        to_move.push((uuid, bytes));
        let used_bytes = bytes + content.bytes_on(number);
        let found = there.iter().find(|one| one.uuid == uuid);
        let (model, capability) = found.map(|one| (one.model.clone(), one.capability)).unwrap_or_default();
        refuse_part(hold.pid(), &model)?;
        Ok(DeviceImage { uuid, model, capability, used_bytes })
    };
    let devices = (0..hold.devices() as i32).map(describe).collect::<Result<_>>()?;
    let driver = driver.into_os_string().into_encoded_bytes();
    let evacuated_bytes = evacuated::bytes(&known);
    Ok((DevicesImage { hold: control.hold, driver, devices, pieces: Vec::new(), evacuated_bytes }, to_move))
}

/// Tells a keeper who has the memory of its pieces while the devices are suspended, which is taken from it then.
fn tell_who_keeps(pid: i32, hold: u64, kept: Option<&(Vec<u64>, MemoryKeeper)>) -> Result<()> {
    let by = kept.map_or(0, |(_, memory)| memory.pid());
    if let Some((shown, memory)) = kept {
        for (entry, number) in shown.iter().zip(memory.numbers()) {
            write_memory(pid, entry + offset_of!(ShownPiece, kept) as u64, &number.to_ne_bytes())?;
        }
    }
    write_memory(pid, hold + offset_of!(Shared, kept_by) as u64, &by.to_ne_bytes())
}

/// Bytes of an allocation that the driver has to move to the host.
fn bytes_there(allocation: &Allocation) -> u64 {
    match allocation.kind {
        AllocationKind::Cuda(CUDA_DEVICE | CUDA_MAPPED | CUDA_ARRAY | CUDA_GLOBAL, _) => allocation.bytes,
        _ => 0,
    }
}

/// Waits until the devices are suspended.
fn suspended(line: &Line<'_>, pid: i32) -> Result<()> {
    let answer = line.receive(MOVING_WITHIN)?;
    if answer.error == 0 {
        return Ok(());
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
            format!("suspending the devices of process {pid} ({})", step_name(step)),
            keeper::why(error),
            "it goes on with its devices; try again",
        ),
    })
}

/// Pages of the host, counted from address 0, that a device may write to at any time, which no protection of pages shows.
pub fn written_by_devices(pid: i32, control: &Control) -> Result<PageSet> {
    let mut pages = PageSet::default();
    if hold::look(pid, control)?.is_none() {
        return Ok(pages);
    }
    for allocation in allocations::allocations(pid, control)?.known {
        if let AllocationKind::Cuda(
            CUDA_PINNED
            | CUDA_REGISTERED
            | CUDA_MANAGED
            | CUDA_MANAGED_GLOBAL
            | CUDA_MANAGED_PINNED
            | CUDA_MANAGED_EVACUATED
            | CUDA_MANAGED_REGISTERED,
            _,
        ) = allocation.kind
        {
            let addresses = allocation.addresses();
            let (first, end) = (addresses.start / PAGE, addresses.end.div_ceil(PAGE));
            pages = pages.union(&PageSet::of(first..end));
        }
    }
    Ok(pages)
}

const PAGE: u64 = ckpt_store::PAGE_BYTES as u64;
