//! Stopping every thread of a program from outside.
//!
//! The list of threads is read again after each round until a round finds nobody new: threads may be born while
//! others are being stopped, but only running threads can give birth. Nothing else is read before that, because
//! mappings and descriptors of a program that is still running do not fit together.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::threads;
use crate::error::{Error, Result};
use crate::proc::task;
use crate::ptrace::{Options, Running, Stopped};

/// How long a program may take to stop: a thread in vfork waits for its child, one in an uninterruptible
/// call for its disk.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long another ckpt may hold the program: one that wanted to adopt it, and finds that this has been done.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(2);

/// Stops all threads of `pid`; the first one returned is the main thread. When this fails, all go on.
pub fn stop(pid: i32) -> Result<Vec<Stopped>> {
    let deadline = Instant::now() + OTHERS_TIMEOUT;
    loop {
        // Nothing is held while we wait: the other may be waiting for us.
        match stop_threads(pid) {
            Err(Error::Environment { .. }) if Instant::now() < deadline && is_held_by_one_of_us(pid) => {
                std::thread::sleep(Duration::from_millis(5));
            }
            outcome => return outcome,
        }
    }
}

/// Whether a thread of `pid` is traced by a process that executes what we do.
fn is_held_by_one_of_us(pid: i32) -> bool {
    let threads = task::threads(pid).unwrap_or_default();
    threads.into_iter().filter_map(|tid| tracer_of(pid, tid)).any(task::executes_what_we_do)
}

fn tracer_of(pid: i32, tid: i32) -> Option<i32> {
    let status = task::text(pid, &format!("task/{tid}/status")).ok()?;
    task::status_value(&status, "TracerPid")?.parse().ok().filter(|&tracer| tracer != 0)
}

fn stop_threads(pid: i32) -> Result<Vec<Stopped>> {
    let deadline = Instant::now() + STOP_TIMEOUT;
    let mut stopped: Vec<Stopped> = Vec::new();
    match stop_into(pid, deadline, &mut stopped) {
        Ok(()) => {}
        Err(error) => {
            stopped.into_iter().for_each(let_go);
            return Err(error);
        }
    }
    match stopped.iter().position(|thread| thread.tid() == pid) {
        Some(main) => stopped.swap(0, main),
        None => return Err(Error::ProgramGone { pid }),
    }
    stopped[1..].sort_by_key(Stopped::tid);
    Ok(stopped)
}

