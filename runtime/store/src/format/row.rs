//! A row of an attempt that is not sealed, as a file of its own: mark, length, CRC-32, CBOR.
//!
//! Sealed attempts have their row in the manifest instead, so that there is one truth about whether an attempt is
//! sealed: the manifest's name.

use super::{
    VERSION, cbor,
    fields::{Block, Fields, check, read_block},
};
use crate::{AttemptRow, Result, files::Input};

/// Bytes of an encoded row, at most.
pub(crate) const ROW_BYTES_MAX: u64 = 64 << 10;
const MAGIC: &[u8; 8] = b"ckptrow\0";
const HEAD_BYTES: usize = 24;

/// The file of `row`.
pub(crate) fn encode(row: &AttemptRow) -> Result<Vec<u8>> {
    let record = cbor::encode("an attempt's row", row, ROW_BYTES_MAX)?;
    let head: Block<HEAD_BYTES> = Block::new(MAGIC).u32(VERSION).u32(record.len() as u32);
    let mut bytes = head.u32(crc32fast::hash(&record)).finish().to_vec();
    bytes.extend_from_slice(&record);
    Ok(bytes)
}

/// Reads the row of attempt `id`.
pub(crate) fn read(input: &Input, id: u64) -> Result<AttemptRow> {
    let head = read_block(input, 0, HEAD_BYTES, MAGIC)?;
    let mut fields = Fields(&head[8..]);
    let (_version, length, crc) = (fields.u32(), fields.u32(), fields.u32());
    let row = read_part(input, HEAD_BYTES as u64, length, crc, id)?;
    if input.length() != HEAD_BYTES as u64 + u64::from(length) {
        return Err(input.corrupt(12, "the row's length", length.to_string(), format!("{} bytes", input.length())));
    }
    Ok(row)
}

/// Reads the row of attempt `id` that lies at `offset` of some file.
pub(crate) fn read_part(input: &Input, offset: u64, length: u32, crc: u32, id: u64) -> Result<AttemptRow> {
    if u64::from(length) > ROW_BYTES_MAX {
        let expected = format!("{ROW_BYTES_MAX} bytes or less");
        return Err(input.corrupt(offset, "the row's length", expected, length.to_string()));
    }
    let record = input.read(offset, length.into())?;
    check(input, offset, "the row's checksum", crc, &record)?;
    let row: AttemptRow = cbor::decode(input, offset, "the row", &record)?;
    if row.id != id {
        return Err(input.corrupt(offset, "the row's number", id.to_string(), row.id.to_string()));
    }
    Ok(row)
}
