//! A pack: a header page, page runs and nodes one after another, a trailer that says where they are, and a footer.
//!
//! Nothing stands between runs, and raw runs start at a multiple of 4096: neighbouring raw runs are one stretch of the
//! file that can be mapped. So places, lengths and checksums are in the trailer, which is written last. A pack without
//! its footer was never sealed and nothing refers to it.

use super::{
    VERSION,
    fields::{Block, Fields, check, read_block},
    node::NODE_BYTES_MIN,
};
use crate::{PAGE_BYTES, PageKey, Result, codec::Codec, files::Input, files::PackName, page_key::KEY_BYTES};

/// Bytes before the first run.
pub(crate) const PACK_HEADER_BYTES: usize = PAGE_BYTES;
/// Pages in one run, at most.
pub(crate) const RUN_PAGES_MAX: usize = 64;
/// A pack is closed, and the next one begun, when it has reached this length or the pages of [`PACK_PAGES_MAX`].
pub(crate) const PACK_BYTES_MAX: u64 = 1 << 30;
/// See [`PACK_BYTES_MAX`]; it keeps trailers below 32 MiB.
pub(crate) const PACK_PAGES_MAX: usize = 1 << 20;
/// Pages that a reader takes a pack to have, at most: what a writer adds behind [`PACK_PAGES_MAX`] is far less.
const TRAILER_PAGES_MAX: u64 = 2 * PACK_PAGES_MAX as u64;
/// An encoded node, at most.
pub(crate) const NODE_BYTES_MAX: usize = 1 << 14;

const MAGIC: &[u8; 8] = b"ckptpack";
const MAGIC_END: &[u8; 8] = b"ckptpend";
pub(crate) const RUN_BYTES: u64 = 24;
const NODE_PLACE_BYTES: u64 = KEY_BYTES as u64 + 12;
pub(crate) const FOOTER_BYTES: u64 = 64;

/// Where a page run lies and how it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub offset: u64,
    pub stored_bytes: u32,
    pub crc: u32,
    pub pages: u16,
    pub codec: Codec,
}

/// Where a node lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodePlace {
    pub offset: u64,
    pub bytes: u32,
}

/// What the trailer says.
#[derive(Default)]
pub(crate) struct Trailer {
    pub runs: Vec<Run>,
    pub page_keys: Vec<PageKey>,
    pub nodes: Vec<NodePlace>,
    pub node_keys: Vec<PageKey>,
}

/// The first page of a pack.
pub(crate) fn encode_header(store_id: &[u8; 16], name: PackName) -> [u8; PACK_HEADER_BYTES] {
    let block = Block::new(MAGIC).u32(VERSION).u32(PACK_HEADER_BYTES as u32);
    block.put(store_id).u64(name.attempt).u32(name.sequence).finish()
}

/// The trailer and the footer of a pack whose runs and nodes end at `offset`.
pub(crate) fn encode_trailer(name: PackName, offset: u64, trailer: &Trailer) -> Vec<u8> {
    let mut bytes = Vec::new();
    for run in &trailer.runs {
        bytes.extend_from_slice(&run.offset.to_le_bytes());
        bytes.extend_from_slice(&run.stored_bytes.to_le_bytes());
        bytes.extend_from_slice(&run.crc.to_le_bytes());
        bytes.extend_from_slice(&run.pages.to_le_bytes());
        bytes.extend_from_slice(&[run.codec as u8, 0, 0, 0, 0, 0]);
    }
    for key in &trailer.page_keys {
        bytes.extend_from_slice(&key.to_bytes());
    }
    for (node, key) in trailer.nodes.iter().zip(&trailer.node_keys) {
        bytes.extend_from_slice(&key.to_bytes());
        bytes.extend_from_slice(&node.offset.to_le_bytes());
        bytes.extend_from_slice(&node.bytes.to_le_bytes());
    }
    let footer: Block<{ FOOTER_BYTES as usize }> = Block::new(MAGIC_END).u64(name.attempt).u32(name.sequence);
    let footer = footer.u32(trailer.runs.len() as u32).u32(trailer.page_keys.len() as u32);
    let footer = footer.u32(trailer.nodes.len() as u32).u64(offset).u32(crc32fast::hash(&bytes));
    bytes.extend_from_slice(&footer.finish());
    bytes
}

