//! Chunks made to have the digest of another: found by comparing, and then stored.
#![allow(clippy::unwrap_used, reason = "a test")]

mod forged;

use ckpt_kernels::merkle::{Difference, Engine, Lineage, Method, Region, take_verified};
use forged::states;

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
