//! Managed memory of a program's, which its driver does not suspend: the keeper evacuates it to memory of the host, and brings it
//! back ([`ckpt_wire::device`]).
//!
//! All other threads of the process stand still meanwhile ([`crate::stillness`]): they use such memory without any call. One of them may hold a lock that
//! the driver would wait for, of the heap for example. Who holds which lock does not change while all stand still; so the keeper
//! takes each once before anything is moved. If that takes long, the threads go on for a moment, and are stopped elsewhere.

use std::thread;
use std::time::Duration;

use ckpt_wire::device::{COMMAND_BRING_BACK, COMMAND_EVACUATE, COMMAND_TRY, Command};

use crate::error::{Error, Result};
use crate::keeper::{Line, PATIENCE, command};
use crate::stillness::Stillness;

/// How often threads are stopped until none of them holds a lock.
const STOPS: u32 = 150;
/// How long it takes the driver to allocate and to free, at most, while nobody holds one.
const TRIED_WITHIN: Duration = Duration::from_millis(60);
/// Bytes of managed memory that are moved in a second, at least.
const BYTES_A_SECOND_MIN: u64 = 500 << 20;

/// How long that may take beside, for many allocations.
const MANY_WITHIN: Duration = Duration::from_secs(60);

/// Does something while all threads of process `pid` stand still but those of its keeper, whose line this is.
///
/// # Errors
/// When they cannot be stopped, or hold a lock however often they are; those of `act`.
pub fn while_still<T>(line: &Line<'_>, pid: i32, act: impl FnOnce(&Line<'_>) -> Result<T>) -> Result<T> {
    let mut stillness = Stillness::of(pid)?;
    for number in 0..STOPS {
        stillness.stop()?;
        line.send(command(COMMAND_TRY))?;
        if line.is_answered(TRIED_WITHIN)? {
            line.good("trying the CUDA driver", line.receive(PATIENCE)?)?;
            let outcome = act(line);
            if outcome.is_ok() {
                // Otherwise memory may be on its way: that is for the other one to see.
                stillness.go()?;
            }
            return outcome;
        }
        stillness.go()?;
        line.receive(PATIENCE)?;
        // Not in step with what threads do again and again.
        thread::sleep(Duration::from_micros(u64::from(number) * 613 % 7919));
    }
    Err(Error::environment(
        "stopping the program while the CUDA driver moves managed memory",
        format!("{STOPS} times a thread was stopped that holds a lock which the driver waits for"),
        "try again",
    ))
}

/// Evacuates all managed memory, of so many bytes, while other threads stand still.
///
/// # Errors
/// The driver's; then [`bring_back`] puts right what has been done.
pub fn evacuate(line: &Line<'_>, bytes: u64) -> Result<()> {
    line.send(command(COMMAND_EVACUATE))?;
    line.good("evacuating managed memory", line.receive(moved_within(bytes))?).map(drop)
}

/// Makes it managed again, of so many bytes; has the driver pin it where it is if other threads do not stand still. How many bytes
/// are memory of the host then, which the driver has pinned.
///
/// # Errors
/// The driver's: devices do not reach it.
pub fn bring_back(line: &Line<'_>, are_still: bool, bytes: u64) -> Result<u64> {
    line.send(Command { bytes: are_still.into(), ..command(COMMAND_BRING_BACK) })?;
    let answer = line.good("bringing managed memory back", line.receive(moved_within(bytes))?)?;
    Ok(answer.values[0])
}

/// The same, if there is any, while other threads of process `pid` stand still, or in its place if they cannot be stopped.
///
/// # Errors
/// As above.
pub fn bring_back_still(line: &Line<'_>, bytes: u64, pid: i32) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let pinned = while_still(line, pid, |line| bring_back(line, true, bytes)).or_else(|error| {
        log::warn!("managed memory of process {pid} stays where it is: {error}");
        bring_back(line, false, bytes)
    })?;
    if pinned > 0 {
        log::warn!(
            "managed memory of process {pid}, {} MiB, is pinned memory of the host now: its driver has not given the same addresses \
             again; devices reach it through the bus",
            pinned.div_ceil(1 << 20),
        );
    }
    Ok(())
}

fn moved_within(bytes: u64) -> Duration {
    MANY_WITHIN + Duration::from_secs(bytes / BYTES_A_SECOND_MIN)
}
