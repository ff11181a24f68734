//! Writing one pack: runs and nodes are appended, the trailer comes last, then everything is made durable.
//!
//! The bytes go to the file by a thread of its own ([`WriteBehind`]). A place is known as soon as a piece is appended,
//! but nobody else learns of it before the pack is finished and durable.

use std::sync::Arc;

use crate::{
    PAGE_BYTES, PageKey, Result,
    codec::Codec,
    fault,
    files::{Files, PackName, behind::WriteBehind},
    format::pack::{
        NodePlace, PACK_BYTES_MAX, PACK_HEADER_BYTES, PACK_PAGES_MAX, Run, Trailer, encode_header, encode_trailer,
    },
    pace::Pace,
    pack::Pack,
};

/// A pack being written.
pub(crate) struct PackWriter {
    output: WriteBehind,
    name: PackName,
    end: u64,
    trailer: Trailer,
}

impl PackWriter {
    /// `write_bytes`: bytes of a write, a multiple of 4096. How fast that goes is noted in `pace`.
    pub fn create(
        files: &Files,
        store_id: &[u8; 16],
        name: PackName,
        write_bytes: usize,
        pace: Arc<Pace>,
    ) -> Result<Self> {
        let file = files.create(&name.name(), fault::PACK_CREATE)?;
        let mut output = WriteBehind::start(file, fault::PACK_WRITE, write_bytes, pace)?;
        output.append(&encode_header(store_id, name))?;
        let end = PACK_HEADER_BYTES as u64;
        Ok(Self { output, name, end, trailer: Trailer::default() })
    }

    pub fn sequence(&self) -> u32 {
        self.name.sequence
    }

    pub fn run_count(&self) -> usize {
        self.trailer.runs.len()
    }

    /// Bytes that still have to find room in the file system.
    pub fn unwritten_bytes(&self) -> u64 {
        self.output.unwritten_bytes()
    }

    /// Whether the next run belongs into another pack.
    pub fn is_full(&self, pack_bytes: u64) -> bool {
        self.end >= pack_bytes.min(PACK_BYTES_MAX) || self.trailer.page_keys.len() >= PACK_PAGES_MAX
    }

    /// Appends a run of the pages with these keys, encoded as `stored`, whose CRC-32 is `crc`.
    pub fn append_run(
        &mut self,
        codec: Codec,
        keys: impl ExactSizeIterator<Item = PageKey>,
        crc: u32,
        stored: &[u8],
    ) -> Result<()> {
        if codec == Codec::Raw {
            self.align()?;
        }
        let (stored_bytes, pages) = (stored.len() as u32, keys.len() as u16);
        self.trailer.runs.push(Run { offset: self.end, stored_bytes, crc, pages, codec });
        self.trailer.page_keys.extend(keys);
        self.append(stored)
    }

    /// Appends a node and gives its number in this pack.
    pub fn append_node(&mut self, key: PageKey, node: &[u8]) -> Result<u32> {
        self.trailer.nodes.push(NodePlace { offset: self.end, bytes: node.len() as u32 });
        self.trailer.node_keys.push(key);
        self.append(node)?;
        Ok(self.trailer.nodes.len() as u32 - 1)
    }

    /// Writes the trailer and begins to make the pack's bytes durable: they are when the [`WriteBehind`] has been waited
    /// for. The name is not yet then.
    pub fn finish(mut self) -> Result<(Pack, u64, WriteBehind)> {
        let bytes = encode_trailer(self.name, self.end, &self.trailer);
        self.output.append(&bytes)?;
        self.output.begin_sync(fault::PACK_SYNC)?;
        let pack = Pack { name: self.name, runs: self.trailer.runs, nodes: self.trailer.nodes };
        Ok((pack, self.end + bytes.len() as u64, self.output))
    }

    fn align(&mut self) -> Result<()> {
        let padding = self.end.next_multiple_of(PAGE_BYTES as u64) - self.end;
        self.append(&[0; PAGE_BYTES][..padding as usize])
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.end += bytes.len() as u64;
        self.output.append(bytes)
    }
}
