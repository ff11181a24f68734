//! How fast the digests of pages are on one core, in GB/s.
//!
//!     cargo run --release -p ckpt-kernels --example sha1_throughput [PAGES]
//!
//! PAGES (default 256: 1 MiB) are hashed over and over; a sample is at least 32 MiB. All rows take turns within each of
//! the 15 rounds, so that a busy or slow moment hits all alike; the table has the median, the best, and the ratio of
//! the best to the best of the `sha1` crate. With few pages they come from the cache, with many from memory. Seconds are
//! processor time of the one thread, so that what else runs on the machine takes caches from it and nothing more.
#![allow(clippy::unwrap_used, reason = "a measurement may stop at the first surprise")]

use std::hint::black_box;

use ckpt_kernels::{
    page_digest::{PAGE_BYTES, blake3, check64, is_zero},
    sha1::{Digest, Implementation, sha1_pages_with},
};

mod machine;
use machine::{cpu_ns, noise};

const ROUNDS: usize = 15;
const SAMPLE_BYTES: usize = 32 << 20;

type Work<'a> = Box<dyn FnMut() + 'a>;

fn main() {
    let count: usize = std::env::args().nth(1).map_or(256, |pages| pages.parse().unwrap());
    machine::print(&format!("cargo run --release -p ckpt-kernels --example sha1_throughput {count}"));
    println!("# GB/s on one core, {ROUNDS} samples each; best here: {:?}", Implementation::best());
    let pages = noise(count * PAGE_BYTES);
    let mut zeros = vec![1_u8; count * PAGE_BYTES];
    black_box(&mut zeros).fill(0);
    let mut rows: Vec<(String, Work)> = Vec::new();
    rows.push(("sha1 crate".into(), Box::new(|| hash(Implementation::OneByOne, &pages))));
    for implementation in [Implementation::Avx2, Implementation::Avx512] {
        if implementation.is_available() {
            let pages = &pages;
            rows.push((format!("SHA-1 {implementation:?}"), Box::new(move || hash(implementation, pages))));
        } else {
            println!("# skipped: this CPU cannot run {implementation:?}");
        }
    }
    rows.push(("BLAKE3".into(), Box::new(|| each(&pages, blake3))));
    rows.push(("XXH3-64".into(), Box::new(|| each(&pages, check64))));
    rows.push(("is_zero, zeros".into(), Box::new(|| each(&zeros, is_zero))));
    rows.push(("is_zero, noise".into(), Box::new(|| each(&pages, is_zero))));
    let mut samples = vec![Vec::new(); rows.len()];
    for _ in 0..ROUNDS {
        for ((_, work), samples) in rows.iter_mut().zip(&mut samples) {
            samples.push(sample(work, pages.len()));
        }
    }
    samples.iter_mut().for_each(|samples| samples.sort_by(f64::total_cmp));
    println!("{:<16} {:>8} {:>8} {:>6}", "implementation", "median", "best", "ratio");
    for ((name, _), sorted) in rows.iter().zip(&samples) {
        let (median, best) = (sorted[ROUNDS / 2], sorted[ROUNDS - 1]);
        println!("{name:<16} {median:>8.2} {best:>8.2} {:>6.2}", best / samples[0][ROUNDS - 1]);
    }
}

fn hash(implementation: Implementation, pages: &[u8]) {
    let mut digests: Vec<Digest> = vec![[0; 20]; pages.len() / PAGE_BYTES];
    sha1_pages_with(implementation, black_box(pages), &mut digests);
    black_box(digests);
}

fn each<T>(pages: &[u8], of_page: impl Fn(&[u8]) -> T) {
    black_box(pages).chunks_exact(PAGE_BYTES).for_each(|page| _ = black_box(of_page(page)));
}

/// GB/s of `work`, which goes through `bytes`.
fn sample(work: &mut Work, bytes: usize) -> f64 {
    let times = SAMPLE_BYTES.div_ceil(bytes);
    let begun = cpu_ns();
    (0..times).for_each(|_| work());
    (times * bytes) as f64 / (cpu_ns() - begun) as f64
}
