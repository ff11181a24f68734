//! Time namespaces as /proc shows them, and start times that are the same seen from all of them.

use std::fs;
use std::io::ErrorKind;

use super::task;
use crate::error::{Error, Result};
use crate::image::ClockOffsets;

const NANOSECONDS: i64 = 1_000_000_000;
/// Of a clock tick, in which /proc gives start times: `USER_HZ` is 100 on x86-64.
pub const TICK_NS: i64 = NANOSECONDS / 100;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// How far the clocks of process `pid`'s children, and its own unless it has just made a namespace for them, are
/// ahead of the machine's. A kernel without time namespaces adds nothing.
pub fn offsets(pid: i32) -> Result<ClockOffsets> {
    let path = format!("/proc/{pid}/timens_offsets");
    match fs::read_to_string(&path) {
        Ok(text) => {
            parse(&text).ok_or_else(|| Error::io("understand", path, std::io::Error::from(ErrorKind::InvalidData)))
        }
        Err(source) if source.kind() == ErrorKind::NotFound => Ok(ClockOffsets::default()),
        Err(source) => Err(Error::io("read", path, source)),
    }
}

/// Lines of a clock's name, seconds and nanoseconds.
fn parse(text: &str) -> Option<ClockOffsets> {
    let of = |name: &str| {
        let mut words = text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace();
        let mut number = || words.next()?.parse::<i64>().ok();
        number()?.checked_mul(NANOSECONDS)?.checked_add(number()?)
    };
    Some(ClockOffsets { monotonic_ns: of("monotonic")?, boottime_ns: of("boottime")? })
}

/// What a process writes into `timens_offsets` to have them.
pub fn text(offsets: ClockOffsets) -> String {
    let line = |name: &str, ns: i64| format!("{name} {} {}\n", ns.div_euclid(NANOSECONDS), ns.rem_euclid(NANOSECONDS));
    line("monotonic", offsets.monotonic_ns) + &line("boottime", offsets.boottime_ns)
}

/// When process `pid` started, in clock ticks of the machine since its boot: seen from every time namespace the same,
/// as long as what that adds to `CLOCK_BOOTTIME` is whole ticks, which it is in those that restarts make.
pub fn start_time(pid: i32) -> Result<u64> {
    let shown = task::start_time(pid)?;
    let own = offsets(std::process::id() as i32)?;
    Ok(shown.wrapping_add_signed(-own.boottime_ns.div_euclid(TICK_NS)))
}

/// The id of this boot.
pub fn boot_id() -> Result<String> {
    let text = fs::read_to_string(BOOT_ID).map_err(|source| Error::io("read", BOOT_ID, source))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        for (monotonic_ns, boottime_ns) in [(0, 0), (1, -1), (-1_500_000_000, 86_400 * NANOSECONDS + 7)] {
            let offsets = ClockOffsets { monotonic_ns, boottime_ns };
            assert_eq!(parse(&text(offsets)), Some(offsets));
        }
        assert_eq!(text(ClockOffsets { monotonic_ns: -1, boottime_ns: 3 }), "monotonic -1 999999999\nboottime 0 3\n");
        assert_eq!(
            parse("monotonic           0         0\nboottime            0         0\n"),
            Some(ClockOffsets::default())
        );
        for text in
            ["", "monotonic 1 1\n", "monotonic 1\nboottime 1 1\n", "monotonic 9223372036854775807 0\nboottime 0 0"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_process_of_our_own_time_namespace_started_when_we_see_it() {
        let own = std::process::id() as i32;
        let added = offsets(own).unwrap().boottime_ns / TICK_NS;
        assert_eq!(start_time(own).unwrap() as i64 + added, task::start_time(own).unwrap() as i64);
        assert_eq!(boot_id().unwrap().len(), 36);
    }
}
