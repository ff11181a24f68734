//! `/proc/PID/auxv`: what the kernel told the program when it was executed.

use super::task;
use crate::error::Result;

/// The value of the entry `kind` (`AT_*`), if process `pid` has one.
pub fn value(pid: i32, kind: u64) -> Result<Option<u64>> {
    let bytes = task::bytes(pid, "auxv")?;
    let mut words =
        bytes.chunks_exact(8).map(|word| word.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)));
    Ok(std::iter::from_fn(|| Some((words.next()?, words.next()?))).find(|entry| entry.0 == kind).map(|entry| entry.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_page_size_is_in_it() {
        let pid = std::process::id() as i32;
        assert_eq!(value(pid, libc::AT_PAGESZ).unwrap(), Some(4096));
        assert_eq!(value(pid, libc::AT_SECURE).unwrap(), Some(0));
        assert_eq!(value(pid, 12345).unwrap(), None);
    }
}
