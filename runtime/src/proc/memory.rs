//! How much memory the host has left.

use std::fs;

use super::control_groups;
use crate::error::{Error, Result};

/// What `/proc/meminfo` says that new programs could have, in bytes.
///
/// # Errors
/// When it does not say it.
pub fn available_bytes() -> Result<u64> {
    const PATH: &str = "/proc/meminfo";
    let text = fs::read_to_string(PATH).map_err(|source| Error::io("read", PATH, source))?;
    of(&text).ok_or_else(|| Error::io("understand", PATH, std::io::Error::from(std::io::ErrorKind::InvalidData)))
}

/// The same for process `pid`, which may have less: what the control groups leave that it is in.
///
/// # Errors
/// As of [`available_bytes`].
pub fn available_bytes_to(pid: i32) -> Result<u64> {
    let groups = control_groups::memory_left(pid);
    Ok(groups.iter().map(|left| left.bytes).fold(available_bytes()?, u64::min))
}

fn of(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_found_among_the_rest() {
        assert_eq!(of("MemTotal:  9 kB\nMemFree:   1 kB\nMemAvailable:   5 kB\n"), Some(5 << 10));
        assert_eq!(of("MemTotal:  9 kB\n"), None);
        assert!(available_bytes().unwrap() > 1 << 20);
    }
}
