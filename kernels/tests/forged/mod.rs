//! Chunks made to have the digest of another. Murmur3 is no cryptographic hash: its steps can be undone.
#![allow(clippy::unwrap_used, reason = "for tests")]

use ckpt_kernels::murmur3::murmur3;

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// The inverse of an odd number, modulo 2^64.
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |inverse, _| inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse))))
}

fn words(block: &[u8]) -> [u64; 2] {
    [0, 8].map(|at| u64::from_le_bytes(block[at..at + 8].try_into().unwrap()))
}

/// The state of Murmur3-x64-128 after a block.
fn after([h1, h2]: [u64; 2], block: &[u8]) -> [u64; 2] {
    let [k1, k2] = words(block);
    let h1 = h1 ^ k1.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
    let h2 = h2 ^ k2.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    [h1, h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5)]
}

/// The block that leads from one state to another.
fn block_between([h1, h2]: [u64; 2], [to1, to2]: [u64; 2]) -> [u8; 16] {
    let before_5 = |to: u64, added: u64| to.wrapping_sub(added).wrapping_mul(inverse(5));
    let k1 = h1 ^ before_5(to1, 0x52dc_e729).wrapping_sub(h2).rotate_right(27);
    let k2 = h2 ^ before_5(to2, 0x3849_5ab5).wrapping_sub(to1).rotate_right(31);
    let k1 = k1.wrapping_mul(inverse(C2)).rotate_right(31).wrapping_mul(inverse(C1));
    let k2 = k2.wrapping_mul(inverse(C1)).rotate_right(33).wrapping_mul(inverse(C2));
    [k1.to_le_bytes(), k2.to_le_bytes()].concat().try_into().unwrap()
}

/// Another chunk of 32 bytes with the digest of this one. Its first byte that differs is byte 3.
fn forged(chunk: &[u8]) -> Vec<u8> {
    let mut forged = chunk.to_vec();
    forged[3] ^= 0x40;
    let end = after(after([0, 0], &chunk[..16]), &chunk[16..]);
    let second = block_between(after([0, 0], &forged[..16]), end);
    forged[16..].copy_from_slice(&second);
    assert!(forged != chunk && murmur3(&forged, 0) == murmur3(chunk, 0));
    forged
}

/// A region; the same with a forged chunk in its place; the same with a forged chunk elsewhere.
pub fn states() -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let state: Vec<u8> = (0..200_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (mut in_place, mut elsewhere) = (state.clone(), state.clone());
    in_place[64..96].copy_from_slice(&forged(&state[64..96]));
    elsewhere[128..160].copy_from_slice(&forged(&state[64..96]));
    (state, in_place, elsewhere)
}
