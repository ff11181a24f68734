//! What every engine refuses.

use std::{collections::HashSet, ops::Range};

use super::{Error, RegionShape, Result, forest::Forest};

/// Lengths of chunks, in steps of 4.
pub(super) const CHUNK_BYTES: Range<u32> = 32..(64 << 10) + 1;

pub(crate) fn check_chunk_bytes(chunk_bytes: u32) -> Result<()> {
    match CHUNK_BYTES.contains(&chunk_bytes) && chunk_bytes.is_multiple_of(4) {
        true => Ok(()),
        false => Err(Error::ChunkBytes { chunk_bytes }),
    }
}

/// The trees of a checkpoint after `last`, if it can be taken.
///
/// # Errors
/// When its number is not greater, when two regions have one id, and when there are too many chunks.
pub(crate) fn accepted(
    chunk_bytes: u32,
    last: Option<u32>,
    checkpoint: u32,
    regions: impl Iterator<Item = RegionShape>,
) -> Result<Forest> {
    if let Some(last) = last.filter(|last| checkpoint <= *last) {
        return Err(Error::OutOfOrder { checkpoint, last });
    }
    let (regions, mut ids): (Vec<_>, _) = (regions.collect(), HashSet::new());
    match regions.iter().find(|region| !ids.insert(region.id)) {
        Some(twice) => Err(Error::TwiceThere { region: twice.id }),
        None => Forest::new(chunk_bytes, regions),
    }
}
