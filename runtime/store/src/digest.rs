//! Keys of many pages at once: the hot loop of writing and of verifying.
//!
//! The digest is a function value so that a test can put a weaker one in its place and see what happens when two pages
//! collide; everything outside tests uses [`keys_of_each`]. It takes many pages because SHA-1 is many times faster over
//! many. Large inputs are spread over the cores.

pub(crate) use ckpt_kernels::sha1::Page;
use ckpt_kernels::{page_digest, sha1};
use rayon::prelude::*;

use crate::PageKey;

/// The keys of some pages, in order.
pub(crate) type PagesDigest = fn(&[&Page]) -> Vec<PageKey>;

/// Pages hashed together: enough for SHA-1 to fill its lanes although some pages are zero, few enough that they stay in
/// the core's own cache from one digest to the other.
pub(crate) const GROUP_PAGES: usize = 64;

/// The key of every page in `pages`, in order.
pub(crate) fn keys_of(digest: PagesDigest, pages: &[u8]) -> Vec<PageKey> {
    let of_group = |group: &[Page]| digest(&group.iter().collect::<Vec<_>>());
    let (pages, _) = pages.as_chunks();
    if pages.len() <= GROUP_PAGES {
        return of_group(pages);
    }
    pages.par_chunks(GROUP_PAGES).flat_map_iter(of_group).collect()
}

/// [`PageKey::of`] of each page.
pub(crate) fn keys_of_each(pages: &[&Page]) -> Vec<PageKey> {
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
        for count in [0, 1, 2, 16, 17, 64, 65, 150] {
            let pages = &pages[..count * PAGE_BYTES];
            let each: Vec<_> = pages.chunks_exact(PAGE_BYTES).map(PageKey::of).collect();
            assert_eq!(keys_of(keys_of_each, pages), each, "{count} pages");
        }
    }
}
