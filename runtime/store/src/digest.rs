//! Keys of many pages at once: the hot loop of writing and of verifying.
//!
//! The digest is a function value so that a test can put a weaker one in its place and see what happens when two pages
//! collide; everything outside tests uses `PageKey::of`. Large inputs are spread over the cores.

use rayon::prelude::*;

use crate::{PAGE_BYTES, PageKey};

/// The key of one page.
pub(crate) type PageDigest = fn(&[u8]) -> PageKey;

/// Pages per task: large enough that handing it to another core costs nothing next to the hashing (about 50 us).
const PAGES_PER_TASK: usize = 16;

/// The key of every page in `pages`, in order.
pub(crate) fn keys_of(digest: PageDigest, pages: &[u8]) -> Vec<PageKey> {
    if pages.len() <= PAGES_PER_TASK * PAGE_BYTES {
        return pages.chunks_exact(PAGE_BYTES).map(digest).collect();
    }
    pages.par_chunks_exact(PAGE_BYTES).with_min_len(PAGES_PER_TASK).map(digest).collect()
}
