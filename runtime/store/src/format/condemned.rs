//! A list of condemned packs: what attempts with higher numbers than the file's do not share from.

use super::{
    VERSION,
    fields::{Block, Fields, check, read_block},
};
use crate::{
    Result,
    files::{Input, PackName},
};

const MAGIC: &[u8; 8] = b"ckptcond";
const HEAD_BYTES: usize = 24;
const ENTRY_BYTES: u64 = 12;
/// Packs of a list at most: 12 MiB.
pub(crate) const PACKS_MAX: usize = 1 << 20;

/// The file of these packs.
pub(crate) fn encode(packs: &[PackName]) -> Vec<u8> {
    let entries: Vec<u8> = packs
        .iter()
        .flat_map(|pack| [&pack.attempt.to_le_bytes()[..], &pack.sequence.to_le_bytes()].concat())
        .collect();
    let head: Block<HEAD_BYTES> = Block::new(MAGIC).u32(VERSION).u32(packs.len() as u32);
    [&head.u32(crc32fast::hash(&entries)).finish()[..], &entries].concat()
}

/// Reads the packs of a file.
pub(crate) fn read(input: &Input) -> Result<Vec<PackName>> {
    let head = read_block(input, 0, HEAD_BYTES, MAGIC)?;
    let mut fields = Fields(&head[8..]);
    let (_version, count, crc) = (fields.u32(), fields.u32(), fields.u32());
    if count as usize > PACKS_MAX {
        return Err(input.corrupt(12, "the list's number of packs", format!("at most {PACKS_MAX}"), count.to_string()));
    }
    let length = HEAD_BYTES as u64 + u64::from(count) * ENTRY_BYTES;
    if input.length() != length {
        let found = format!("{} bytes", input.length());
        return Err(input.corrupt(12, "the list's length", format!("{length} bytes"), found));
    }
    let entries = input.read(HEAD_BYTES as u64, u64::from(count) * ENTRY_BYTES)?;
    check(input, HEAD_BYTES as u64, "the list's checksum", crc, &entries)?;
    let mut fields = Fields(&entries);
    Ok((0..count).map(|_| PackName { attempt: fields.u64(), sequence: fields.u32() }).collect())
}
