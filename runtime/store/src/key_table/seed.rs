//! The hash of a key: another one in each table.
//!
//! Digests are uniform, but who writes a hostile store chooses the keys in it. With a hash that is known beforehand they
//! would all lie in one place, and to load a pack of them would take minutes.

use std::hash::{BuildHasher, RandomState};

use crate::PageKey;

/// What hashes depend on besides the key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed([u64; 6]);

impl Default for Seed {
    fn default() -> Self {
        let random = RandomState::new();
        Self([0, 1, 2, 3, 4, 5].map(|number: u64| random.hash_one(number)))
    }
}

impl Seed {
    /// 64 bits, each of which depends on every bit of the key.
    ///
    /// Once over the four words is not enough: of keys that differ in a few bits of one word, parts of that product are
    /// the same for many seeds, and all of them would come into a few shards.
    #[inline]
    pub fn hash(&self, key: &PageKey) -> u64 {
        let ([a, b, c, d], [s, t, u, v, w, x]) = (key.words(), self.0);
        folded(folded(a ^ s, b ^ t) ^ folded(c ^ u, d ^ v) ^ w, x)
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
        assert!(keys.iter().filter(|key| one.hash(key) == other.hash(key)).count() < 3);
    }

    #[test]
    fn every_part_of_a_hash_differs_also_of_keys_that_differ_in_one_word_alone() {
        for _ in 0..50 {
            let seed = Seed::default();
            for at in [0, 6, 12, 18, 24] {
                let hash = |n: u32| {
                    let mut bytes = [7; 28];
                    bytes[at..at + 4].copy_from_slice(&n.to_le_bytes());
                    seed.hash(&PageKey::from_bytes(bytes))
                };
                for part in [0, 16, 32, 48] {
                    let parts: HashSet<u16> = (0..10_000).map(|n| (hash(n) >> part) as u16).collect();
                    // Of random numbers 9,273, give or take 30.
                    assert!(parts.len() > 9_000, "{} from bit {part} on, bytes {at}", parts.len());
                }
            }
        }
    }
}
