//! One input after the other, on any CPU.

use super::Digest;

pub(super) const C1: u64 = 0x87c3_7b91_1142_53d5;
pub(super) const C2: u64 = 0x4cf5_ad43_2745_937f;
pub(super) const ADD_1: u64 = 0x52dc_e729;
pub(super) const ADD_2: u64 = 0x3849_5ab5;
pub(super) const AVALANCHE_1: u64 = 0xff51_afd7_ed55_8ccd;
pub(super) const AVALANCHE_2: u64 = 0xc4ce_b9fe_1a85_ec53;

pub(super) fn digest(bytes: &[u8], seed: u32) -> Digest {
    let (blocks, tail) = bytes.as_chunks::<16>();
    let (mut h1, mut h2) = (u64::from(seed), u64::from(seed));
    for block in blocks {
        let (k1, k2) = words(block);
        h1 = (h1 ^ mixed_1(k1)).rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(ADD_1);
        h2 = (h2 ^ mixed_2(k2)).rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(ADD_2);
    }
    // Bytes that are not there are zeros, and a word of zeros changes nothing.
    let mut last = [0; 16];
    last[..tail.len()].copy_from_slice(tail);
    let (k1, k2) = words(&last);
    finished(h1 ^ mixed_1(k1), h2 ^ mixed_2(k2), bytes.len() as u64)
}

fn words(block: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*block);
    (both as u64, (both >> 64) as u64)
}

fn mixed_1(k1: u64) -> u64 {
    k1.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mixed_2(k2: u64) -> u64 {
    k2.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn finished(h1: u64, h2: u64, length: u64) -> Digest {
    let (h1, h2) = (h1 ^ length, h2 ^ length);
    let h1 = h1.wrapping_add(h2);
    let h2 = h2.wrapping_add(h1);
    let (h1, h2) = (avalanche(h1), avalanche(h2));
    let h1 = h1.wrapping_add(h2);
    let h2 = h2.wrapping_add(h1);
    (u128::from(h1) | u128::from(h2) << 64).to_le_bytes()
}

fn avalanche(mut word: u64) -> u64 {
    word ^= word >> 33;
    word = word.wrapping_mul(AVALANCHE_1);
    word ^= word >> 33;
    word = word.wrapping_mul(AVALANCHE_2);
    word ^ word >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The word that is 1 when it is multiplied by an odd one.
    fn inverse(word: u64) -> u64 {
        (0..6).fold(word, |found, _| found.wrapping_mul(2u64.wrapping_sub(word.wrapping_mul(found))))
    }

    /// The block's first or second word that is mixed into `mixed`.
    fn unmixed(mixed: u64, first: u64, turns: u32, second: u64) -> u64 {
        mixed.wrapping_mul(inverse(second)).rotate_right(turns).wrapping_mul(inverse(first))
    }

    #[test]
    fn a_secret_seed_tells_no_chunks_apart_that_were_made_to_collide() {
        // A difference in the highest bit passes additions and multiplications by 5 as it is, whatever else is added.
        let (a1, a2, a3, a4) = (0x0123_4567_89ab_cdef_u64, 77_u64, 5_u64, 0xfeed_u64);
        let chunk = |d1: u64, d2: u64, d3: u64| {
            let first = |mixed| unmixed(mixed, C1, 31, C2);
            let second = |mixed| unmixed(mixed, C2, 33, C1);
            [first(a1 ^ d1), second(a2 ^ d2), first(a3 ^ d3), second(a4)].map(u64::to_le_bytes).concat()
        };
        let (one, other) = (chunk(0, 0, 0), chunk(1 << 36, 1 << 32, 1 << 63));
        assert_ne!(one, other);
        for seed in (0..1000).chain([u32::MAX, 0xdead_beef]) {
            assert_eq!(digest(&one, seed), digest(&other, seed), "seed {seed}");
        }
    }

    #[test]
    fn digests_are_those_of_the_murmur3_crate_for_every_length_and_alignment() {
        let bytes: Vec<u8> = (0..4_200_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for length in (0..300).chain([511, 512, 1000, 4095, 4096, 4097]) {
            for (start, seed) in [(0, 0), (1, 7), (3, u32::MAX)] {
                let input = &bytes[start..start + length];
                let expected = murmur3::murmur3_x64_128(&mut &input[..], seed).unwrap();
                assert_eq!(digest(input, seed), expected.to_le_bytes(), "{length} bytes from {start}, seed {seed}");
            }
        }
    }
}
