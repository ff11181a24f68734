//! Calls that wait for a relative time, and where they are told which.

use crate::ptrace::{Registers, SYS_IO_PGETEVENTS};

const NANOSECONDS: u64 = 1_000_000_000;
const NANOSECONDS_OF_MS: u64 = 1_000_000;
/// The operation in the second argument of `futex(2)`.
const FUTEX_COMMAND: u64 = 0x7f;

/// How a call is told how long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Milliseconds in the argument with this index.
    Milliseconds(usize),
    /// A `struct timespec` that the argument with this index leads to.
    Timespec(usize),
}

impl Timeout {
    /// That of a call, if it waits for a relative and limited time that the kernel does not write down at its end, as
    /// `select(2)` and `ppoll(2)` have it do.
    pub fn of(number: i64, arguments: [u64; 6]) -> Option<Timeout> {
        let timeout = match number {
            libc::SYS_poll => Timeout::Milliseconds(2),
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait => Timeout::Milliseconds(3),
            libc::SYS_nanosleep => Timeout::Timespec(0),
            libc::SYS_clock_nanosleep if is_time_of_day(arguments[0]) && arguments[1] == 0 => Timeout::Timespec(2),
            libc::SYS_futex if arguments[1] & FUTEX_COMMAND == libc::FUTEX_WAIT as u64 => Timeout::Timespec(3),
            libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => Timeout::Timespec(3),
            libc::SYS_rt_sigtimedwait => Timeout::Timespec(2),
            libc::SYS_io_getevents | SYS_IO_PGETEVENTS => Timeout::Timespec(4),
            _ => return None,
        };
        let is_limited = match timeout {
            Timeout::Milliseconds(index) => arguments[index] as i32 >= 0,
            Timeout::Timespec(index) => arguments[index] != 0,
        };
        is_limited.then_some(timeout)
    }

    /// How long the call is to wait, ns; `read` reads the memory of its process. `None` if that is no time.
    pub fn total_ns(self, arguments: [u64; 6], read: impl FnOnce(u64) -> Option<[u64; 2]>) -> Option<u64> {
        match self {
            Timeout::Milliseconds(index) => u64::from(arguments[index] as u32).checked_mul(NANOSECONDS_OF_MS),
            Timeout::Timespec(index) => {
                let [seconds, ns] = read(arguments[index])?;
                (ns < NANOSECONDS).then(|| seconds.checked_mul(NANOSECONDS)?.checked_add(ns)).flatten()
            }
        }
    }

    /// Tells the call in `registers` to wait for `left_ns`, or for the `struct timespec` at `address` that says so.
    pub fn set(self, registers: &mut Registers, left_ns: u64, address: u64) {
        match self {
            Timeout::Milliseconds(index) => {
                let ms = left_ns.div_ceil(NANOSECONDS_OF_MS).min(i32::MAX as u64);
                set_argument(registers, index, ms);
            }
            Timeout::Timespec(index) => set_argument(registers, index, address),
        }
    }
}

/// A time as seconds and nanoseconds.
pub fn timespec(ns: u64) -> [u64; 2] {
    [ns / NANOSECONDS, ns % NANOSECONDS]
}

/// The clocks that go on while a process sleeps; those of processors measure work, and nobody knows what was left.
fn is_time_of_day(clock: u64) -> bool {
    [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC, libc::CLOCK_BOOTTIME, libc::CLOCK_TAI].contains(&(clock as i32))
}

/// The arguments of the call in `registers`.
pub fn arguments(registers: &Registers) -> [u64; 6] {
    let r = &registers.0;
    [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]
}

fn set_argument(registers: &mut Registers, index: usize, value: u64) {
    let r = &mut registers.0;
    *[&mut r.rdi, &mut r.rsi, &mut r.rdx, &mut r.r10, &mut r.r8, &mut r.r9][index] = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_relative_and_limited_times_count() {
        let of = |number, arguments| Timeout::of(number, arguments);
        assert_eq!(of(libc::SYS_nanosleep, [8, 0, 0, 0, 0, 0]), Some(Timeout::Timespec(0)));
        assert_eq!(of(libc::SYS_epoll_wait, [3, 8, 1, 500, 0, 0]), Some(Timeout::Milliseconds(3)));
        assert_eq!(of(libc::SYS_epoll_wait, [3, 8, 1, u64::from(u32::MAX), 0, 0]), None, "-1, for ever");
        assert_eq!(of(libc::SYS_poll, [8, 1, -1_i64 as u64, 0, 0, 0]), None);
        let sleep = |clock: i32, flags| of(libc::SYS_clock_nanosleep, [clock as u64, flags, 8, 0, 0, 0]);
        assert_eq!(sleep(libc::CLOCK_MONOTONIC, 0), Some(Timeout::Timespec(2)));
        assert_eq!(sleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME as u64), None);
        assert_eq!(sleep(libc::CLOCK_PROCESS_CPUTIME_ID, 0), None);
        let futex = |operation: i32, timeout| of(libc::SYS_futex, [8, operation as u64, 0, timeout, 0, 0]);
        assert_eq!(futex(libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, 8), Some(Timeout::Timespec(3)));
        assert_eq!(futex(libc::FUTEX_WAIT, 0), None);
        assert_eq!(futex(libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG, 8), None, "until a moment");
        assert_eq!(of(libc::SYS_ppoll, [8, 1, 8, 0, 0, 0]), None, "the kernel writes what is left");
    }

    #[test]
    fn times_are_read_and_set_in_their_units() {
        let total = |timeout: Timeout, arguments, memory| timeout.total_ns(arguments, |_| memory);
        assert_eq!(total(Timeout::Milliseconds(3), [0, 0, 0, 70, 0, 0], None), Some(70_000_000));
        assert_eq!(total(Timeout::Timespec(0), [8, 0, 0, 0, 0, 0], Some([2, 5])), Some(2_000_000_005));
        assert_eq!(total(Timeout::Timespec(0), [8, 0, 0, 0, 0, 0], Some([2, NANOSECONDS])), None);
        assert_eq!(total(Timeout::Timespec(0), [8, 0, 0, 0, 0, 0], Some([u64::MAX, 0])), None);
        assert_eq!(total(Timeout::Timespec(0), [8, 0, 0, 0, 0, 0], None), None);
        let mut registers = Registers::from_words([0; Registers::WORDS]);
        Timeout::Milliseconds(3).set(&mut registers, 1_000_001, 9);
        Timeout::Timespec(2).set(&mut registers, 1_000_001, 9);
        assert_eq!(arguments(&registers), [0, 0, 9, 2, 0, 0], "never less than what is left");
    }
}
