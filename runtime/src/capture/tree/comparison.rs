//! Comparing memory with what its differences would restore, for those who fear that two chunks have one digest.
//!
//! The newest difference is not in the store yet. Its data are bytes of the memory itself, which holds still: what is
//! stored in place is equal without a look, and what refers to another place is compared with that place.

use std::ops::Range;

use ckpt_kernels::merkle::Own;
use ckpt_store::Store;

use super::block::BlockMemory;
use crate::differences::{Differences, WINDOW_BYTES};
use crate::error::{Error, Result};

/// The address of the first byte that is not as the newest difference, which has that number, would restore it.
pub fn mismatch(
    differences: &Differences,
    number: u32,
    memories: &[BlockMemory<'_>],
    store: &Store,
) -> Result<Option<u64>> {
    let own: Vec<Own> = differences.places().stored_with(number)?.collect();
    let unsealed = |bytes: Range<u64>, to: &mut [u8]| read_own(&own, memories, bytes, to);
    let (mut live, mut restored) = (vec![0; WINDOW_BYTES], vec![0; WINDOW_BYTES]);
    for memory in memories {
        let addresses = &memory.block.addresses;
        for start in addresses.clone().step_by(WINDOW_BYTES) {
            let bytes = (addresses.end - start).min(WINDOW_BYTES as u64);
            let (live, restored) = (&mut live[..bytes as usize], &mut restored[..bytes as usize]);
            let offset = start - addresses.start;
            live.fill(0);
            read(memory, offset..offset + bytes, live)?;
            differences.read(store, addresses.start, offset, restored, Some(&unsealed))?;
            if live != restored {
                let at = live.iter().zip(&*restored).position(|(live, restored)| live != restored);
                return Ok(at.map(|at| start + at as u64));
            }
        }
    }
    Ok(None)
}

/// Bytes of the newest difference's data, from where they are in memory.
fn read_own(own: &[Own], memories: &[BlockMemory<'_>], bytes: Range<u64>, to: &mut [u8]) -> Result<()> {
    let missing = || Error::io("find bytes of", "the difference", std::io::ErrorKind::NotFound);
    let behind = own.partition_point(|piece| piece.bytes.start <= bytes.start);
    let piece = own[..behind].last().filter(|piece| bytes.end <= piece.bytes.end).ok_or_else(missing)?;
    let at = memories.binary_search_by_key(&piece.region, |memory| memory.block.addresses.start);
    let memory = &memories[at.map_err(|_| missing())?];
    let offset = piece.offset + (bytes.start - piece.bytes.start);
    to.fill(0);
    read(memory, offset..offset + to.len() as u64, to)
}

fn read(memory: &BlockMemory<'_>, range: Range<u64>, to: &mut [u8]) -> Result<()> {
    let place = format!("memory at {:#x}", memory.block.addresses.start + range.start);
    memory.fill(std::slice::from_ref(&range), to).map_err(|source| Error::io("read", place, source))
}
