//! The devices of processes that had some: their keepers, who wait since before the capture, give them back when the processes
//! run.
//!
//! A keeper is asked before its process runs: one that finds nobody who has asked would begin by itself. All processes have
//! their devices again before the first of them can use any; if one cannot have them, all are ended.

mod content;
mod replacements;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use ckpt_store::Store;
use ckpt_wire::Control;
use ckpt_wire::device::{HELD_SUSPENDED, Hold, STEP_RESTORE};
use nix::errno::Errno;
use nix::unistd::geteuid;

use super::options::{Progress, Stage};
use super::process::HalfBuilt;
use crate::descriptor::{self, pidfd_open};
use crate::error::{Error, Result};
use crate::evacuation::bring_back_still;
use crate::fault::{hit, point};
use crate::image::{DevicesImage, JobImage, ProcessImage};
use crate::keeper::{self, Kept, Line, Listener, PAIR_BYTES, PATIENCE};
use crate::proc::task;
use crate::ptrace::ProcessMemory;
use content::{Content, ahead_bytes};

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: i32 = 2;

/// Processes whose keepers have been asked, and wait to run.
#[derive(Debug)]
pub struct Devices {
    asked: Vec<Asked>,
    /// What was in pieces is there.
    store: Store,
    /// All processes of the job, and what they are whoever has their pids by then; none if nobody is asked.
    all: Vec<(i32, OwnedFd)>,
}

pub use replacements::Replacements;

#[derive(Debug)]
struct Asked {
    pid: i32,
    pidfd: OwnedFd,
    listener: Listener,
    image: DevicesImage,
    memory: ProcessMemory,
    /// Where what the driver is to be told of other devices is in the program, and how many there are.
    pairs: (u64, usize),
}

impl Devices {
    /// Asks the keepers of all processes that had devices.
    ///
    /// # Errors
    /// When they cannot be asked.
    pub fn ask(processes: &[HalfBuilt], job: &JobImage, replacements: &Replacements, store: &Store) -> Result<Devices> {
        let each = processes.iter().zip(&job.processes);
        let asked: Vec<_> =
            each.filter_map(|(process, image)| ask(process, image, replacements).transpose()).collect::<Result<_>>()?;
        let all = if asked.is_empty() { &[] } else { processes };
        let all = all.iter().map(|process| Ok((process.pid(), pidfd_open(process.pid())?))).collect::<Result<_>>()?;
        Ok(Devices { asked, store: store.clone(), all })
    }

    /// Gives the processes, which run, their devices back.
    ///
    /// # Errors
    /// When one cannot have them; then all processes of the job have been ended.
    pub fn give_back(self, progress: &mut Progress) -> Result<()> {
        let outcome = self.try_to_give_back(progress);
        if outcome.is_err() {
            end(self.all);
        }
        outcome
    }

    fn try_to_give_back(&self, progress: &mut Progress) -> Result<()> {
        let mut back = Vec::new();
        let pieces = self.asked.iter().flat_map(|one| &one.image.pieces).flat_map(|stored| &stored.pieces);
        let (mut done, total) = (0, pieces.map(|piece| piece.bytes).sum());
        let mut filled = |bytes: u64| {
            done += bytes;
            progress(Stage::Devices, done, total);
        };
        thread::scope(|scope| -> Result<()> {
            // Each takes its own time, and none waits for another.
            let begun = self.asked.iter().map(|one| none_if_ended(one.begin())).collect::<Result<Vec<_>>>()?;
            let ahead_bytes = ahead_bytes(self.asked.iter().filter(|one| !one.image.pieces.is_empty()).count());
            let each = self.asked.iter();
            let contents: Vec<_> =
                each.map(|one| Content::read(scope, &self.store, &one.image.pieces, ahead_bytes)).collect();
            for ((one, line), content) in self.asked.iter().zip(begun).zip(contents) {
                let Some(line) = line.map(|line| none_if_ended(one.end(line))).transpose()?.flatten() else { continue };
                hit(point::DEVICES_RESUMED);
                let put = content
                    .map_or(Ok(()), |content| content.put(&line, &one.memory, &mut filled))
                    .and_then(|()| bring_back_still(&line, one.image.evacuated_bytes, one.pid));
                back.extend(descriptor::unless_ended(&one.pidfd, put)?.map(|()| line));
            }
            Ok(())
        })?;
        back.into_iter().try_for_each(|line| none_if_ended(line.open()).map(drop))
    }
}

/// Whoever has ended meanwhile has ended by itself, as it is told whoever waits for it.
fn none_if_ended<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Err(Error::ProgramGone { .. }) => Ok(None),
        outcome => outcome.map(Some),
    }
}

