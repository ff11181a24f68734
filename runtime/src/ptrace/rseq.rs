//! Restartable sequences (`rseq(2)`): where a thread goes on that is stopped within one.
//!
//! The kernel leads a thread to the sequence's abort handler when it comes back from anywhere else. But a thread that makes a call
//! for us comes back outside of its sequence, upon which the kernel forgets that one was under way. So it is led there
//! by hand, as one that is rebuilt.

use crate::error::Result;

/// Offset of the address of the active sequence in `struct rseq`.
const ACTIVE_OFFSET: u64 = 8;

/// Where a thread at `rip`, whose `struct rseq` is at `rseq`, goes on if a sequence is under way: at its abort handler.
///
/// # Errors
/// What `read` gives, which reads the memory of its process.
pub fn abort_handler(rseq: u64, rip: u64, read: impl Fn(u64, &mut [u8]) -> Result<()>) -> Result<Option<u64>> {
    let mut pointer = [0; 8];
    read(rseq.wrapping_add(ACTIVE_OFFSET), &mut pointer)?;
    let descriptor = u64::from_ne_bytes(pointer);
    if descriptor == 0 {
        return Ok(None);
    }
    let mut section = [0; 32];
    read(descriptor, &mut section)?;
    let word = |at: usize| section[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    // struct rseq_cs: version and flags, then these three.
    Ok(abort_of(word(8), word(16), word(24), rip))
}

fn abort_of(start: u64, bytes: u64, abort: u64, rip: u64) -> Option<u64> {
    (rip.wrapping_sub(start) < bytes).then_some(abort)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_inside_a_restartable_sequence_goes_to_its_abort_handler() {
        assert_eq!(abort_of(0x1000, 0x10, 0x2000, 0x1000), Some(0x2000));
        assert_eq!(abort_of(0x1000, 0x10, 0x2000, 0x100f), Some(0x2000));
        assert_eq!(abort_of(0x1000, 0x10, 0x2000, 0x1010), None);
        assert_eq!(abort_of(0x1000, 0x10, 0x2000, 0xfff), None);
    }
}
