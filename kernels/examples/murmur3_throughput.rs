//! How fast the digests of chunks are on one core, in GB/s.
//!
//!     cargo run --release -p ckpt-kernels --example murmur3_throughput [KIB]
//!
//! KIB (default 512) of noise are hashed over and over in chunks of each length; a sample is at least 32 MiB. All rows take
//! turns within each of the 15 rounds; the table has the median and the best. With few KiB the bytes come from the cache,
//! with many from memory. Seconds are processor time of the one thread.
#![allow(clippy::unwrap_used, reason = "a measurement may stop at the first surprise")]

use std::hint::black_box;

use ckpt_kernels::murmur3::{Digest, Implementation, murmur3_chunks_with};

mod machine;
use machine::{cpu_ns, noise};

const ROUNDS: usize = 15;
const SAMPLE_BYTES: usize = 32 << 20;
const CHUNK_BYTES: [usize; 7] = [32, 64, 128, 292, 512, 4096, 65536];

fn main() {
    let kib: usize = std::env::args().nth(1).map_or(512, |kib| kib.parse().unwrap());
    machine::print(&format!("cargo run --release -p ckpt-kernels --example murmur3_throughput {kib}"));
    let bytes = noise(kib << 10);
    let available = Implementation::ALL.into_iter().filter(|implementation| implementation.is_available());
    let rows: Vec<_> = available.flat_map(|it| CHUNK_BYTES.map(|chunk_bytes| (it, chunk_bytes))).collect();
    let mut samples = vec![Vec::new(); rows.len()];
    for _ in 0..ROUNDS {
        for ((implementation, chunk_bytes), samples) in rows.iter().zip(&mut samples) {
            samples.push(sample(*implementation, *chunk_bytes, &bytes));
        }
    }
    println!("implementation,chunk_bytes,median_gb_s,best_gb_s");
    for ((implementation, chunk_bytes), samples) in rows.iter().zip(&mut samples) {
        samples.sort_by(f64::total_cmp);
        println!("{implementation:?},{chunk_bytes},{:.2},{:.2}", samples[ROUNDS / 2], samples[ROUNDS - 1]);
    }
}

fn sample(implementation: Implementation, chunk_bytes: usize, bytes: &[u8]) -> f64 {
    let mut digests = vec![Digest::default(); bytes.len().div_ceil(chunk_bytes)];
    let times = SAMPLE_BYTES.div_ceil(bytes.len());
    let begun = cpu_ns();
    for _ in 0..times {
        murmur3_chunks_with(implementation, black_box(bytes), chunk_bytes, 0, &mut digests);
        black_box(&mut digests);
    }
    (times * bytes.len()) as f64 / (cpu_ns() - begun) as f64
}
