//! Programs that libckpt.so is not loaded into: because no dynamic linker loads them (static ones, most of Go's), or because a
//! process of the job has executed them with another environment.
//!
//! Capture is done from outside, and needs little inside the program: the stub, its frame, room for arguments, and the
//! control block that says what the user wants. Such a program is adopted: it is given a few pages with just that
//! ([`resident`]), and is from then on, across restarts too, a program like any other, but for the trigger signal and what
//! hooks record.

mod injection;
pub mod resident;
mod wishes;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ckpt_wire::Control;

use super::kin;
use super::program::Program;
use super::tracer_thread::on_tracer_thread;
use super::waiting_calls::WaitingCalls;
use crate::error::{Error, Result};
use crate::linkage::Linkage;
use crate::proc::auxv;

/// How long another ckpt may take to adopt the program before us.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(2);

/// Finds the control block of process `pid`, as [`Program::find`] does, and gives it one if it can have none of its own and its
/// environment says that it is a program of ours, or `parent`, the control block of its parent in a job. `calls` are those that its
/// threads were then stopped in.
///
/// # Errors
/// When it is no program of ours, may not be traced, or has more rights than its caller. It runs on as it was.
pub fn find_or_adopt(pid: i32, calls: &mut WaitingCalls, parent: Option<&Control>) -> Result<Program> {
    find_or_adopt_before(pid, calls, parent, false)
}

/// The same; `is_late` if libckpt.so is not waited for any more.
fn find_or_adopt_before(
    pid: i32,
    calls: &mut WaitingCalls,
    parent: Option<&Control>,
    is_late: bool,
) -> Result<Program> {
    match Program::find(pid) {
        Err(Error::NotPreloaded { .. }) => {}
        found => return found,
    }
    let linkage = linkage(pid)?;
    refuse_foreign(pid, linkage)?;
    refuse_more_rights(pid)?;
    let control = match (linkage, parent) {
        (Linkage::Static, None) => wishes::control(pid)?,
        (Linkage::Static, Some(parent)) => wishes::control(pid).or_else(|_| wishes::of_parent(parent))?,
        (_, Some(parent)) if is_late || !kin::loads_library(pid) => wishes::of_parent(parent)?,
        _ => return Err(Error::NotPreloaded { pid }),
    };
    let deadline = Instant::now() + OTHERS_TIMEOUT;
    loop {
        let outcome = on_tracer_thread(|| injection::inject(pid, &control, calls));
        // Whatever has come in our way: if another of us has adopted it meanwhile, that is as good.
        let found = Program::find(pid);
        match (outcome, found) {
            (Ok(()), found) | (Err(_), found @ Ok(_)) => return found,
            // Somebody traces it: perhaps another of us, who is doing the same.
            (Err(Error::Environment { .. } | Error::Ptrace { .. } | Error::Traced { .. }), Err(_))
                if Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            (Err(error), Err(_)) => return Err(error),
        }
    }
}

/// Finds the control block of process `pid`, as [`Program::find`] does, and reads it, of one whose dynamic linker has not loaded
/// libckpt.so yet as soon as it has: also of one that executes another program meanwhile.
///
/// # Errors
/// As of [`Program::find`] and [`Program::control`], if it is not going to, or not in time.
pub fn find_loaded(pid: i32) -> Result<(Program, Box<Control>)> {
    let deadline = Instant::now() + kin::LOADING_TIMEOUT;
    loop {
        let found = Program::find(pid).and_then(|program| match program.control() {
            // What was there a moment ago is not there any more, or not yet.
            Err(_) if program.is_loading() => Err(Error::NotPreloaded { pid }),
            Err(Error::Io { .. }) => Err(Error::NotPreloaded { pid }),
            control => control.map(|control| (program, control)),
        });
        match found {
            Err(Error::NotPreloaded { .. }) if will_be_loaded(pid) && Instant::now() < deadline => {}
            found => return found,
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn will_be_loaded(pid: i32) -> bool {
    kin::loads_library(pid) && linkage(pid).is_ok_and(|linkage| linkage == Linkage::Dynamic)
}

/// How the executable of process `pid` is linked.
fn linkage(pid: i32) -> Result<Linkage> {
    Linkage::of(&PathBuf::from(format!("/proc/{pid}/exe")))
}

/// Waits until `deadline` for the constructor of libckpt.so to have run in process `pid`, as [`find_or_adopt`] finds it; gives the
/// control block, too. Where it has not by then, the process is adopted if it has a `parent` in the job.
///
/// # Errors
/// As of [`find_or_adopt`], when it is too late.
pub fn wait_until_ready(
    pid: i32,
    calls: &mut WaitingCalls,
    deadline: Instant,
    parent: Option<&Control>,
) -> Result<(Program, Box<Control>)> {
    loop {
        let is_late = Instant::now() >= deadline;
        let found = find_or_adopt_before(pid, calls, parent, is_late);
        match found.and_then(|program| program.control().map(|control| (program, control))) {
            Err(Error::NotPreloaded { .. } | Error::Environment { .. } | Error::Traced { .. } | Error::Io { .. })
                if !is_late =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            found => return found,
        }
    }
}

/// Refuses a program for another kind of processor, or of 32 bits: what it holds looks different.
fn refuse_foreign(pid: i32, linkage: Linkage) -> Result<()> {
    if linkage != Linkage::Foreign {
        return Ok(());
    }
    Err(Error::unsupported(
        format!("process {pid}"),
        "it is no 64-bit program for x86-64 (32 bits, or another processor)",
        "use a 64-bit build of it, or take the checkpoint when it has ended",
    ))
}

/// Refuses a program that got rights from its executable: a restart could not give them back, and the kernel lets nobody but
/// root look at it.
fn refuse_more_rights(pid: i32) -> Result<()> {
    if auxv::value(pid, libc::AT_SECURE)?.unwrap_or(0) == 0 {
        return Ok(());
    }
    Err(Error::unsupported(
        format!("process {pid}"),
        "it has more rights than its caller (set-uid, set-gid or file capabilities)",
        "run a copy without these rights, or run it as the user it changes to",
    ))
}
