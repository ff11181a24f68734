//! Makes the timers of `timer_create` again, with their ids, and sets them going.
//!
//! From Linux 6.15 on a process can ask for an id. Before, ids are given out in order, from 0 on in a new process, so
//! the timers between are made and deleted.
//!
//! A timer has one signal, however often it expires before that is taken, and then tells how often it has. So the signal of a timer
//! that is still to be taken is not queued as other signals are: the timer is set to the moment of its last expiry,
//! upon which it queues the signal itself and counts on. How often it had expired before the checkpoint, the kernel tells nobody.

use nix::errno::Errno;
use serde_bytes::ByteBuf;

use super::process::{Call, HalfBuilt};
use crate::error::{Error, Result};
use crate::image::{PosixTimer, ProcessImage};
use crate::ptrace::read_memory;

const CLOCK_GETTIME: Call = Call("clock_gettime", libc::SYS_clock_gettime);
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
    let queued = || image.queued_signals.iter().chain(image.threads.iter().flat_map(|thread| &thread.queued_signals));
    for timer in &image.posix_timers {
        if queued().any(|siginfo| has_sent(timer, siginfo)) {
            let expired_ns = last_expiry_ns(timer, now_ns(process, timer)?);
            set(process, timer, libc::TIMER_ABSTIME, expired_ns)?;
        } else if timer.left_ns != 0 {
            set(process, timer, 0, timer.left_ns)?;
        }
    }
    Ok(())
}

/// Those of the `queued` signals that none of `timers` will queue itself.
pub fn without_their_signals<'a>(timers: &[PosixTimer], queued: &'a [ByteBuf]) -> impl Iterator<Item = &'a ByteBuf> {
    queued.iter().filter(|siginfo| !timers.iter().any(|timer| has_sent(timer, siginfo)))
}

/// Whether a queued signal says that `timer` has expired: for good, or last time. What is left of a timer that has been set anew
/// since then tells that it has not.
fn has_sent(timer: &PosixTimer, siginfo: &[u8]) -> bool {
    let Some(&siginfo) = siginfo.first_chunk::<32>() else { return false };
    let word = |at: usize| i32::from_ne_bytes([siginfo[at], siginfo[at + 1], siginfo[at + 2], siginfo[at + 3]]);
    // si_signo, si_code, si_timerid, si_value.
    let is_its_own = (word(0), word(8), word(16)) == (timer.signal, libc::SI_TIMER, timer.id)
        && siginfo[24..] == timer.value.to_ne_bytes();
    is_its_own && timer.left_ns <= timer.interval_ns
}

/// When a timer expired last, ns of its clock, which shows `now_ns`. A clock that begins anew has not seen it.
fn last_expiry_ns(timer: &PosixTimer, now_ns: u64) -> u64 {
    // 0 would stop it.
    now_ns.saturating_add(timer.left_ns).saturating_sub(timer.interval_ns).clamp(1, now_ns.max(1))
}

/// What the clock of `timer` shows to the process.
fn now_ns(process: &mut HalfBuilt, timer: &PosixTimer) -> Result<u64> {
    let address = process.put(&[0; 16])?;
    let purpose = format_args!("clock {} of POSIX timer {}", timer.clock, timer.id);
    process.call(0, CLOCK_GETTIME, &[timer.clock as u64, address], purpose)?;
    let mut bytes = [0; 16];
    read_memory(process.pid(), address, &mut bytes)?;
    let word = |index: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[index * 8 + byte]));
    Ok(word(0).saturating_mul(NANOSECONDS).saturating_add(word(1)))
}

fn set(process: &mut HalfBuilt, timer: &PosixTimer, flags: i32, value_ns: u64) -> Result<()> {
    let address = process.put(&itimerspec(timer.interval_ns, value_ns))?;
    let purpose = format_args!("POSIX timer {}", timer.id);
    process.call(0, TIMER_SETTIME, &[timer.id as u64, flags as u64, address, 0], purpose).map(drop)
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

    const TIMER: PosixTimer = PosixTimer {
        id: 3,
        clock: libc::CLOCK_MONOTONIC,
        notify: libc::SIGEV_THREAD_ID,
        tid: 77,
        signal: 32,
        value: 5,
        interval_ns: 0,
        left_ns: 2_500_000_000,
    };

    fn siginfo(signal: i32, code: i32, id: i32, value: u64) -> ByteBuf {
        let words = [signal, 0, code, 0, id, 0].map(i32::to_ne_bytes);
        let mut bytes = [words.as_flattened(), &value.to_ne_bytes()].concat();
        bytes.resize(128, 0);
        ByteBuf::from(bytes)
    }

    #[test]
    fn only_the_signal_of_its_last_expiry_is_left_to_a_timer() {
        let periodic = PosixTimer { interval_ns: 10, left_ns: 4, ..TIMER };
        let once = PosixTimer { interval_ns: 0, left_ns: 0, ..TIMER };
        let own = siginfo(32, libc::SI_TIMER, 3, 5);
        assert!(has_sent(&periodic, &own) && has_sent(&once, &own));
        assert!(!has_sent(&TIMER, &own), "it has been set anew");
        assert!(!has_sent(&PosixTimer { left_ns: 11, ..periodic }, &own), "it has been set anew");
        for other in [(31, libc::SI_TIMER, 3, 5), (32, libc::SI_QUEUE, 3, 5), (32, libc::SI_TIMER, 4, 5)] {
            assert!(!has_sent(&once, &siginfo(other.0, other.1, other.2, other.3)), "{other:?}");
        }
        assert!(!has_sent(&once, &siginfo(32, libc::SI_TIMER, 3, 6)));
        let queued = [siginfo(32, libc::SI_USER, 3, 5), own];
        assert_eq!(without_their_signals(&[periodic], &queued).collect::<Vec<_>>(), [&queued[0]]);
    }

    #[test]
    fn a_timer_whose_signal_waits_expired_a_period_before_its_next_expiry() {
        let periodic = PosixTimer { interval_ns: 10, left_ns: 4, ..TIMER };
        assert_eq!(last_expiry_ns(&periodic, 100), 94);
        assert_eq!(last_expiry_ns(&periodic, 3), 1, "the clock has begun anew");
        assert_eq!(last_expiry_ns(&PosixTimer { left_ns: 0, ..TIMER }, 100), 100);
    }

    #[test]
    fn a_timer_is_as_the_kernel_takes_it() {
        let timer = TIMER;
        let word = |bytes: &[u8], at: usize| i32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let event = sigevent_and_id(&timer);
        assert_eq!([0, 8, 12, 16, 64].map(|at| word(&event, at)), [5, 32, 4, 77, 3]);
        let settings = itimerspec(1, 2_500_000_000);
        assert_eq!([0, 8, 16, 24].map(|at| word(&settings, at)), [0, 1, 2, 500_000_000]);
    }
}