/// Reads the trailer of the pack `name`, after checking that every place in it lies where runs and nodes can be.
pub(crate) fn read_trailer(input: &Input, store_id: &[u8; 16], name: PackName) -> Result<Trailer> {
    let header = read_block(input, 0, PACK_HEADER_BYTES, MAGIC)?;
    if header[..PACK_HEADER_BYTES - 4] != encode_header(store_id, name)[..PACK_HEADER_BYTES - 4] {
        let expected = format!("that of pack {}-{} of this store", name.attempt, name.sequence);
        return Err(input.corrupt(8, "the pack's header", expected, "another"));
    }
    let footer_at = input.length().saturating_sub(FOOTER_BYTES);
    let footer = read_block(input, footer_at, FOOTER_BYTES as usize, MAGIC_END)?;
    let mut fields = Fields(&footer[8..]);
    let (attempt, sequence) = (fields.u64(), fields.u32());
    if (PackName { attempt, sequence }) != name {
        let (expected, found) = (format!("{name:?}"), format!("{attempt}-{sequence}"));
        return Err(input.corrupt(footer_at + 8, "the pack's number", expected, found));
    }
    let [runs, pages, nodes] = [fields.u32(), fields.u32(), fields.u32()].map(u64::from);
    let (trailer_at, crc) = (fields.u64(), fields.u32());
    let bytes = runs * RUN_BYTES + pages * KEY_BYTES as u64 + nodes * NODE_PLACE_BYTES;
    if trailer_at < PACK_HEADER_BYTES as u64 || trailer_at.checked_add(bytes) != Some(footer_at) {
        let expected = format!("{footer_at} less {bytes}");
        return Err(input.corrupt(footer_at, "the trailer's place", expected, trailer_at.to_string()));
    }
    if runs > pages || pages > TRAILER_PAGES_MAX || nodes > trailer_at / NODE_BYTES_MIN {
        let expected = format!("{TRAILER_PAGES_MAX} pages or less, in runs, and nodes that fit in {trailer_at} bytes");
        return Err(input.corrupt(footer_at + 20, "the counts", expected, format!("{runs}, {pages}, {nodes}")));
    }
    let encoded = input.read(trailer_at, bytes)?;
    check(input, trailer_at, "the trailer's checksum", crc, &encoded)?;
    decode_trailer(input, trailer_at, &encoded, [runs, pages, nodes])
}

fn decode_trailer(input: &Input, trailer_at: u64, encoded: &[u8], [runs, pages, nodes]: [u64; 3]) -> Result<Trailer> {
    let misplaced = |what, found| input.corrupt(trailer_at, what, "inside the pack, behind the one before it", found);
    let mut fields = Fields(encoded);
    let mut trailer = Trailer { runs: Vec::new(), page_keys: Vec::new(), nodes: Vec::new(), node_keys: Vec::new() };
    let mut room = Room { from: PACK_HEADER_BYTES as u64, end: trailer_at };
    for number in 0..runs {
        let run = decode_run(&mut fields).filter(|run| room.take(run.offset, run.stored_bytes));
        trailer.runs.push(run.ok_or_else(|| misplaced("a page run's place", format!("that of run {number}")))?);
    }
    let pages_in_runs: u64 = trailer.runs.iter().map(|run| u64::from(run.pages)).sum();
    if pages_in_runs != pages {
        let (expected, found) = (pages.to_string(), pages_in_runs.to_string());
        return Err(input.corrupt(trailer_at, "the pages in all runs", expected, found));
    }
    trailer.page_keys = (0..pages).map(|_| PageKey::from_bytes(fields.take())).collect();
    let mut room = Room { from: PACK_HEADER_BYTES as u64, end: trailer_at };
    for _ in 0..nodes {
        trailer.node_keys.push(PageKey::from_bytes(fields.take()));
        let node = NodePlace { offset: fields.u64(), bytes: fields.u32() };
        if node.bytes as usize > NODE_BYTES_MAX || !room.take(node.offset, node.bytes) {
            return Err(misplaced("a node's place", format!("{node:?}")));
        }
        trailer.nodes.push(node);
    }
    Ok(trailer)
}

fn decode_run(fields: &mut Fields<'_>) -> Option<Run> {
    let (offset, stored_bytes, crc, pages) = (fields.u64(), fields.u32(), fields.u32(), fields.u16());
    let codec = Codec::from_number(fields.u8())?;
    let _reserved: [u8; 5] = fields.take();
    let raw_bytes = u32::from(pages) * PAGE_BYTES as u32;
    let shape = match codec {
        Codec::Raw => stored_bytes == raw_bytes && offset.is_multiple_of(PAGE_BYTES as u64),
        _ => stored_bytes < raw_bytes,
    };
    let sound = shape && (1..=RUN_PAGES_MAX as u16).contains(&pages);
    sound.then_some(Run { offset, stored_bytes, crc, pages, codec })
}

/// What is left of the room between header page and trailer. Pieces come in the order in which they were written, so
/// none shares a byte with another, and there cannot be more of them than the file has room for.
struct Room {
    from: u64,
    end: u64,
}

impl Room {
    /// Takes the next piece; `false` when it does not lie in what is left.
    fn take(&mut self, offset: u64, bytes: u32) -> bool {
        let end = offset.checked_add(bytes.into()).filter(|end| bytes > 0 && offset >= self.from && *end <= self.end);
        self.from = end.unwrap_or(self.from);
        end.is_some()
    }
}
