//! Makes the timers of `timer_create` again, with their ids, and sets them going.
//!
//! From Linux 6.15 on a process can ask for an id. Before, ids are given out in order, from 0 on in a new process, so
//! the timers between are made and deleted.

use nix::errno::Errno;

use super::process::{Call, HalfBuilt};
use crate::error::{Error, Result};
use crate::image::{PosixTimer, ProcessImage};
use crate::ptrace::read_memory;

const PRCTL: Call = Call("prctl", libc::SYS_prctl);
const TIMER_CREATE: Call = Call("timer_create", libc::SYS_timer_create);
const TIMER_DELETE: Call = Call("timer_delete", libc::SYS_timer_delete);
const TIMER_SETTIME: Call = Call("timer_settime", libc::SYS_timer_settime);
/// `PR_TIMER_CREATE_RESTORE_IDS`: `timer_create` takes the id from where it would put it.
const PR_TIMER_CREATE_RESTORE_IDS: u64 = 77;
/// Bytes of `struct sigevent`, behind which the id lies.
const SIGEVENT_BYTES: usize = 64;
/// Timers that are made and deleted for one that is wanted: a second or so.
const SKIPPED_MAX: i32 = 10_000;
const NANOSECONDS: u64 = 1_000_000_000;

/// Makes all timers, then starts those that ran. Needs all threads and the scratch area.
pub fn restore(process: &mut HalfBuilt, image: &ProcessImage) -> Result<()> {
    if image.posix_timers.is_empty() {
        return Ok(());
    }
    let can_ask = process.try_call(0, PRCTL, &[PR_TIMER_CREATE_RESTORE_IDS, 1, 0, 0, 0])?.is_ok();
    for timer in &image.posix_timers {
        if can_ask {
            make(process, timer)?;
        } else {
            make_in_order(process, timer)?;
        }
    }
    if can_ask {
        process.call(0, PRCTL, &[PR_TIMER_CREATE_RESTORE_IDS, 0, 0, 0, 0], format_args!("ids of new timers"))?;
    }
    for timer in image.posix_timers.iter().filter(|timer| timer.left_ns != 0) {
        let address = process.put(&itimerspec(timer.interval_ns, timer.left_ns))?;
        let purpose = format_args!("POSIX timer {}", timer.id);
        process.call(0, TIMER_SETTIME, &[timer.id as u64, 0, address, 0], purpose)?;
    }
    Ok(())
}

/// Makes a timer; gives its id, which is the wanted one where the kernel can be asked.
fn make(process: &mut HalfBuilt, timer: &PosixTimer) -> Result<i32> {
    let address = process.put(&sigevent_and_id(timer))?;
    let id_at = address + SIGEVENT_BYTES as u64;
    let purpose = format_args!("POSIX timer {}", timer.id);
    process.call(0, TIMER_CREATE, &[timer.clock as u64, address, id_at], purpose)?;
    let mut id = [0; 4];
    read_memory(process.pid(), id_at, &mut id)?;
    Ok(i32::from_ne_bytes(id))
}

fn make_in_order(process: &mut HalfBuilt, timer: &PosixTimer) -> Result<()> {
    for _ in 0..=SKIPPED_MAX {
        let id = make(process, timer)?;
        if id == timer.id {
            return Ok(());
        }
        process.call(0, TIMER_DELETE, &[id as u64], format_args!("POSIX timer {id}, which is not wanted"))?;
        if id > timer.id {
            return Err(process.refused(TIMER_CREATE, format_args!("id {}", timer.id), Errno::EBUSY));
        }
    }
    Err(Error::environment(
        format!("give POSIX timer {} its id", timer.id),
        "this kernel cannot be asked for one, and so many would have to be made first",
        "restart on Linux 6.15 or newer",
    ))
}

/// `struct sigevent`, and the id that is wanted.
fn sigevent_and_id(timer: &PosixTimer) -> Vec<u8> {
    let mut bytes = vec![0; SIGEVENT_BYTES + 4];
    bytes[..8].copy_from_slice(&timer.value.to_ne_bytes());
    bytes[8..12].copy_from_slice(&timer.signal.to_ne_bytes());
    bytes[12..16].copy_from_slice(&timer.notify.to_ne_bytes());
    bytes[16..20].copy_from_slice(&timer.tid.to_ne_bytes());
    bytes[SIGEVENT_BYTES..].copy_from_slice(&timer.id.to_ne_bytes());
    bytes
}

/// `struct itimerspec`.
pub fn itimerspec(interval_ns: u64, value_ns: u64) -> Vec<u8> {
    let words = [interval_ns, value_ns].map(|ns| [ns / NANOSECONDS, ns % NANOSECONDS]);
    words.iter().flatten().flat_map(|word| word.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_as_the_kernel_takes_it() {
        let timer = PosixTimer {
            id: 3,
            clock: libc::CLOCK_MONOTONIC,
            notify: libc::SIGEV_THREAD_ID,
            tid: 77,
            signal: 32,
            value: 5,
            interval_ns: 0,
            left_ns: 2_500_000_000,
        };
        let word = |bytes: &[u8], at: usize| i32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let event = sigevent_and_id(&timer);
        assert_eq!([0, 8, 12, 16, 64].map(|at| word(&event, at)), [5, 32, 4, 77, 3]);
        let settings = itimerspec(1, 2_500_000_000);
        assert_eq!([0, 8, 16, 24].map(|at| word(&settings, at)), [0, 1, 2, 500_000_000]);
    }
}
