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
