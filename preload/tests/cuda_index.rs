//! The index of the CUDA driver's allocations against an ordered map.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../src/hooks/cuda/index.rs"]
mod index;

/// What the index asks of the module that makes system calls.
mod sys {
    /// Zeros that stay for ever.
    pub fn map_zeros(bytes: usize) -> Result<*mut u8, ()> {
        Ok(vec![0_u64; bytes.div_ceil(8)].leak().as_mut_ptr().cast())
    }
}

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use ckpt_wire::allocations::CudaAllocation;
use index::Index;

/// A number from a seed (Steele, Lea, Flood: SplitMix64).
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *seed;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The index and the map side by side.
#[derive(Default)]
struct Pair {
    model: BTreeMap<u64, *mut CudaAllocation>,
}

impl Pair {
    fn agree(&self, index: &mut Index<CudaAllocation>, address: u64) {
        let first = |range: RangeInclusive<u64>| self.model.range(range).next().map(|(&at, &record)| (at, record));
        assert_eq!(index.first_from(address), first(address..=u64::MAX));
        let last = self.model.range(..=address).next_back().map(|(&at, &record)| (at, record));
        assert_eq!(index.last_to(address), last);
    }
}

#[test]
fn random_insertions_removals_and_questions_are_answered_as_by_an_ordered_map() {
    for (seed, places) in [(1, 40), (2, 3000), (3, 200_000)] {
        let (mut index, mut pair, mut seed) = (Index::new(), Pair::default(), seed);
        // It grows, shrinks to nothing, and grows again.
        for (round, insertions) in [70, 20, 60, 5, 55].into_iter().enumerate() {
            for _ in 0..20_000 {
                let address = 512 * (1 + next(&mut seed) % places);
                let record = (address + round as u64 + 1) as *mut CudaAllocation;
                if next(&mut seed) % 100 < insertions {
                    if let std::collections::btree_map::Entry::Vacant(place) = pair.model.entry(address) {
                        place.insert(record);
                        assert!(index.insert(address, record));
                    }
                } else {
                    assert_eq!(index.remove(address), pair.model.remove(&address));
                }
                pair.agree(&mut index, next(&mut seed) % (512 * places + 1024));
            }
        }
        let all: Vec<u64> = pair.model.keys().copied().collect();
        for address in all {
            assert!(index.remove(address).is_some());
        }
        assert_eq!((index.first_from(0), index.last_to(u64::MAX), index.remove(512)), (None, None, None));
    }
}

#[test]
fn ascending_and_descending_addresses_fill_it_evenly() {
    for descending in [false, true] {
        let mut index = Index::new();
        let addresses = (1..=100_000_u64).map(|at| if descending { 100_001 - at } else { at } * 4096);
        for address in addresses {
            assert!(index.insert(address, address as *mut CudaAllocation));
        }
        let mut from = 0;
        for at in 1..=100_000 {
            let (address, _) = index.first_from(from).unwrap();
            assert_eq!(address, at * 4096);
            from = address + 1;
        }
    }
}
