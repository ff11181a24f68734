//! The name of a page: 28 bytes made from its content by the store's [`crate::Digest`].
//!
//! With SHA-1 the key carries an independent 64-bit digest as well: collisions of SHA-1 are published, so SHA-1 alone
//! must not decide that two pages are the same. Every table is keyed by all 28 bytes: pages whose SHA-1 agrees but whose
//! other digest differs simply are two pages. The zero page is the most frequent one and is never stored: its key is
//! all zeros.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes of a key in a file.
pub(crate) const KEY_BYTES: usize = 28;

/// The name of a page by its content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageKey([u8; KEY_BYTES]);

impl PageKey {
    /// The key of the page of zeros. It needs no room anywhere.
    pub const ZERO: Self = Self([0; KEY_BYTES]);

    /// A key from SHA-1 and the other digest, which follows it in little-endian order.
    pub(crate) fn from_digests(sha1: [u8; 20], check64: u64) -> Self {
        let mut bytes = [0; KEY_BYTES];
        bytes[..20].copy_from_slice(&sha1);
        bytes[20..].copy_from_slice(&check64.to_le_bytes());
        Self(bytes)
    }

    /// The other digest of a key that [`PageKey::from_digests`] has made.
    pub(crate) fn check64(&self) -> u64 {
        self.0.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Whether this is the page of zeros.
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// The key as stored.
    pub fn to_bytes(self) -> [u8; KEY_BYTES] {
        self.0
    }

    /// The key that [`PageKey::to_bytes`] gave.
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes as numbers, the last four of them in both of the last two.
    #[inline]
    pub(crate) fn words(&self) -> [u64; 4] {
        let word = |at: usize| self.0[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        [word(0), word(8), word(16), word(20)]
    }

    /// The key in hex, as messages show it.
    pub(crate) fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
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
        write!(f, "PageKey({})", self.hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_stored_form() {
        let key = PageKey::from_digests([7; 20], 0x0102_0304_0506_0708);
        assert_eq!(PageKey::from_bytes(key.to_bytes()), key);
        assert_eq!(key.hex(), format!("{}0807060504030201", "07".repeat(20)));
        assert!(!key.is_zero() && PageKey::ZERO.is_zero());
    }
}
