//! The units of a slab, against a list of them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "a part of the module is used here")]
mod support {
    pub const SLAB_BYTES: usize = 2 << 20;
}
#[path = "../src/hooks/cuda/backing/places.rs"]
mod places;

use places::Places;

const UNITS: usize = support::SLAB_BYTES / places::UNIT_BYTES;

/// The first gap of so many units.
fn first_gap(taken: &[bool], units: usize) -> Option<usize> {
    taken.windows(units).position(|window| !window.contains(&true))
}

#[test]
fn the_first_gap_that_is_long_enough_is_taken_and_what_is_given_back_can_be_taken_again() {
    let mut places = Places::new();
    let mut taken = vec![false; UNITS];
    let mut held = Vec::new();
    let mut seed = 1_u64;
    for _ in 0..20_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let number = (seed >> 33) as usize;
        if number.is_multiple_of(3) && !held.is_empty() {
            let (first, units): (usize, usize) = held.swap_remove(number / 3 % held.len());
            assert!(!places.has_only(units) || held.is_empty());
            places.give_back(first, units);
            taken[first..first + units].fill(false);
        } else {
            let units = 1 + number / 3 % 200;
            let first = places.take(units);
            assert_eq!(first, first_gap(&taken, units));
            if let Some(first) = first {
                taken[first..first + units].fill(true);
                held.push((first, units));
            }
        }
    }
}

#[test]
fn a_slab_can_be_taken_as_a_whole() {
    let mut places = Places::new();
    assert_eq!(places.take(UNITS + 1), None);
    assert_eq!(places.take(UNITS), Some(0));
    assert_eq!(places.take(1), None);
    assert!(places.has_only(UNITS));
    places.give_back(0, UNITS);
    assert_eq!(places.take(1), Some(0));
}
