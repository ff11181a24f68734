//! Compression and decompression of one page run of 256 KiB by each codec, on one core: text, a run of which every
//! other page is noise, and noise, which is to be given up soon. `scripts/bench micro` runs this.

use std::hint::black_box;

use ckpt_store::fuzzing::{decode_run, encode_run};
use ckpt_store::{Compression, PAGE_BYTES};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const RUN_BYTES: usize = 64 * PAGE_BYTES;
const WORDS: &str = "page run pack store region digest manifest checkpoint the of and is in to that a by with";

fn noise() -> impl Iterator<Item = u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::from_fn(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Some((state.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
    })
}

/// Words in no order.
fn text() -> Vec<u8> {
    let words: Vec<_> = WORDS.split(' ').collect();
    let text = noise().flat_map(|number| words[usize::from(number) % words.len()].bytes().chain([b' ']));
    text.take(RUN_BYTES).collect()
}

/// Text and noise, page by page in turn.
fn half() -> Vec<u8> {
    let (text, noise) = (text(), noise().take(RUN_BYTES).collect::<Vec<_>>());
    let pages = text.chunks(PAGE_BYTES).zip(noise.chunks(PAGE_BYTES)).enumerate();
    pages.flat_map(|(page, (text, noise))| if page % 2 == 0 { text } else { noise }).copied().collect()
}

fn codecs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("codecs");
    group.throughput(Throughput::Bytes(RUN_BYTES as u64));
    for (content, run) in [("text", text()), ("half", half()), ("noise", noise().take(RUN_BYTES).collect())] {
        for compression in [Compression::Lz4, Compression::Zstd] {
            group.bench_with_input(BenchmarkId::new(format!("{compression:?} encode"), content), &run, |b, run| {
                b.iter(|| encode_run(compression, black_box(run)));
            });
            let Some(encoded) = encode_run(compression, &run) else { continue };
            let mut room = vec![0; RUN_BYTES];
            assert!(decode_run(&encoded, &mut room) && room == run);
            let id = BenchmarkId::new(format!("{compression:?} decode"), content);
            group.bench_with_input(id, &encoded, |b, encoded| b.iter(|| decode_run(black_box(encoded), &mut room)));
        }
    }
}

criterion_group!(benches, codecs);
criterion_main!(benches);
