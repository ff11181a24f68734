//! How a store names its pages and the nodes of its page lists: chosen when it is made, and the same for ever after.
//!
//! A key is 28 bytes either way, and nothing but this file knows what they are made from. Keys of one digest mean
//! nothing in a store of the other: whoever compares a page with a key asks the key's store for its digest.
//!
//! Many pages are taken at once because SHA-1 is many times faster over many. Large inputs are spread over the cores.

use std::fmt;

pub(crate) use ckpt_kernels::sha1::Page;
use ckpt_kernels::{page_digest, sha1};
use rayon::prelude::*;

use crate::PageKey;

/// Pages hashed together: enough for SHA-1 to fill its lanes although some pages are zero, few enough that they stay in
/// the core's own cache from one digest to the other.
pub(crate) const GROUP_PAGES: usize = 64;

/// What the keys of a store are made from.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Digest {
    /// SHA-1 and XXH3-64 (seed 0), one behind the other. Both must agree for two pages to be the same.
    #[default]
    Sha1,
    /// The first 28 bytes of BLAKE3.
    Blake3,
}

impl Digest {
    /// Every digest.
    pub const ALL: [Digest; 2] = [Digest::Sha1, Digest::Blake3];

    /// Its name on command lines and in variables.
    pub const fn name(self) -> &'static str {
        match self {
            Digest::Sha1 => "sha1",
            Digest::Blake3 => "blake3",
        }
    }

    /// The key of `page`, which is normally [`crate::PAGE_BYTES`] long.
    pub fn key_of(self, page: &[u8]) -> PageKey {
        if page_digest::is_zero(page) { PageKey::ZERO } else { self.key_of_bytes(page) }
    }

    /// The key of bytes that are not a page (a node of a page list): zeros are nothing special.
    pub(crate) fn key_of_bytes(self, bytes: &[u8]) -> PageKey {
        match self {
            Digest::Sha1 => PageKey::from_digests(page_digest::sha1(bytes), page_digest::check64(bytes)),
            Digest::Blake3 => PageKey::from_bytes(page_digest::blake3(bytes)),
        }
    }

    /// The key of every page in `pages`, in order.
    pub fn keys_of(self, pages: &[u8]) -> Vec<PageKey> {
        let of_group = |group: &[Page]| self.keys_of_each(&group.iter().collect::<Vec<_>>());
        let (pages, _) = pages.as_chunks();
        if pages.len() <= GROUP_PAGES {
            return of_group(pages);
        }
        pages.par_chunks(GROUP_PAGES).flat_map_iter(of_group).collect()
    }

    /// Whether the page of `key` is undamaged, as far as can be told in a fraction of the time that its key takes. `false`
    /// says nothing.
    ///
    /// 64 bits of XXH3 tell: of damage by chance they miss one in 2^64. That two pages were made to look alike matters where
    /// they are given one place, not where one is read.
    pub fn is_surely_whole(self, page: &Page, key: &PageKey) -> bool {
        match self {
            Digest::Sha1 => page_digest::check64(page) == key.check64(),
            Digest::Blake3 => false,
        }
    }

    /// The keys of some pages, in order.
    pub(crate) fn keys_of_each(self, pages: &[&Page]) -> Vec<PageKey> {
        match self {
            Digest::Sha1 => sha1_keys(pages),
            Digest::Blake3 => pages.iter().map(|page| self.key_of(*page)).collect(),
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn sha1_keys(pages: &[&Page]) -> Vec<PageKey> {
    let mut keys = vec![PageKey::ZERO; pages.len()];
    let filled: Vec<usize> = (0..pages.len()).filter(|&number| !page_digest::is_zero(pages[number])).collect();
    let to_hash: Vec<&Page> = filled.iter().map(|&number| pages[number]).collect();
    let mut sha1s = vec![[0; 20]; to_hash.len()];
    sha1::sha1_many(&to_hash, &mut sha1s);
    for (number, sha1) in filled.into_iter().zip(sha1s) {
        keys[number] = PageKey::from_digests(sha1, page_digest::check64(pages[number]));
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE_BYTES;

    #[test]
    fn keys_of_many_pages_are_the_keys_of_each_zero_pages_among_them() {
        let mut pages = vec![0; 150 * PAGE_BYTES];
        for (number, page) in pages.chunks_exact_mut(PAGE_BYTES).enumerate().filter(|(number, _)| number % 5 != 0) {
            page[number] = number as u8;
        }
        for (digest, count) in Digest::ALL.into_iter().flat_map(|digest| [0, 1, 17, 64, 65, 150].map(|n| (digest, n))) {
            let pages = &pages[..count * PAGE_BYTES];
            let each: Vec<_> = pages.chunks_exact(PAGE_BYTES).map(|page| digest.key_of(page)).collect();
            assert_eq!(digest.keys_of(pages), each, "{digest}: {count} pages");
        }
    }

    #[test]
    fn a_key_is_made_from_the_published_digest_of_the_page() {
        // Byte i is i % 251: an input of the published test vectors of BLAKE3.
        let page: Vec<u8> = (0..PAGE_BYTES).map(|at| (at % 251) as u8).collect();
        let hex = |digest: Digest| digest.key_of(&page).to_bytes().map(|byte| format!("{byte:02x}")).concat();
        assert_eq!(hex(Digest::Blake3), "015094013f57a5277b59d8475c0501042c0b642e531b0a1c8f58d216");
        let (sha1, check64) = (page_digest::sha1(&page), page_digest::check64(&page));
        assert_eq!(Digest::Sha1.key_of(&page), PageKey::from_digests(sha1, check64));
    }

    #[test]
    fn the_page_of_zeros_has_the_zero_key_in_every_store() {
        for digest in Digest::ALL {
            assert_eq!(digest.key_of(&[0; PAGE_BYTES]), PageKey::ZERO);
            assert!(!digest.key_of_bytes(&[0; PAGE_BYTES]).is_zero(), "a node is not a page");
        }
    }
}
