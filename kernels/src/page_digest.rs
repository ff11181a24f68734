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

/// Whether every byte is zero.
pub fn is_zero(page: &[u8]) -> bool {
    page.chunks(64).all(|line| line.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha1_of_abc_is_the_one_in_the_standard() {
        assert_eq!(
            sha1(b"abc"),
            [
                0xa9, 0x99, 0x3e, 0x36, 0x47, 0x06, 0x81, 0x6a, 0xba, 0x3e, 0x25, 0x71, 0x78, 0x50, 0xc2, 0x6c, 0x9c,
                0xd0, 0xd8, 0x9d
            ]
        );
    }

    #[test]
    fn a_page_with_one_bit_set_is_not_zero() {
        let mut page = [0; PAGE_BYTES];
        assert!(is_zero(&page));
        page[PAGE_BYTES - 1] = 1;
        assert!(!is_zero(&page));
    }
}
