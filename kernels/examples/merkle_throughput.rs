//! How fast differences of memory that changes here and there are found and restored, and how long they are. CSV.
//!
//!     cargo run --release -p ckpt-kernels --example merkle_throughput [MIB [ROUNDS]]
//!
//! One region of MIB (default 256) of noise; ten checkpoints, before each of which a share of all chunks, chosen at random,
//! gets other noise; ROUNDS (default 1) times. Rates are of the region's bytes and wall time on all cores, medians of the ten
//! (and of the rounds); the first checkpoint, of which everything is new, stands apart. Data and metadata are those of the ten
//! together. `held` is what the engine keeps for the next checkpoint. The last checkpoint is
//! restored into memory that has been used before, and compared with the region.
#![allow(clippy::unwrap_used, reason = "a measurement may stop at the first surprise")]

use std::time::Instant;

use ckpt_kernels::merkle::{Difference, Engine, Lineage, Method, Region};

mod machine;
use machine::noise;

const CHECKPOINTS: u32 = 10;

/// What one lineage showed.
#[derive(Default)]
struct Row {
    first_gb_s: Vec<f64>,
    gb_s: Vec<f64>,
    add_ms: Vec<f64>,
    restore_gb_s: Vec<f64>,
    data: u64,
    metadata: usize,
    held: u64,
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().unwrap());
    let (mib, rounds) = (arguments.next().unwrap_or(256), arguments.next().unwrap_or(1));
    machine::print(&format!("cargo run --release -p ckpt-kernels --example merkle_throughput {mib} {rounds}"));
    println!("chunk_bytes,changed_percent,method,first_gb_s,gb_s,data_mib,metadata_mib,held_mib,add_ms,restore_gb_s");
    for chunk_bytes in [128, 4096] {
        for percent in [0.1, 1.0, 10.0] {
            for method in Method::EVERY {
                let mut row = Row::default();
                (0..rounds).for_each(|_| lineage(mib << 20, chunk_bytes, percent, method, &mut row));
                let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
                println!(
                    "{chunk_bytes},{percent},{method:?},{:.2},{:.2},{:.2},{:.3},{:.1},{:.2},{:.2}",
                    median(&mut row.first_gb_s),
                    median(&mut row.gb_s),
                    mib(row.data),
                    mib(row.metadata as u64),
                    mib(row.held),
                    median(&mut row.add_ms),
                    median(&mut row.restore_gb_s),
                );
            }
        }
    }
}

fn lineage(bytes: usize, chunk_bytes: u32, percent: f64, method: Method, row: &mut Row) {
    let mut state = noise(bytes);
    let mut random = 0x2545_f491_4f6c_dd1d;
    let mut engine = Engine::new(chunk_bytes, None).unwrap();
    let mut lineage = Lineage::default();
    let changed = (bytes / chunk_bytes as usize) as f64 * percent / 100.0;
    (row.data, row.metadata) = (0, 0);
    for number in 0..=CHECKPOINTS {
        if number > 0 {
            (0..changed as usize).for_each(|_| change_chunk(&mut state, chunk_bytes as usize, &mut random));
        }
        let mut difference = Difference::default();
        let begun = Instant::now();
        engine.difference(number, method, &[Region { id: 1, bytes: &state }], &mut difference).unwrap();
        let rate = gb_s(bytes, begun);
        if number == 0 {
            row.first_gb_s.push(rate);
        } else {
            row.gb_s.push(rate);
            row.data += difference.head.data_bytes;
            row.metadata += difference.head.metadata_bytes();
        }
        let begun = Instant::now();
        lineage.add(difference).unwrap();
        row.add_ms.push(begun.elapsed().as_secs_f64() * 1e3);
        if method == Method::Full {
            lineage.keep(&[number]).unwrap();
        }
    }
    row.held = engine.held_bytes();
    drop(engine);
    let mut restored = vec![1; bytes];
    let begun = Instant::now();
    lineage.restore_part(CHECKPOINTS, 1, 0, &mut restored).unwrap();
    row.restore_gb_s.push(gb_s(bytes, begun));
    assert!(restored == state, "the last checkpoint is what it was");
}

/// Other noise in a chunk.
fn change_chunk(state: &mut [u8], chunk_bytes: usize, random: &mut u64) {
    let mut next = || {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        *random
    };
    let chunk = next() as usize % (state.len() / chunk_bytes);
    let (words, _) = state[chunk * chunk_bytes..][..chunk_bytes].as_chunks_mut();
    words.iter_mut().for_each(|word| *word = next().to_le_bytes());
}

fn gb_s(bytes: usize, begun: Instant) -> f64 {
    bytes as f64 / begun.elapsed().as_nanos() as f64
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
