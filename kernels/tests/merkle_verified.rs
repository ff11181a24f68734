//! Chunks made to have the digest of another: found by comparing, and then stored.
#![allow(clippy::unwrap_used, reason = "a test")]

use ckpt_kernels::{
    merkle::{Difference, Engine, Lineage, Method, Region, take_verified},
    murmur3::murmur3,
};

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
fn states() -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let state: Vec<u8> = (0..200_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (mut in_place, mut elsewhere) = (state.clone(), state.clone());
    in_place[64..96].copy_from_slice(&forged(&state[64..96]));
    elsewhere[128..160].copy_from_slice(&forged(&state[64..96]));
    (state, in_place, elsewhere)
}

#[test]
fn a_forged_chunk_is_found_and_the_checkpoint_is_taken_again() {
    let (state, in_place, elsewhere) = states();
    for method in [Method::Basic, Method::List, Method::Tree] {
        for (forged, offset, is_found) in [(&in_place, 64 + 3, true), (&elsewhere, 128, method != Method::Basic)] {
            let (mut engine, mut lineage) = (Engine::new(32, None).unwrap(), Lineage::default());
            let mut take = |number, bytes| {
                take_verified(&mut engine, &mut lineage, number, method, &[Region { id: 7, bytes }]).unwrap()
            };
            assert_eq!(take(1, &state).1, None);
            let (taken, mismatch) = take(2, forged);
            assert_eq!(mismatch.map(|it| (it.region, it.offset / 32)), is_found.then_some((7, offset / 32)));
            assert_eq!(taken.method, if is_found { Method::Basic } else { method });
            // After it, all is as always.
            let mut last = forged.clone();
            last[190] ^= 1;
            let (taken, mismatch) = take(3, &last);
            assert_eq!(
                (taken.method, taken.head.previous, taken.head.data_bytes, mismatch),
                (method, Some(2), 32, None)
            );
            for (number, bytes) in [(1, &state), (2, forged), (3, &last)] {
                assert_eq!(lineage.restore(number).unwrap(), [(7, bytes.clone())]);
            }
        }
    }
}

#[test]
fn whoever_does_not_compare_restores_the_wrong_bytes() {
    let (state, in_place, elsewhere) = states();
    for forged in [in_place, elsewhere] {
        let (mut engine, mut lineage) = (Engine::new(32, None).unwrap(), Lineage::default());
        for (number, bytes) in (1..).zip([&state, &forged]) {
            let mut difference = Difference::default();
            engine.difference(number, Method::Tree, &[Region { id: 7, bytes }], &mut difference).unwrap();
            lineage.add(difference).unwrap();
        }
        assert!(lineage.restore(2).unwrap() != [(7, forged.clone())]);
        assert!(lineage.mismatch(2, &[Region { id: 7, bytes: &forged }]).unwrap().is_some());
    }
}

#[test]
fn the_first_byte_that_differs_is_named() {
    let a: Vec<u8> = (0..5_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let b = a[..4_000].to_vec();
    let regions = [Region { id: 5, bytes: &a }, Region { id: 3, bytes: &b }, Region { id: 4, bytes: &[] }];
    let (mut engine, mut lineage) = (Engine::new(64, None).unwrap(), Lineage::default());
    take_verified(&mut engine, &mut lineage, 9, Method::Tree, &regions).unwrap();
    let mismatch = |regions: &[Region<'_>]| lineage.mismatch(9, regions).unwrap().map(|it| (it.region, it.offset));
    assert_eq!(mismatch(&regions), None);
    for offsets in [&[0][..], &[4_999_999], &[2_000_001, 4_000_000], &[1_048_576], &[1_048_575]] {
        let mut live = a.clone();
        offsets.iter().for_each(|offset| live[*offset] ^= 0x10);
        let live = Region { id: 5, bytes: &live };
        assert_eq!(mismatch(&[live, regions[1], regions[2]]), Some((5, offsets[0] as u64)));
        assert_eq!(mismatch(&[regions[1], regions[2], live]), Some((5, offsets[0] as u64)));
    }
    let with = |a, b| [Region { id: 5, bytes: a }, Region { id: 3, bytes: b }, regions[2]];
    assert_eq!(mismatch(&with(&a[..70], &b)), Some((5, 70)));
    assert_eq!(mismatch(&with(&a, &a[..4_001])), Some((3, 4_000)));
    assert_eq!(mismatch(&regions[..2]), Some((4, 0)));
    assert_eq!(mismatch(&[regions[0], regions[1], regions[2], Region { id: 8, bytes: &[] }]), Some((8, 0)));
}
