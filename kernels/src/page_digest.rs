//! Digests of pages, of which there are two kinds; a store uses one of them for all its pages.
//!
//! SHA-1 to find a page, and an independent 64-bit digest that a match must also have: collisions of SHA-1 are published,
//! so two pages count as the same only when XXH3-64 agrees as well (XXH3 is not a cryptographic hash; it is here because
//! it fails on other inputs than SHA-1 does). Or BLAKE3 alone, of which no weakness is known, cut to the same length.

use sha1::{Digest, Sha1};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;

/// SHA-1 (FIPS 180-4) of `page`.
pub fn sha1(page: &[u8]) -> [u8; 20] {
    Sha1::digest(page).into()
}

/// XXH3-64 of `page`, seed 0.
pub fn check64(page: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(page)
}

/// The first 28 bytes of the BLAKE3 hash (not keyed) of `page`: 112 bits against collisions.
pub fn blake3(page: &[u8]) -> [u8; 28] {
    let mut digest = [0; 28];
    digest.copy_from_slice(&blake3::hash(page).as_bytes()[..28]);
    digest
}

/// Whether every byte is zero. Looks at 256 bytes at a time: a page of something else is mostly found out by the first.
pub fn is_zero(page: &[u8]) -> bool {
    let (groups, rest) = page.as_chunks::<256>();
    let any = |bytes: &[u8]| bytes.iter().fold(0, |any, byte| any | byte);
    groups.iter().all(|group| any(group) == 0) && any(rest) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha1_of_the_messages_in_the_standard_is_as_printed_there() {
        let hex = |message: &[u8]| sha1(message).map(|byte| format!("{byte:02x}")).concat();
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hex(two_blocks), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(hex(&[b'a'; 1_000_000]), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }

    #[test]
    fn blake3_of_the_published_test_vectors_is_as_published() {
        // test_vectors.json of the reference implementation: byte i of an input is i % 251.
        for (bytes, expected) in [
            (0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93ca"),
            (1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0"),
            (1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d12"),
            (4096, "015094013f57a5277b59d8475c0501042c0b642e531b0a1c8f58d216"),
        ] {
            let input: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            assert_eq!(blake3(&input).map(|byte| format!("{byte:02x}")).concat(), expected, "{bytes} bytes");
        }
    }

    #[test]
    fn a_page_with_one_bit_set_is_not_zero() {
        let mut page = [0; PAGE_BYTES];
        assert!(is_zero(&page));
        for at in 0..PAGE_BYTES {
            page[at] = 1 << (at % 8);
            assert!(!is_zero(&page), "byte {at}");
            page[at] = 0;
        }
        assert!(is_zero(&page[..300]) && !is_zero(&[[0; 299], [1; 299]].concat()));
    }
}
