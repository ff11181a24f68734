//! Page lists of a region of 1 GiB, in memory: made, read, and compared with one of which a hundredth of the pages
//! changed. `scripts/bench micro` runs this.

use std::hint::black_box;

use ckpt_store::{PageKey, PageList};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

const PAGES: u64 = 1 << 18;
/// Pages of one call, as they are written: 8 MiB.
const CALL_PAGES: usize = 2048;
/// Changed pages lie so far apart.
const STEP: usize = 100;

fn key(number: u64) -> PageKey {
    let mut bytes = [7; 28];
    bytes[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    PageKey::from_bytes(bytes)
}

fn list_of(keys: &[PageKey]) -> PageList {
    let mut list = PageList::new();
    for (call, keys) in keys.chunks(CALL_PAGES).enumerate() {
        list.set_run((call * CALL_PAGES) as u64, keys);
    }
    list
}

fn page_lists(criterion: &mut Criterion) {
    let keys: Vec<_> = (0..PAGES).map(key).collect();
    let before = list_of(&keys);
    let changed: Vec<_> = (0..PAGES).step_by(STEP).collect();
    let change = |mut list: PageList| {
        changed.iter().for_each(|page| list.set(*page, key(PAGES + page)));
        list
    };
    let after = change(before.clone());
    let mut group = criterion.benchmark_group("page lists");
    group.throughput(Throughput::Elements(PAGES));
    group.bench_function("made", |b| b.iter(|| list_of(black_box(&keys))));
    group.bench_function("read", |b| b.iter(|| black_box(&before).iter().map(|(page, _)| page).sum::<u64>()));
    group.bench_function("compared", |b| {
        b.iter(|| assert_eq!(black_box(&after).changed_from(&before).count(), changed.len()));
    });
    group.throughput(Throughput::Elements(changed.len() as u64));
    group.bench_function("changed", |b| b.iter_batched(|| before.clone(), change, BatchSize::LargeInput));
}

criterion_group!(benches, page_lists);
criterion_main!(benches);
