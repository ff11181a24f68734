//! The file `header`: this directory is a store, in this format, with these features.
//!
//! 512 bytes, written once. Unknown *incompat* bits refuse the store; unknown *compat* bits are passed by. Of 256 bytes
//! that are kept for encryption an encrypted store has 32: they prove the bytes in front of them.

use super::{VERSION, fields::Block, fields::Fields};
use crate::{Digest, Result, StoreError, encryption::store_key::StoreKey, files::Input};

pub(crate) const HEADER_BYTES: usize = 512;
const MAGIC: &[u8; 8] = b"ckptstor";
const ENCRYPTION_AT: usize = 56;
const ENCRYPTION_BYTES: usize = 256;
const PROOF_BYTES: usize = 32;
/// Incompat bit: keys are made with BLAKE3, not with SHA-1 and XXH3-64.
const INCOMPAT_BLAKE3: u64 = 1 << 0;
/// Incompat bit: all other files are encrypted, but for those in `keys`.
const INCOMPAT_ENCRYPTED: u64 = 1 << 1;
const INCOMPAT_KNOWN: u64 = INCOMPAT_BLAKE3 | INCOMPAT_ENCRYPTED;

/// What a store says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub store_id: [u8; 16],
    pub created_unix_s: u64,
    pub digest: Digest,
    /// Of an encrypted store: what its key makes of the bytes in front.
    pub proof: Option<[u8; PROOF_BYTES]>,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let block = Block::new(MAGIC).u32(VERSION).u32(HEADER_BYTES as u32);
        let digest = match self.digest {
            Digest::Sha1 => 0,
            Digest::Blake3 => INCOMPAT_BLAKE3,
        };
        let encrypted = if self.proof.is_some() { INCOMPAT_ENCRYPTED } else { 0 };
        let block = block.u64(0).u64(digest | encrypted).put(&self.store_id).u64(self.created_unix_s);
        block.put(&self.proof.unwrap_or_default()).reserved(ENCRYPTION_BYTES - PROOF_BYTES).finish()
    }

    /// The header of an encrypted store.
    pub fn proved_by(self, key: &StoreKey) -> Self {
        let unproved = Self { proof: Some([0; PROOF_BYTES]), ..self };
        Self { proof: Some(key.prove_header(&unproved.encode()[..ENCRYPTION_AT])), ..self }
    }

    /// Refuses a header that somebody without the store's key has written.
    pub fn check_proof(&self, key: &StoreKey, input: &Input) -> Result<()> {
        let proof = self.proof.unwrap_or_default();
        if key.proves_header(&input.read(0, ENCRYPTION_AT as u64)?, &proof) {
            return Ok(());
        }
        let what = "what proves the header";
        Err(input.corrupt(ENCRYPTION_AT as u64, what, "of the store's own key", "another"))
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
        let (store_id, created_unix_s, proof) = (fields.take(), fields.u64(), fields.take());
        let proof = (incompat & INCOMPAT_ENCRYPTED != 0).then_some(proof);
        Ok(Self { store_id, created_unix_s, digest, proof })
    }
}
