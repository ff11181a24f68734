//! Capturing the timers of `timer_create`: the kernel lists them, and tells the program alone how long each has to run.

use super::guest::Guest;
use crate::error::{Error, Result};
use crate::image::PosixTimer;
use crate::proc::task;

const NANOSECONDS: u64 = 1_000_000_000;

/// The timers of `pid`; refuses those over the processor time of a thread or of another process.
pub fn capture(pid: i32, guest: &mut Guest<'_>) -> Result<Vec<PosixTimer>> {
    // Without CONFIG_POSIX_TIMERS or CONFIG_CHECKPOINT_RESTORE there is no such file.
    let mut timers = listed(&task::text(pid, "timers").unwrap_or_default()).ok_or_else(|| {
        let what = format!("process {pid}: a POSIX timer (timer_create)");
        Error::unsupported(what, "this kernel describes it in another way", "delete the timer before the checkpoint")
    })?;
    for timer in &mut timers {
        if !means_the_same_after_a_restart(timer.clock, pid) {
            return Err(Error::unsupported(
                format!("process {pid}: POSIX timer {} (timer_create) on clock {}", timer.id, timer.clock),
                "the processor time of one thread, or of another process, begins anew after a restart",
                "delete the timer before the checkpoint, or use CLOCK_PROCESS_CPUTIME_ID",
            ));
        }
        let id = timer.id as u64;
        let purpose = "reading a POSIX timer";
        let bytes: [u8; 32] =
            guest.call_into("timer_gettime", purpose, libc::SYS_timer_gettime, |scratch| [id, scratch, 0, 0, 0, 0])?;
        let word = |index: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[index * 8 + byte]));
        timer.interval_ns = word(0).saturating_mul(NANOSECONDS).saturating_add(word(1));
        timer.left_ns = word(2).saturating_mul(NANOSECONDS).saturating_add(word(3));
    }
    timers.sort_by_key(|timer| timer.id);
    Ok(timers)
}

/// Whether a clock is the system's, or the processor time of process `pid` as a whole. Clocks of processor time are a
/// process or thread, complemented, above three bits: the highest of these says that it is a thread.
fn means_the_same_after_a_restart(clock: i32, pid: i32) -> bool {
    const OF_A_THREAD: i32 = 4;
    if clock >= 0 {
        return clock != libc::CLOCK_THREAD_CPUTIME_ID;
    }
    let owner = !(clock >> 3);
    clock & OF_A_THREAD == 0 && (owner == 0 || owner == pid)
}

/// Parses a list of
///
/// ```text
/// ID: 1
/// signal: 60/00007fff86e452a8
/// notify: signal/pid.2634
/// ClockID: 0
/// ```
fn listed(text: &str) -> Option<Vec<PosixTimer>> {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &&str| line.starts_with("ID:");
    let first = lines.iter().position(begins).unwrap_or(lines.len());
    lines[first..].chunk_by(|_, next| !begins(next)).map(listed_timer).collect()
}

fn listed_timer(block: &[&str]) -> Option<PosixTimer> {
    let value = |name: &str| block.iter().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let (signal, payload) = value("signal:")?.split_once('/')?;
    let (event, whom) = value("notify:")?.split_once('/')?;
    let (kind, number) = whom.split_once('.')?;
    let event = match event {
        "signal" => libc::SIGEV_SIGNAL,
        "none" => libc::SIGEV_NONE,
        "thread" => libc::SIGEV_THREAD,
        _ => return None,
    };
    let of_thread = kind == "tid";
    Some(PosixTimer {
        id: value("ID:")?.parse().ok()?,
        clock: value("ClockID:")?.parse().ok()?,
        notify: if of_thread { event | libc::SIGEV_THREAD_ID } else { event },
        tid: if of_thread { number.parse().ok()? } else { 0 },
        signal: signal.parse().ok()?,
        value: u64::from_str_radix(payload, 16).ok()?,
        interval_ns: 0,
        left_ns: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_of_threads_and_of_other_processes_mean_something_else_later() {
        const PROCESS_ITSELF: i32 = -6;
        const THREAD_ITSELF: i32 = -2;
        let of = |process: i32| !process << 3 | 2;
        for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_PROCESS_CPUTIME_ID, PROCESS_ITSELF, of(77)] {
            assert!(means_the_same_after_a_restart(clock, 77), "{clock}");
        }
        for clock in [libc::CLOCK_THREAD_CPUTIME_ID, THREAD_ITSELF, of(78)] {
            assert!(!means_the_same_after_a_restart(clock, 77), "{clock}");
        }
    }

    #[test]
    fn timers_are_read_as_the_kernel_lists_them() {
        let text = "ID: 7\nsignal: 32/000055f08bd22b60\nnotify: signal/tid.205251\nClockID: 1\n\
                    ID: 0\nsignal: 0/0000000000000000\nnotify: none/pid.12\nClockID: 0\n";
        let timers = listed(text).unwrap();
        let told = PosixTimer {
            id: 7,
            clock: libc::CLOCK_MONOTONIC,
            notify: libc::SIGEV_THREAD_ID,
            tid: 205_251,
            signal: 32,
            value: 0x55f0_8bd2_2b60,
            interval_ns: 0,
            left_ns: 0,
        };
        let (notify, clock) = (libc::SIGEV_NONE, libc::CLOCK_REALTIME);
        let silent = PosixTimer { id: 0, clock, notify, tid: 0, signal: 0, value: 0, ..told };
        assert_eq!(timers, [told, silent]);
        assert_eq!(listed(""), Some(Vec::new()));
        assert_eq!(listed("ID: 0\nsignal: 0/0\nnotify: telepathy/pid.12\nClockID: 0\n"), None);
    }
}
