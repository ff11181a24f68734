//! SHA-1 (FIPS 180-4) of many pages at once.
//!
//! One SHA-1 is a chain of 80 dependent rounds per 64 bytes, which leaves most of a core idle. Pages are independent
//! of each other, so word `t` of 16 (or 8) pages is put in one vector register, one page per lane, and each instruction
//! advances all of them by the same step. The digests are exactly those of [`page_digest::sha1`].
//!
//! The implementation is chosen when it is used: AVX-512 with 16 lanes; else the `sha1` crate where it has the SHA
//! instructions; else AVX2 with 8 lanes; else the `sha1` crate in portable code. The last group of pages rarely fills
//! all lanes: the free lanes then repeat its pages, unless it is so small that one page after the other is faster.

use std::borrow::Borrow;

use crate::page_digest::{self, PAGE_BYTES};

#[cfg(target_arch = "x86_64")]
#[macro_use]
mod lanes;

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "loads and stores of vectors, and entering code compiled for a CPU feature")]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "loads and stores of vectors, and entering code compiled for a CPU feature")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod constants;
mod implementation;
#[cfg(test)]
mod tests;

pub use implementation::Implementation;

/// A page's bytes.
pub type Page = [u8; PAGE_BYTES];
/// The SHA-1 of a page.
pub type Digest = [u8; 20];

/// SHA-1 of each page of `pages`, in order: `digests[i]` becomes that of bytes `i * 4096..(i + 1) * 4096`.
///
/// # Panics
/// When `pages` is not exactly `digests.len()` pages long.
pub fn sha1_pages(pages: &[u8], digests: &mut [Digest]) {
    sha1_pages_with(Implementation::best(), pages, digests);
}

/// [`sha1_pages`] with a given implementation, for comparing them.
///
/// # Panics
/// Like [`sha1_pages`], and when the CPU cannot run `implementation`.
pub fn sha1_pages_with(implementation: Implementation, pages: &[u8], digests: &mut [Digest]) {
    let (whole, rest) = pages.as_chunks();
    assert!(rest.is_empty(), "{} bytes are not whole pages", pages.len());
    all_with::<Page>(implementation, whole, digests);
}

/// SHA-1 of pages that lie anywhere: `digests[i]` becomes that of `pages[i]`.
///
/// # Panics
/// When there are not as many digests as pages.
pub fn sha1_many(pages: &[&Page], digests: &mut [Digest]) {
    all_with(Implementation::best(), pages, digests);
}

fn all_with<P: Borrow<Page>>(implementation: Implementation, pages: &[P], digests: &mut [Digest]) {
    assert_eq!(pages.len(), digests.len(), "one digest per page");
    assert!(implementation.is_available(), "this CPU cannot run {implementation:?}");
    match implementation {
        #[cfg(target_arch = "x86_64")]
        Implementation::Avx512 => in_lanes(pages, digests, implementation.group_min(), avx512::digests),
        #[cfg(target_arch = "x86_64")]
        Implementation::Avx2 => in_lanes(pages, digests, implementation.group_min(), avx2::digests),
        _ => one_by_one(pages, digests),
    }
}

fn one_by_one<P: Borrow<Page>>(pages: &[P], digests: &mut [Digest]) {
    for (page, digest) in pages.iter().zip(digests) {
        *digest = page_digest::sha1(page.borrow());
    }
}

/// Groups of `LANES` pages through `of_group`; a last group of fewer than `group_min` pages one by one.
#[cfg(target_arch = "x86_64")]
fn in_lanes<P: Borrow<Page>, const LANES: usize>(
    pages: &[P],
    digests: &mut [Digest],
    group_min: usize,
    of_group: fn(&[&Page; LANES]) -> [Digest; LANES],
) {
    for (group, digests) in pages.chunks(LANES).zip(digests.chunks_mut(LANES)) {
        if group.len() < group_min {
            one_by_one(group, digests);
        } else {
            let lanes = std::array::from_fn(|lane| group[lane % group.len()].borrow());
            digests.copy_from_slice(&of_group(&lanes)[..group.len()]);
        }
    }
}
