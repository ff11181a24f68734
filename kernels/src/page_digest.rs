//! Digests of pages: SHA-1 to find a page, and an independent 64-bit digest that a match must also have.
//!
//! Collisions of SHA-1 are published, so two pages count as the same only when XXH3-64 agrees as well
//! (XXH3 is not a cryptographic hash; it is here because it fails on other inputs than SHA-1 does).

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
