//! A manifest: the root record of one checkpoint.
//!
//! Head, row, contents, state. The row comes first so that a list of checkpoints reads a few hundred bytes of each. The
//! contents say what the checkpoint consists of for those who do not know what the state means: the packs that this
//! attempt wrote and the roots of its page lists; all that it refers to in other packs is reached from the roots.

use serde::{Deserialize, Serialize};

use super::{
    VERSION, cbor,
    fields::{Block, Fields, check, read_block},
    row,
};
use crate::{AttemptRow, PageListRef, Result, StoreError, files::Files, files::Input};

/// Bytes of a caller's state, at most.
pub(crate) const STATE_BYTES_MAX: u64 = 256 << 20;
/// Bytes of encoded contents, at most.
const CONTENTS_BYTES_MAX: u64 = 64 << 20;
const MAGIC: &[u8; 8] = b"ckptmani";
const HEAD_BYTES: usize = 80;

/// A pack that the checkpoint's attempt wrote.
#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
pub(crate) struct OwnPack {
    pub sequence: u32,
    pub bytes: u64,
}

/// What a checkpoint consists of.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub(crate) struct Contents {
    pub packs: Vec<OwnPack>,
    pub roots: Vec<PageListRef>,
}

/// The file of a manifest. The row's `new_bytes` is completed by the manifest's own length.
pub(crate) fn encode(
    files: &Files,
    store_id: &[u8; 16],
    row: &mut AttemptRow,
    contents: &Contents,
    state: &[u8],
) -> Result<Vec<u8>> {
    if state.len() as u64 > STATE_BYTES_MAX {
        return Err(StoreError::TooLarge {
            what: "a checkpoint's state",
            found: state.len() as u64,
            max: STATE_BYTES_MAX,
        });
    }
    let contents = cbor::encode("a checkpoint's list of roots", contents, CONTENTS_BYTES_MAX)?;
    let record = encode_row(files, row, HEAD_BYTES + contents.len() + state.len())?;
    let head: Block<HEAD_BYTES> = Block::new(MAGIC).u32(VERSION).u32(0).u64(row.id).put(store_id);
    let head = head.u32(record.len() as u32).u32(crc32fast::hash(&record));
    let head = head.u32(contents.len() as u32).u32(crc32fast::hash(&contents));
    let head = head.u64(state.len() as u64).u32(crc32fast::hash(state)).finish();
    Ok([&head, &record[..], &contents, state].concat())
}

/// Adds the manifest's length, of which the row's own length is a part, to `new_bytes`.
fn encode_row(files: &Files, row: &mut AttemptRow, other_bytes: usize) -> Result<Vec<u8>> {
    let packs_bytes = row.new_bytes;
    let mut record = Vec::new();
    // The number grows by at most a few bytes of encoding, so this settles in two or three rounds.
    for _ in 0..4 {
        row.new_bytes = packs_bytes + files.stored_bytes((other_bytes + record.len()) as u64);
        record = cbor::encode("an attempt's row", row, row::ROW_BYTES_MAX)?;
    }
    Ok(record)
}

struct Head {
    row: (u32, u32),
    contents: (u32, u32),
    state: (u64, u32),
}

fn read_head(input: &Input, store_id: &[u8; 16], id: u64) -> Result<Head> {
    let block = read_block(input, 0, HEAD_BYTES, MAGIC)?;
    let mut fields = Fields(&block[8..]);
    let (_version, _reserved, found_id, found_store) = (fields.u32(), fields.u32(), fields.u64(), fields.take::<16>());
    if found_id != id {
        return Err(input.corrupt(16, "the checkpoint's number", id.to_string(), found_id.to_string()));
    }
    if found_store != *store_id {
        return Err(input.corrupt(24, "the store's number", format!("{store_id:x?}"), format!("{found_store:x?}")));
    }
    let head = Head {
        row: (fields.u32(), fields.u32()),
        contents: (fields.u32(), fields.u32()),
        state: (fields.u64(), fields.u32()),
    };
    let parts = [
        (40, "the row's length", head.row.0.into(), row::ROW_BYTES_MAX),
        (48, "the contents' length", head.contents.0.into(), CONTENTS_BYTES_MAX),
        (56, "the state's length", head.state.0, STATE_BYTES_MAX),
    ];
    if let Some((at, what, found, max)) = parts.into_iter().find(|(_, _, found, max)| found > max) {
        return Err(input.corrupt(at, what, format!("{max} bytes or less"), found.to_string()));
    }
    let length = HEAD_BYTES as u64 + parts.into_iter().map(|(_, _, bytes, _)| bytes).sum::<u64>();
    if length != input.length() {
        let found = format!("{} bytes", input.length());
        return Err(input.corrupt(40, "the manifest's length", format!("{length} bytes"), found));
    }
    Ok(head)
}

/// Reads the row of checkpoint `id` and nothing else.
pub(crate) fn read_row(input: &Input, store_id: &[u8; 16], id: u64) -> Result<AttemptRow> {
    let head = read_head(input, store_id, id)?;
    row::read_part(input, HEAD_BYTES as u64, head.row.0, head.row.1, id)
}

/// Reads checkpoint `id`.
pub(crate) fn read(input: &Input, store_id: &[u8; 16], id: u64) -> Result<(AttemptRow, Contents, Vec<u8>)> {
    let head = read_head(input, store_id, id)?;
    let row = row::read_part(input, HEAD_BYTES as u64, head.row.0, head.row.1, id)?;
    let contents_at = HEAD_BYTES as u64 + u64::from(head.row.0);
    let contents = input.read(contents_at, head.contents.0.into())?;
    check(input, contents_at, "the contents' checksum", head.contents.1, &contents)?;
    let contents = cbor::decode(input, contents_at, "the contents", &contents)?;
    let state_at = contents_at + u64::from(head.contents.0);
    let state = input.read(state_at, head.state.0)?;
    check(input, state_at, "the state's checksum", head.state.1, &state)?;
    Ok((row, contents, state))
}
