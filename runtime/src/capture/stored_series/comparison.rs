//! Comparing memory with what its differences would restore, for those who fear that two chunks have one digest.
//!
//! The newest difference is not in the store yet. Its data are bytes of the memory itself, which holds still: what is
//! stored in place is equal without a look, and what refers to another place is compared with that place.

use std::collections::BTreeMap;
use std::ops::Range;

use ckpt_kernels::merkle::{Live, Own};
use ckpt_store::Store;

use crate::differences::{Differences, WINDOW_BYTES};
use crate::error::{Error, Result};

/// A byte that is not as it would be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The region's id.
    pub region: u64,
    /// Where in it.
    pub offset: u64,
}

/// The first byte that is not as the newest difference, which has that number, would restore it.
pub fn mismatch(differences: &Differences, number: u32, live: &[Live<'_>], store: &Store) -> Result<Option<Mismatch>> {
    let own: Vec<Own> = differences.places().stored_with(number)?.collect();
    let by_id: BTreeMap<u64, &Live<'_>> = live.iter().map(|live| (live.id, live)).collect();
    let unsealed = |bytes: Range<u64>, to: &mut [u8]| read_own(&own, &by_id, bytes, to);
    let (mut now, mut restored) = (Vec::new(), vec![0; WINDOW_BYTES]);
    for live in live {
        let bytes = live.memory.bytes();
        for offset in (0..bytes).step_by(WINDOW_BYTES) {
            let window = offset..bytes.min(offset + WINDOW_BYTES as u64);
            let restored = &mut restored[..(window.end - window.start) as usize];
            read(live, window, &mut now)?;
            differences.read(store, live.id, offset, restored, Some(&unsealed))?;
            if now != restored {
                let at = now.iter().zip(&*restored).position(|(now, restored)| now != restored);
                return Ok(at.map(|at| Mismatch { region: live.id, offset: offset + at as u64 }));
            }
        }
    }
    Ok(None)
}

/// Bytes of the newest difference's data, from where they are in memory.
fn read_own(own: &[Own], by_id: &BTreeMap<u64, &Live<'_>>, bytes: Range<u64>, to: &mut [u8]) -> Result<()> {
    let missing = || Error::io("find bytes of", "the difference", std::io::ErrorKind::NotFound);
    let behind = own.partition_point(|piece| piece.bytes.start <= bytes.start);
    let piece = own[..behind].last().filter(|piece| bytes.end <= piece.bytes.end).ok_or_else(missing)?;
    let live = by_id.get(&piece.region).ok_or_else(missing)?;
    let offset = piece.offset + (bytes.start - piece.bytes.start);
    let mut read_bytes = Vec::new();
    read(live, offset..offset + to.len() as u64, &mut read_bytes)?;
    to.copy_from_slice(&read_bytes);
    Ok(())
}

fn read(live: &Live<'_>, range: Range<u64>, to: &mut Vec<u8>) -> Result<()> {
    to.clear();
    let place = || format!("region {:#x}, {} bytes in", live.id, range.start);
    live.memory.read(std::slice::from_ref(&range), to).map_err(|source| Error::io("read", place(), source))
}
