//! Every implementation that this CPU can run, against the `sha1` crate.

use std::io::Write as _;

use sha1::{Digest as _, Sha1};

use super::*;

/// The most pages tried at once: two full groups of 16 lanes and every size of the last one.
const PAGES_MAX: usize = 40;

/// Bytes that differ from page to page and between `seed`s (xorshift64).
fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ seed;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn expected(pages: &[u8]) -> Vec<Digest> {
    pages.chunks(PAGE_BYTES).map(|page| Sha1::digest(page).into()).collect()
}

/// Calls `check` for each implementation, and says which ones the CPU lacks.
fn with_each(check: impl Fn(Implementation)) {
    for implementation in Implementation::ALL {
        if implementation.is_available() {
            check(implementation);
        } else {
            // Not println!, which a passing test keeps to itself.
            writeln!(std::io::stderr(), "skipped: this CPU cannot run {implementation:?}").unwrap();
        }
    }
}

fn assert_digests(implementation: Implementation, pages: &[u8]) {
    let mut digests = vec![[0xee; 20]; pages.len() / PAGE_BYTES];
    sha1_pages_with(implementation, pages, &mut digests);
    assert_eq!(digests, expected(pages), "{implementation:?}, {} pages", digests.len());
}

#[test]
fn every_count_of_pages_has_the_digests_of_the_sha1_crate() {
    let pages = noise(PAGES_MAX * PAGE_BYTES, 1);
    with_each(|implementation| {
        (0..=PAGES_MAX).for_each(|count| assert_digests(implementation, &pages[..count * PAGE_BYTES]));
    });
}

#[test]
fn pages_may_begin_at_any_address() {
    let bytes = noise(17 * PAGE_BYTES + 64, 2);
    with_each(|implementation| {
        (0..64).for_each(|shift| assert_digests(implementation, &bytes[shift..shift + 17 * PAGE_BYTES]));
    });
}

#[test]
fn pages_of_zeros_and_of_ones_are_like_any_other() {
    with_each(|implementation| {
        for byte in [0x00, 0xff, 0x80, 0x7f] {
            assert_digests(implementation, &[byte; 20 * PAGE_BYTES]);
        }
    });
}

#[test]
fn each_bit_of_a_page_reaches_the_digest_of_its_own_lane() {
    let mut pages = vec![0; 16 * PAGE_BYTES];
    for (i, bit) in noise(4096, 3).into_iter().enumerate().step_by(61) {
        pages[(i % 16) * PAGE_BYTES + i] ^= 1 << (bit % 8);
        with_each(|implementation| assert_digests(implementation, &pages));
    }
}

#[test]
fn pages_that_lie_apart_are_hashed_in_the_order_given() {
    let bytes = noise(PAGES_MAX * PAGE_BYTES, 4);
    let (pages, _) = bytes.as_chunks();
    let apart: Vec<&Page> = pages.iter().rev().step_by(3).collect();
    let mut digests = vec![[0; 20]; apart.len()];
    sha1_many(&apart, &mut digests);
    let wanted: Vec<Digest> = apart.iter().map(|page| Sha1::digest(page).into()).collect();
    assert_eq!(digests, wanted);
}

#[test]
fn the_best_implementation_is_one_that_is_available() {
    assert!(Implementation::best().is_available());
}
