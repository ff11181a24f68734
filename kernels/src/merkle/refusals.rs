//! What every engine refuses.

use std::{collections::HashSet, ops::Range};

use super::{Error, RegionShape, Result};

/// Lengths of chunks, in steps of 4.
pub(super) const CHUNK_BYTES: Range<u32> = 32..(64 << 10) + 1;

pub(crate) fn check_chunk_bytes(chunk_bytes: u32) -> Result<()> {
    match CHUNK_BYTES.contains(&chunk_bytes) && chunk_bytes.is_multiple_of(4) {
        true => Ok(()),
        false => Err(Error::ChunkBytes { chunk_bytes }),
    }
}

/// Numbers of checkpoints increase.
pub(crate) fn check_order(last: Option<u32>, checkpoint: u32) -> Result<()> {
    match last.filter(|last| checkpoint <= *last) {
        Some(last) => Err(Error::OutOfOrder { checkpoint, last }),
        None => Ok(()),
    }
}

/// Each region is there once.
pub(crate) fn check_ids(regions: &[RegionShape]) -> Result<()> {
    let mut ids = HashSet::new();
    match regions.iter().find(|region| !ids.insert(region.id)) {
        Some(twice) => Err(Error::TwiceThere { region: twice.id }),
        None => Ok(()),
    }
}
