//! Capturing what the program's clocks show.

use std::time::{SystemTime, UNIX_EPOCH};

use super::guest::Guest;
use crate::error::Result;
use crate::image::Clocks;
use crate::proc::clocks;

const NANOSECONDS: u64 = 1_000_000_000;

/// The clocks of `pid`. Its time namespace may be another one than ours, so it is asked itself.
pub fn capture(pid: i32, guest: &mut Guest<'_>) -> Result<Clocks> {
    let mut read = |clock: i32| -> Result<u64> {
        let bytes: [u8; 16] =
            guest.call_into("clock_gettime", "reading a clock", libc::SYS_clock_gettime, |scratch| {
                [clock as u64, scratch, 0, 0, 0, 0]
            })?;
        let word = |index: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[index * 8 + byte]));
        Ok(word(0).saturating_mul(NANOSECONDS).saturating_add(word(1)))
    };
    Ok(Clocks {
        monotonic_ns: read(libc::CLOCK_MONOTONIC)?,
        boottime_ns: read(libc::CLOCK_BOOTTIME)?,
        realtime_ns: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64,
        ahead: clocks::offsets(pid)?,
        boot_id: clocks::boot_id().unwrap_or_default(),
    })
}
