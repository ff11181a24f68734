//! Fixed blocks of little-endian fields that end in their CRC-32.

use crate::{Result, files::Input};

/// Builds a block of `N` bytes.
pub(crate) struct Block<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Block<N> {
    pub fn new(magic: &[u8; 8]) -> Self {
        Self { bytes: [0; N], at: 0 }.put(magic)
    }

    pub fn put(mut self, field: &[u8]) -> Self {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
        self
    }

    pub fn u32(self, field: u32) -> Self {
        self.put(&field.to_le_bytes())
    }

    pub fn u64(self, field: u64) -> Self {
        self.put(&field.to_le_bytes())
    }

    /// Leaves bytes of zeros, for fields to come.
    pub fn reserved(mut self, bytes: usize) -> Self {
        self.at += bytes;
        self
    }

    /// The bytes that have been put so far.
    pub fn so_far(&self) -> &[u8] {
        &self.bytes[..self.at]
    }

    /// The block, its last four bytes the CRC-32 of the others.
    pub fn finish(mut self) -> [u8; N] {
        let crc = crc32fast::hash(&self.bytes[..N - 4]);
        self.bytes[N - 4..].copy_from_slice(&crc.to_le_bytes());
        self.bytes
    }
}

/// Takes fields from the front of bytes. Past the end it gives zeros: the caller has checked the length.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    pub fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        if let Some((head, rest)) = self.0.split_first_chunk::<N>() {
            field = *head;
            self.0 = rest;
        }
        field
    }

    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.take())
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

/// Reads the block of `length` bytes at `offset` and checks its CRC-32 and its magic.
pub(crate) fn read_block(input: &Input, offset: u64, length: usize, magic: &[u8; 8]) -> Result<Vec<u8>> {
    let block = input.read(offset, length as u64)?;
    check_crc(input, offset, &block)?;
    if !block.starts_with(magic) {
        let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        return Err(input.corrupt(offset, "the record's mark", show(magic), show(&block[..8])));
    }
    Ok(block)
}

fn check_crc(input: &Input, offset: u64, block: &[u8]) -> Result<()> {
    let (content, crc) = block.split_at(block.len() - 4);
    check(input, offset, "the record's checksum", Fields(crc).u32(), content)
}

/// Checks `bytes` against the CRC-32 kept of them elsewhere.
pub(crate) fn check(input: &Input, offset: u64, what: &'static str, crc: u32, bytes: &[u8]) -> Result<()> {
    let found = crc32fast::hash(bytes);
    if found == crc {
        return Ok(());
    }
    Err(input.corrupt(offset, what, format!("{crc:08x}"), format!("{found:08x}")))
}
