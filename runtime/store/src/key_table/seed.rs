//! The hash of a key: another one in each table.
//!
//! Digests are uniform, but who writes a hostile store chooses the keys in it. With a hash that is known beforehand they
//! would all lie in one place, and to load a pack of them would take minutes.

use std::hash::{BuildHasher, RandomState};

use crate::PageKey;

/// What hashes depend on besides the key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed([u64; 4]);

impl Default for Seed {
    fn default() -> Self {
        let random = RandomState::new();
        Self([0, 1, 2, 3].map(|number: u64| random.hash_one(number)))
    }
}

impl Seed {
    /// 64 bits that depend on every bit of the key.
    #[inline]
    pub fn hash(&self, key: &PageKey) -> u64 {
        let ([a, b, c, d], [s, t, u, v]) = (key.words(), self.0);
        folded(a ^ s, b ^ t) ^ folded(c ^ u, d ^ v)
    }
}

/// Both halves of the product, one upon the other: each bit of it depends on many of both factors.
#[inline]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_that_differ_in_one_bit_have_different_hashes_and_each_table_has_its_own() {
        let (one, other) = (Seed::default(), Seed::default());
        let mut keys = vec![PageKey::ZERO];
        for bit in 0..28 * 8 {
            let mut bytes = [0; 28];
            bytes[bit / 8] = 1 << (bit % 8);
            keys.push(PageKey::from_bytes(bytes));
        }
        let hashes: HashSet<u64> = keys.iter().map(|key| one.hash(key)).collect();
        assert!(hashes.len() >= keys.len() - 1, "of {} keys {} hashes", keys.len(), hashes.len());
        let alike = |n: u32| {
            let mut bytes = [7; 28];
            bytes[24..].copy_from_slice(&n.to_le_bytes());
            one.hash(&PageKey::from_bytes(bytes))
        };
        for part in [0, 16, 32, 48] {
            let parts: HashSet<u16> = (0..10_000).map(|n| (alike(n) >> part) as u16).collect();
            assert!(parts.len() > 9_000, "{} different ones from bit {part} on", parts.len());
        }
        assert!(keys.iter().filter(|key| one.hash(key) == other.hash(key)).count() < 3);
    }
}
