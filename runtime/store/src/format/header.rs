//! The file `header`: this directory is a store, in this format, with these features.
//!
//! 512 bytes, written once. Unknown *incompat* bits refuse the store; unknown *compat* bits are passed by. 256 bytes are
//! kept for what encryption will need (key derivation and a wrapped key), behind an incompat bit.

use super::{VERSION, fields::Block, fields::Fields};
use crate::{Digest, Result, StoreError, files::Input};

pub(crate) const HEADER_BYTES: usize = 512;
const MAGIC: &[u8; 8] = b"ckptstor";
const ENCRYPTION_BYTES: usize = 256;
/// Incompat bit: keys are made with BLAKE3, not with SHA-1 and XXH3-64.
const INCOMPAT_BLAKE3: u64 = 1 << 0;
const INCOMPAT_KNOWN: u64 = INCOMPAT_BLAKE3;

/// What a store says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub store_id: [u8; 16],
    pub created_unix_s: u64,
    pub digest: Digest,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let block = Block::new(MAGIC).u32(VERSION).u32(HEADER_BYTES as u32);
        let incompat = match self.digest {
            Digest::Sha1 => 0,
            Digest::Blake3 => INCOMPAT_BLAKE3,
        };
        let block = block.u64(0).u64(incompat);
        block.put(&self.store_id).u64(self.created_unix_s).reserved(ENCRYPTION_BYTES).finish()
    }

    /// Reads the header. Its last four bytes are the checksum in every version, so that it is checked before a version
    /// or a feature is believed.
    pub fn read(input: &Input) -> Result<Self> {
        if input.length() != HEADER_BYTES as u64 {
            let found = format!("{} bytes", input.length());
            return Err(input.corrupt(0, "the header's length", format!("{HEADER_BYTES} bytes"), found));
        }
        let block = super::fields::read_block(input, 0, HEADER_BYTES, MAGIC)?;
        let mut fields = Fields(&block[8..]);
        let unsupported = |feature, found| {
            let path = input.path();
            Err(StoreError::UnsupportedFeature { path, feature, found })
        };
        match fields.u32() {
            VERSION => {}
            other => return unsupported("format version", other.into()),
        }
        let (_length, _compat, incompat) = (fields.u32(), fields.u64(), fields.u64());
        if incompat & !INCOMPAT_KNOWN != 0 {
            return unsupported("incompat feature bits", incompat & !INCOMPAT_KNOWN);
        }
        let digest = if incompat & INCOMPAT_BLAKE3 == 0 { Digest::Sha1 } else { Digest::Blake3 };
        Ok(Self { store_id: fields.take(), created_unix_s: fields.u64(), digest })
    }
}
