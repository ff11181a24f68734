//! What the bytes of a region are read from.
//!
//! A region may be larger than whoever finds its difference wants to hold, or lie in another process. So it is read in
//! pieces, of which only those that may have changed are asked for; where it lies in memory anyway, nothing is copied.

use std::{io, ops::Range};

/// Bytes that hold still until a difference has been found and handed over.
pub trait Memory: Sync {
    /// How many there are.
    fn bytes(&self) -> u64;

    /// Appends the bytes of some ranges to `to`, in their order. Several threads may ask at once, for about a MiB each.
    ///
    /// # Errors
    /// When they cannot be read. The checkpoint is then not taken.
    fn read(&self, ranges: &[Range<u64>], to: &mut Vec<u8>) -> io::Result<()>;

    /// All of it, if that takes no reading.
    fn as_slice(&self) -> Option<&[u8]> {
        None
    }
}

impl Memory for &[u8] {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, ranges: &[Range<u64>], to: &mut Vec<u8>) -> io::Result<()> {
        ranges.iter().for_each(|range| to.extend_from_slice(&self[range.start as usize..range.end as usize]));
        Ok(())
    }

    fn as_slice(&self) -> Option<&[u8]> {
        Some(self)
    }
}

/// A region as it is now, and what its owner knows about it.
#[derive(Clone, Copy)]
pub struct Live<'a> {
    /// Stays with the region when it moves or changes its length.
    pub id: u64,
    /// Its bytes.
    pub memory: &'a dyn Memory,
    /// Where bytes may not be what they were at the engine's last checkpoint, in order and disjoint; none of the others
    /// is read. `None` when that is not known. What lies behind the region's end of then counts as changed by itself.
    pub changed: Option<&'a [Range<u64>]>,
}
