//! Digests of pages and of chunks on one core: of 64 pages, as many as a store hashes together, which stay in the
//! cache, and of 16,384, which come from memory. `scripts/bench micro` runs this and holds it against the targets.

use std::hint::black_box;

use ckpt_kernels::page_digest::{self, PAGE_BYTES};
use ckpt_kernels::{murmur3, sha1};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

#[path = "../examples/machine/mod.rs"]
#[allow(dead_code, reason = "noise alone is needed")]
mod machine;

const FROM_CACHE: usize = 64;
const FROM_MEMORY: usize = 16 << 10;

/// How many pages; few where each benchmark only has to run.
fn page_counts() -> &'static [usize] {
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    if is_measured { &[FROM_CACHE, FROM_MEMORY] } else { &[FROM_CACHE] }
}

fn pages(criterion: &mut Criterion) {
    for count in page_counts() {
        let pages = machine::noise(count * PAGE_BYTES);
        let zeros = vec![0; count * PAGE_BYTES];
        let mut group = criterion.benchmark_group("pages");
        group.throughput(Throughput::Bytes(pages.len() as u64));
        for implementation in sha1::Implementation::ALL.into_iter().filter(|it| it.is_available()) {
            let mut digests = vec![[0; 20]; *count];
            group.bench_with_input(BenchmarkId::new(format!("SHA-1 {implementation:?}"), count), &pages, |b, pages| {
                b.iter(|| sha1::sha1_pages_with(implementation, black_box(pages), &mut digests));
            });
        }
        let mut of_each = |name: &str, bytes: &[u8], digest: &dyn Fn(&[u8]) -> u64| {
            group.bench_with_input(BenchmarkId::new(name, count), bytes, |b, bytes| {
                b.iter(|| black_box(bytes).chunks_exact(PAGE_BYTES).map(digest).fold(0, u64::wrapping_add));
            });
        };
        of_each("XXH3-64", &pages, &page_digest::check64);
        of_each("BLAKE3", &pages, &|page| u64::from(page_digest::blake3(page)[0]));
        of_each("is_zero of zeros", &zeros, &|page| u64::from(page_digest::is_zero(page)));
    }
}

fn chunks(criterion: &mut Criterion) {
    let bytes = machine::noise(512 << 10);
    let mut group = criterion.benchmark_group("chunks");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    for implementation in murmur3::Implementation::ALL.into_iter().filter(|it| it.is_available()) {
        for chunk_bytes in [64, 128, 512, 4096] {
            let mut digests = vec![murmur3::Digest::default(); bytes.len().div_ceil(chunk_bytes)];
            let id = BenchmarkId::new(format!("Murmur3 {implementation:?}"), chunk_bytes);
            group.bench_with_input(id, &bytes, |b, bytes| {
                b.iter(|| {
                    murmur3::murmur3_chunks_with(implementation, black_box(bytes), chunk_bytes, 0, &mut digests);
                });
            });
        }
    }
}

criterion_group!(benches, pages, chunks);
criterion_main!(benches);