/// Adds all threads of `pid` to `stopped`. Those that have been seized when this fails are there, too, but for one that does not
/// stop; that one the kernel lets go when the calling thread ends.
fn stop_into(pid: i32, deadline: Instant, stopped: &mut Vec<Stopped>) -> Result<()> {
    loop {
        let mut seized = Vec::new();
        let mut refused = None;
        for tid in task::threads(pid)? {
            if stopped.iter().any(|thread| thread.tid() == tid) || is_kernels_worker(pid, tid) {
                continue;
            }
            match seize(pid, tid) {
                Ok(running) => seized.push(running),
                Err(Error::ThreadGone { .. }) => {}
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        if seized.is_empty() && refused.is_none() {
            return Ok(());
        }
        for running in seized {
            let tid = running.tid();
            match running.wait_for_trap(deadline) {
                Ok(thread) => stopped.push(thread),
                Err(Error::ThreadGone { .. }) => {}
                Err(Error::StopTimeout { .. }) => refused = refused.or_else(|| Some(did_not_stop(pid, tid))),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        if let Some(error) = refused {
            return Err(error);
        }
    }
}

/// Lets a thread go on as if it had not been stopped, but that a time-out begins anew where the stop has broken off its call.
/// One that has been led home goes on there.
pub fn let_go(thread: Stopped) {
    let repaired = || {
        let now = thread.registers()?;
        let is_due = |signals: Vec<_>| threads::mask_of(&signals) & !thread.signal_mask().unwrap_or(0) != 0;
        let signal_is_due = is_due(thread.queued_signals()?) || is_due(thread.queued_process_signals()?);
        if now.broken_by_stop() && !signal_is_due { thread.set_registers(&now.reissuing(true)) } else { Ok(()) }
    };
    if let Err(error) = repaired() {
        log::debug!("letting thread {} go: {error}", thread.tid());
    }
}

fn seize(pid: i32, tid: i32) -> Result<Running> {
    let is_refused = |error: &Error| matches!(error, Error::Ptrace { source: Errno::EPERM, .. });
    let running = match Running::seize(tid, Options::PROGRAM) {
        // Whoever held it may have let it go at this moment.
        Err(error) if is_refused(&error) && tracer_of(pid, tid).is_none() => Running::seize(tid, Options::PROGRAM),
        outcome => outcome,
    };
    let running = running.map_err(|error| if is_refused(&error) { not_permitted(pid, tid) } else { error })?;
    running.interrupt()?;
    Ok(running)
}

/// Finds out why a thread may not be traced.
fn not_permitted(pid: i32, tid: i32) -> Error {
    let Ok(status) = task::text(pid, &format!("task/{tid}/status")) else { return Error::ThreadGone { tid } };
    let value = |name| task::status_value(&status, name).unwrap_or("");
    if value("State").starts_with('Z') || value("State").starts_with('X') {
        if tid == pid {
            return ended(pid);
        }
        return Error::ThreadGone { tid };
    }
    match value("TracerPid").parse::<i32>() {
        Ok(tracer) if tracer != 0 => Error::environment(
            format!("stopping process {pid}"),
            format!("process {tracer} is tracing it (a debugger, strace, or another checkpoint)"),
            "end that first",
        ),
        _ => Error::environment(
            format!("stopping process {pid}"),
            "ptrace is not permitted (another user's process, one that changed its user, or Yama's ptrace_scope)",
            "use the program's own user; under Yama start the program with `ckpt run`, or send it the signal",
        ),
    }
}

/// Whether a thread is one of the kernel's that works for the program's io_uring: it executes nothing of the program, and a request
/// that it works for would be interrupted by a stop.
fn is_kernels_worker(pid: i32, tid: i32) -> bool {
    // Its name, which costs less than its flags; others may have one like it.
    if !task::bytes(pid, &format!("task/{tid}/comm")).is_ok_and(|name| name.starts_with(b"iou-")) {
        return false;
    }
    const PF_IO_WORKER: u64 = 0x10;
    const PF_USER_WORKER: u64 = 0x4000;
    let stat = task::stat_fields(pid, &format!("task/{tid}/stat"));
    stat.is_ok_and(|stat| task::stat_number(&stat, 9) & (PF_IO_WORKER | PF_USER_WORKER) != 0)
}

/// What it means that the main thread of `pid` has ended.
pub fn ended(pid: i32) -> Error {
    match task::threads(pid) {
        Ok(threads) if threads.len() > 1 => Error::unsupported(
            format!("process {pid} whose main thread has ended"),
            "the kernel does not let a thread group be rebuilt without its leader",
            "let the main thread wait for the others",
        ),
        _ => Error::ProgramGone { pid },
    }
}

/// Says what the thread that did not stop was doing.
fn did_not_stop(pid: i32, tid: i32) -> Error {
    let read = |file: &str| task::text(pid, &format!("task/{tid}/{file}")).unwrap_or_default();
    let state = task::status_value(&read("status"), "State").unwrap_or("unknown").to_owned();
    let why = match read("wchan").trim() {
        _ if is_vfork(&read("syscall")) => "in vfork, until its child executes a program or ends".to_owned(),
        "" | "0" => format!("state {state}"),
        place => format!("state {state}, waiting in the kernel's {place}"),
    };
    Error::StopTimeout { tid, timeout_ms: STOP_TIMEOUT.as_millis() as u64, why }
}

/// Whether a thread waits for a child that borrows its memory; `syscall` is the file of that name in /proc.
fn is_vfork(syscall: &str) -> bool {
    let mut words = syscall.split_whitespace();
    let number = words.next().and_then(|number| number.parse().ok());
    let flags = words.next().and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    match number {
        // The flags of clone3 are in memory; it waits for nothing else.
        Some(libc::SYS_vfork | libc::SYS_clone3) => true,
        Some(libc::SYS_clone) => flags.is_some_and(|flags| flags & libc::CLONE_VFORK as u64 != 0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vfork_is_known_in_all_its_forms() {
        for waits in ["58 0x1 0x2\n", "435 0x7ffc0 0x58", "56 0x4111 0x7f00"] {
            assert!(is_vfork(waits), "{waits}");
        }
        for other in ["56 0x11 0x7f00", "0 0x4111 0x7f00", "running", ""] {
            assert!(!is_vfork(other), "{other}");
        }
    }
}
