//! Sets the checksums of damaged files right, so that what is behind them is reached.
//!
//! It follows the lengths and places in the files as far as they lie inside, and believes nothing: this is what a person
//! would do who wants a damaged store to be read. Digests stay as they are: they are the names of pages and nodes.

use super::FileMap;
use crate::{
    format::{
        fields::Fields,
        pack::{FOOTER_BYTES, PACK_HEADER_BYTES, RUN_BYTES},
    },
    page_key::KEY_BYTES,
};

/// Mends every file.
pub fn mend(files: &mut FileMap) {
    for (name, bytes) in files {
        match name.split_once('/') {
            None => seal_block(bytes, 0, 512),
            Some(("packs", _)) => mend_pack(bytes),
            Some(("manifests", name)) if name.ends_with(".condemned") => mend_condemned(bytes),
            Some(("manifests", _)) => mend_manifest(bytes),
            Some(_) => mend_row(bytes),
        };
    }
}

/// Writes the checksum of a block into its last four bytes.
fn seal_block(bytes: &mut [u8], at: usize, length: usize) -> Option<()> {
    let (content, crc) = bytes.get_mut(at..at + length)?.split_last_chunk_mut::<4>()?;
    *crc = crc32fast::hash(content).to_le_bytes();
    Some(())
}

/// Writes the checksum of `length` bytes at `at` to `crc_at`, and gives what follows them.
fn sum(bytes: &mut [u8], at: usize, length: u64, crc_at: usize) -> Option<usize> {
    let end = at.checked_add(usize::try_from(length).ok()?)?;
    let crc = crc32fast::hash(bytes.get(at..end)?);
    bytes.get_mut(crc_at..crc_at + 4)?.copy_from_slice(&crc.to_le_bytes());
    Some(end)
}

fn mend_row(bytes: &mut [u8]) -> Option<()> {
    let length = Fields(bytes.get(12..)?).u32();
    sum(bytes, 24, length.into(), 16);
    seal_block(bytes, 0, 24)
}

fn mend_condemned(bytes: &mut [u8]) -> Option<()> {
    let count = Fields(bytes.get(12..)?).u32();
    sum(bytes, 24, u64::from(count) * 12, 16);
    seal_block(bytes, 0, 24)
}

fn mend_manifest(bytes: &mut [u8]) -> Option<()> {
    let field = |at: usize| Some(u64::from(Fields(bytes.get(at..)?).u32()));
    let [row, contents] = [field(40)?, field(48)?];
    let state = Fields(bytes.get(56..)?).u64();
    let after_row = sum(bytes, 80, row, 44);
    let after_contents = after_row.and_then(|at| sum(bytes, at, contents, 52));
    after_contents.and_then(|at| sum(bytes, at, state, 64));
    seal_block(bytes, 0, 80)
}

fn mend_pack(bytes: &mut [u8]) -> Option<()> {
    seal_block(bytes, 0, PACK_HEADER_BYTES);
    let footer_at = bytes.len().checked_sub(FOOTER_BYTES as usize)?;
    let mut footer = Fields(bytes.get(footer_at + 20..)?);
    let [runs, pages, nodes] = [footer.u32(), footer.u32(), footer.u32()].map(u64::from);
    let trailer_at = footer.u64();
    let length = runs * RUN_BYTES + pages * KEY_BYTES as u64 + nodes * (KEY_BYTES as u64 + 12);
    let trailer_at = usize::try_from(trailer_at).unwrap_or(usize::MAX);
    if bytes.get(trailer_at..).is_some_and(|trailer| trailer.len() as u64 >= length) {
        for run in 0..runs as usize {
            mend_run(bytes, trailer_at + run * RUN_BYTES as usize);
        }
        sum(bytes, trailer_at, length, footer_at + 40);
    }
    seal_block(bytes, footer_at, FOOTER_BYTES as usize)
}

/// The checksum of the run whose entry lies at `at`.
fn mend_run(bytes: &mut [u8], at: usize) -> Option<usize> {
    let mut entry = Fields(bytes.get(at..)?);
    let (offset, stored) = (usize::try_from(entry.u64()).ok()?, entry.u32());
    sum(bytes, offset, stored.into(), at + 12)
}