fn ask(process: &HalfBuilt, image: &ProcessImage, replacements: &Replacements) -> Result<Option<Asked>> {
    let Some(devices) = &image.devices else { return Ok(None) };
    let pid = process.pid();
    // Not so long, whatever the store is called; no other restart has it.
    let number = RandomState::new().build_hasher().finish();
    let listener = Listener::at(PathBuf::from("/tmp").join(format!("ckpt-{number:016x}.keeper")))?;
    // Those that count where files are concerned.
    let ([.., user], [.., group]) = (image.uids, image.gids);
    if user != geteuid().as_raw() {
        listener.open_to(user, group)?;
    }
    let memory = process.memory();
    let mut request = [0; 4];
    memory.read(devices.hold + offset_of!(Hold, request) as u64, &mut request)?;
    for (offset, bytes) in listener.request(u32::from_ne_bytes(request).wrapping_add(1), Duration::ZERO) {
        memory.write(devices.hold + offset as u64, &bytes)?;
    }
    // Whoever kept memory of its pieces has not kept it for this life.
    memory.write(devices.hold + offset_of!(Hold, kept_by) as u64, &0_i32.to_ne_bytes())?;
    let pairs = put_pairs(process, image, &replacements.pairs(devices))?;
    Ok(Some(Asked {
        pid,
        pidfd: pidfd_open(pid)?,
        listener,
        image: devices.clone(),
        memory: memory.try_clone()?,
        pairs,
    }))
}

/// Puts what the driver is to be told where nothing else of the program's is.
fn put_pairs(process: &HalfBuilt, image: &ProcessImage, pairs: &[u8]) -> Result<(u64, usize)> {
    const ROOM: usize = ckpt_store::PAGE_BYTES;
    if pairs.is_empty() {
        return Ok((0, 0));
    }
    if pairs.len() > ROOM {
        return Err(Error::unsupported(
            format!("other devices for the {} of process {}", pairs.len() / PAIR_BYTES, process.pid()),
            format!("at most {} can be named to its driver", ROOM / PAIR_BYTES),
            "restart it where they are",
        ));
    }
    let mut scratch = [0; 8];
    process.memory().read(image.control + offset_of!(Control, scratch) as u64, &mut scratch)?;
    let scratch = u64::from_ne_bytes(scratch);
    process.memory().write(scratch, pairs)?;
    Ok((scratch, pairs.len() / PAIR_BYTES))
}

impl Asked {
    /// The line to its keeper, which has begun.
    fn begin(&self) -> Result<Line<'_>> {
        let kept = Kept { pid: self.pid, pidfd: self.pidfd.as_fd(), may_be_stopped: true };
        let (line, held) = self.listener.accept(kept, PATIENCE)?;
        if held.outcome != HELD_SUSPENDED {
            return Err(Error::environment(
                format!("giving process {} its devices back", self.pid),
                format!("its keeper says {}, and not that they are suspended", held.outcome),
                "report this; another checkpoint can be restarted with --id",
            ));
        }
        line.begin_to_resume(self.pairs.0, self.pairs.1, self.image.evacuated_bytes > 0)?;
        Ok(line)
    }

    /// The same line, when it has them.
    fn end<'a>(&self, line: Line<'a>) -> Result<Line<'a>> {
        line.resumed()?.map(|()| line).map_err(|(error, step)| self.refused(error, step))
    }

    fn refused(&self, error: i32, step: u64) -> Error {
        let what = format!("giving process {} its devices back", self.pid);
        let mib = self.image.devices.iter().map(|device| device.used_bytes).sum::<u64>() >> 20;
        match (error, step) {
            (OUT_OF_MEMORY, _) => Error::environment(
                what,
                format!("the CUDA driver has no memory left for what it had there, {mib} MiB and its contexts"),
                "end what else uses the devices, and restart",
            ),
            (error, STEP_RESTORE) => Error::environment(
                what,
                format!("{}: it does not take these devices", keeper::why(error)),
                "restart it where they are that it had, or with another driver",
            ),
            (error, _) => {
                Error::environment(what, keeper::why(error), "restart it; nvidia-smi shows how the devices are")
            }
        }
    }
}

/// Ends all processes, of which one lacks its devices, and what they have started since they run.
fn end(mut all: Vec<(i32, OwnedFd)>) {
    let mut seen = 0;
    while let Some((pid, _)) = all.get(seen) {
        // One that ends meanwhile has no children any more.
        let children = task::children(*pid).unwrap_or_default();
        let new: Vec<i32> = children.into_iter().filter(|child| all.iter().all(|(known, _)| known != child)).collect();
        all.extend(new.into_iter().filter_map(|child| Some((child, pidfd_open(child).ok()?))));
        seen += 1;
    }
    for (pid, pidfd) in all {
        match descriptor::kill(pidfd.as_fd()) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => log::warn!("ending process {pid}, whose job lacks its devices: {error}"),
        }
    }
}
