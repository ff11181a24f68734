//! Capturing timers that are descriptors (`timerfd_create`).

use std::os::fd::{AsRawFd, OwnedFd};

use crate::error::{Error, Result};
use crate::image::FileKind;
use crate::proc::fdinfo::{self, FdInfo};

const NANOSECONDS: u64 = 1_000_000_000;
/// How often a timer is looked at that keeps expiring meanwhile.
const LOOKS_MAX: u32 = 8;

/// The timer behind descriptor `info` of a process, which has been fetched.
pub fn capture(info: &FdInfo, timer: &OwnedFd) -> Result<FileKind> {
    let mut looks = 0;
    loop {
        ask(timer, info)?;
        let own = fdinfo::descriptor(std::process::id() as i32, timer.as_raw_fd())?;
        let name = || format!("timer {}", info.number);
        let kind = read(&own).ok_or_else(|| Error::io("understand", name(), std::io::ErrorKind::InvalidData))?;
        looks += 1;
        if looks == LOOKS_MAX || !stands_still(&kind) {
            return Ok(kind);
        }
    }
}

/// Whether a periodic timer has expired and not gone on: what is left of its period is not known. One that is set to nothing has
/// no expiry that was not read.
fn stands_still(kind: &FileKind) -> bool {
    matches!(*kind, FileKind::TimerFd { left_ns: 0, interval_ns: 1.., ticks: 1.., .. })
}

/// A periodic timer that has expired stands still until somebody asks for it, and does not say when it has expired. Asked, it
/// counts what it has missed and goes on, as it would for the program.
fn ask(timer: &OwnedFd, info: &FdInfo) -> Result<()> {
    // SAFETY: itimerspec is four numbers, for which zero is a value.
    let mut now: libc::itimerspec = unsafe { std::mem::zeroed() };
    // SAFETY: timerfd_gettime writes one itimerspec to `now`.
    match unsafe { libc::timerfd_gettime(timer.as_raw_fd(), &mut now) } {
        0 => Ok(()),
        _ => Err(Error::io("ask", info.shown(), std::io::Error::last_os_error())),
    }
}

fn read(info: &FdInfo) -> Option<FileKind> {
    Some(FileKind::TimerFd {
        clock: info.field("clockid")?.parse().ok()?,
        settings: i32::from_str_radix(info.field("settime flags")?, 8).ok()?,
        left_ns: nanoseconds(info.field("it_value")?)?,
        interval_ns: nanoseconds(info.field("it_interval")?)?,
        ticks: info.field("ticks")?.parse().ok()?,
    })
}

/// Reads `(5, 250000000)`: seconds and nanoseconds.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, rest) = text.strip_prefix('(')?.strip_suffix(')')?.split_once(", ")?;
    seconds.parse::<u64>().ok()?.checked_mul(NANOSECONDS)?.checked_add(rest.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, FromRawFd};

    use super::*;

    /// A timer of this process that is set to `first` and `interval`, in ns.
    fn timer(first: i64, interval: i64) -> OwnedFd {
        // SAFETY: takes numbers; the descriptor is nobody else's.
        let timer = unsafe { OwnedFd::from_raw_fd(libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC)) };
        let time = |ns: i64| libc::timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 };
        let setting = libc::itimerspec { it_interval: time(interval), it_value: time(first) };
        // SAFETY: timerfd_settime reads `setting`.
        assert_eq!(unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &setting, std::ptr::null_mut()) }, 0);
        timer
    }

    fn captured(timer: &OwnedFd) -> FileKind {
        let own = std::process::id() as i32;
        let info = fdinfo::descriptor(own, timer.as_raw_fd()).unwrap();
        capture(&info, timer).unwrap()
    }

    fn wait_for(timer: &OwnedFd) {
        let mut polled = [nix::poll::PollFd::new(timer.as_fd(), nix::poll::PollFlags::POLLIN)];
        assert_eq!(nix::poll::poll(&mut polled, 10_000_u16), Ok(1));
    }

    #[test]
    fn a_timer_that_runs_says_what_is_left() {
        let FileKind::TimerFd { clock, settings: 0, left_ns, interval_ns: 7, ticks: 0 } =
            captured(&timer(1_000_000_000_000, 7))
        else {
            panic!("another kind or other numbers");
        };
        assert_eq!(clock, libc::CLOCK_MONOTONIC);
        assert!((900_000_000_000..=1_000_000_000_000).contains(&left_ns), "{left_ns}");
    }

    #[test]
    fn a_periodic_timer_that_has_expired_and_was_not_read_goes_on() {
        let timer = timer(1, 1_000_000_000_000);
        wait_for(&timer);
        let FileKind::TimerFd { left_ns, ticks: 1, .. } = captured(&timer) else { panic!("it has expired once") };
        assert!((900_000_000_000..=1_000_000_000_000).contains(&left_ns), "{left_ns}");
    }

    #[test]
    fn only_a_periodic_timer_with_expiries_that_were_not_read_stands_still() {
        let timer = |left_ns, interval_ns, ticks| {
            stands_still(&FileKind::TimerFd { clock: 1, settings: 0, left_ns, interval_ns, ticks })
        };
        assert!(timer(0, 5, 1));
        assert!(!timer(3, 5, 1) && !timer(0, 0, 1) && !timer(0, 5, 0));
    }

    #[test]
    fn one_that_has_expired_for_good_has_its_expiry_only() {
        let timer = timer(1, 0);
        wait_for(&timer);
        assert!(matches!(captured(&timer), FileKind::TimerFd { left_ns: 0, interval_ns: 0, ticks: 1, .. }));
    }

    #[test]
    fn times_are_seconds_and_nanoseconds() {
        assert_eq!(nanoseconds("(5, 250000000)"), Some(5_250_000_000));
        for text in ["", "(5)", "5, 2", "(-1, 0)", "(99999999999999999, 0)"] {
            assert_eq!(nanoseconds(text), None, "{text}");
        }
    }
}
