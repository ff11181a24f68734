//! The table of page keys, of 10^5 to 10^7 entries: filled, asked for keys that are there and for keys that are not,
//! 256 at a time, on one thread. `scripts/bench micro` runs this and holds it against the targets;
//! examples/key_table.rs has other tables beside it, memory and pauses.

use std::hint::black_box;

use ckpt_store::PageKey;
use ckpt_store::key_table::{Entry, KeyTable, Place};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Keys of one call, as pages are written and looked up.
const CALL_KEYS: usize = 256;
/// Keys that are looked up in one measurement.
const ASKED: usize = 1 << 16;

/// How many entries; few where each benchmark only has to run.
fn entry_counts() -> &'static [usize] {
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    if is_measured { &[100_000, 1_000_000, 10_000_000] } else { &[ASKED] }
}

/// The keys with numbers from `first` on, which look like digests: all are different, and in no order (splitmix64).
fn keys(first: usize, count: usize) -> impl Iterator<Item = PageKey> {
    (first..first + count).map(|number| {
        let mut mixed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let mut bytes = [0; 28];
        for (part, salt) in bytes.chunks_mut(8).zip(0..) {
            part.copy_from_slice(&mixed.rotate_left(salt * 16).to_le_bytes()[..part.len()]);
        }
        PageKey::from_bytes(bytes)
    })
}

fn entries(count: usize) -> Vec<Entry> {
    keys(0, count).zip(0..).map(|(key, item)| Entry { key, place: Place { pack: 1, item } }).collect()
}

fn filled(entries: &[Entry]) -> KeyTable {
    let mut table = KeyTable::default();
    entries.chunks(CALL_KEYS).for_each(|entries| table.insert_many(entries.iter().copied()));
    table
}

/// Some keys of the table, far from one another.
fn spread(entries: &[Entry]) -> Vec<PageKey> {
    // An odd number of steps goes through all of them before it comes back, near enough.
    (0..ASKED).map(|number| entries[number * 7_919_993 % entries.len()].key).collect()
}

fn key_table(criterion: &mut Criterion) {
    for count in entry_counts() {
        let entries = entries(*count);
        let mut group = criterion.benchmark_group("key table");
        group.sample_size(10);
        group.throughput(Throughput::Elements(*count as u64));
        group.bench_with_input(BenchmarkId::new("insert", count), &entries, |b, entries| {
            // The table is dropped behind the measurement.
            b.iter_batched(|| (), |()| filled(entries), BatchSize::PerIteration);
        });
        let table = filled(&entries);
        assert_eq!(table.len(), *count);
        group.throughput(Throughput::Elements(ASKED as u64));
        for (name, asked, found) in
            [("find", spread(&entries), ASKED), ("miss", keys(*count, ASKED).collect::<Vec<_>>(), 0)]
        {
            group.bench_with_input(BenchmarkId::new(name, count), &asked, |b, asked| {
                b.iter(|| {
                    let calls = black_box(asked).chunks(CALL_KEYS);
                    let count: usize = calls.map(|keys| table.get_many(keys).flatten().count()).sum();
                    assert_eq!(count, found);
                });
            });
        }
    }
}

criterion_group!(benches, key_table);
criterion_main!(benches);
