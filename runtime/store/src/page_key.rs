//! The name of a page: its SHA-1 and an independent 64-bit digest, 28 bytes together.
//!
//! Collisions of SHA-1 are published, so SHA-1 alone must not decide that two pages are the same. The key carries both
//! digests and every table is keyed by both: pages whose SHA-1 agrees but whose other digest differs simply are two
//! pages. The zero page is the most frequent one and is never stored: its key is all zeros.

use std::fmt;

use ckpt_kernels::page_digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes of a key in a file.
pub(crate) const KEY_BYTES: usize = 28;

/// The name of a page by its content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageKey {
    sha1: [u8; 20],
    check64: [u8; 8],
}

impl PageKey {
    /// The key of the page of zeros. It needs no room anywhere.
    pub const ZERO: Self = Self { sha1: [0; 20], check64: [0; 8] };

    /// The key of `page`, which is normally [`crate::PAGE_BYTES`] long.
    pub fn of(page: &[u8]) -> Self {
        if page_digest::is_zero(page) { Self::ZERO } else { Self::of_bytes(page) }
    }

    /// The key of bytes that are not a page (a node of a page list): zeros are nothing special.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Self::from_digests(page_digest::sha1(bytes), page_digest::check64(bytes))
    }

    /// A key from its two digests.
    pub const fn from_digests(sha1: [u8; 20], check64: u64) -> Self {
        Self { sha1, check64: check64.to_le_bytes() }
    }

    /// Whether this is the page of zeros.
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// The SHA-1 of the page; all zeros for the page of zeros.
    pub fn sha1(&self) -> [u8; 20] {
        self.sha1
    }

    /// The independent digest of the page; 0 for the page of zeros.
    pub fn check64(&self) -> u64 {
        u64::from_le_bytes(self.check64)
    }

    /// The key as stored: SHA-1, then the other digest, little-endian.
    pub fn to_bytes(self) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        bytes[..20].copy_from_slice(&self.sha1);
        bytes[20..].copy_from_slice(&self.check64);
        bytes
    }

    /// The key that [`PageKey::to_bytes`] gave.
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        let mut key = Self::ZERO;
        key.sha1.copy_from_slice(&bytes[..20]);
        key.check64.copy_from_slice(&bytes[20..]);
        key
    }

    /// Hash for tables: digests are uniform already.
    pub(crate) fn hash64(&self) -> u64 {
        let mut low = [0; 8];
        low.copy_from_slice(&self.sha1[..8]);
        u64::from_le_bytes(low)
    }

    /// The SHA-1 in hex, as messages show it.
    pub(crate) fn hex(&self) -> String {
        self.sha1.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Serialize for PageKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.to_bytes())
    }
}

impl<'de> Deserialize<'de> for PageKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from_bytes(serde_bytes::ByteArray::deserialize(deserializer)?.into_array()))
    }
}

impl fmt::Debug for PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageKey({}/{:016x})", self.hex(), self.check64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_stored_form() {
        let key = PageKey::of(&[7; 4096]);
        assert_eq!(PageKey::from_bytes(key.to_bytes()), key);
        assert!(!key.is_zero());
    }

    #[test]
    fn the_page_of_zeros_has_the_zero_key() {
        assert_eq!(PageKey::of(&[0; 4096]), PageKey::ZERO);
    }
}
