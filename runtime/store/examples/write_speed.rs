//! How fast unique pages become a sealed checkpoint, beside what the disk and one core can do.
//!
//!     cargo run --release -p ckpt-store --example write_speed [MiB [ROUNDS [DIR [MEMORY_MiB]]]]
//!
//! Each of ROUNDS (default 10) measures, one after another and each on MiB (default 4096):
//!
//! - `dd`: `dd if=/dev/zero oflag=direct bs=4M` into DIR (default: the system's temporary directory)
//! - `hash`: both digests of each page, on one core
//! - `noise`: pages that do not compress, written into a new store and sealed (fsync and all)
//! - `mix`: the same with every other 256 KiB compressible to about a third
//!
//! Pages are given 8 MiB at a time, as the agent does, and the store has MEMORY_MiB (default 256) for its buffers. What
//! was written is removed before the next one begins: DIR needs room for MiB once. CSV, with medians at the end, and for
//! `noise` and `mix` the share of the slower of `dd` and `hash`.
#![allow(clippy::unwrap_used, reason = "a measurement may stop at the first surprise")]

use std::{
    fs::remove_dir_all,
    hint::black_box,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use ckpt_kernels::{page_digest::check64, sha1::sha1_pages};
use ckpt_store::{AttemptEnd, AttemptStart, PAGE_BYTES, PageList, Store, StoreOptions};
use rustix::time::{ClockId, clock_gettime};

mod machine;

/// Noise that every page of a kind is made of, with its number in front.
const NOISE_BYTES: usize = 64 << 20;
const KINDS: [&str; 4] = ["dd", "hash", "noise", "mix"];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| args.get(at).map_or(default, |arg| arg.parse::<usize>().unwrap());
    let (mib, rounds, memory_mib) = (number(0, 4096), number(1, 10), number(3, 256));
    let parent = args.get(2).map_or_else(std::env::temp_dir, PathBuf::from);
    let (bytes, dir) = (mib << 20, parent.join(format!("ckpt-write-speed-{}", std::process::id())));
    let command = format!("{mib} {rounds} {} {memory_mib}", parent.display());
    machine::print(&format!("cargo run --release -p ckpt-store --example write_speed {command}"));
    let options = StoreOptions { memory_bytes: memory_mib << 20, ..StoreOptions::default() };
    let (noise, mix) = (noise(), half_compressible());
    let mut rates = [const { Vec::new() }; KINDS.len()];
    println!("kind,round,bytes,seconds,GB/s,cpu seconds,bytes stored");
    for round in 0..rounds {
        for (kind, rates) in KINDS.iter().zip(&mut rates) {
            let begun = (Instant::now(), cpu_seconds());
            let stored = match *kind {
                "dd" => dd(&dir, mib),
                "hash" => hash(&noise, bytes),
                "noise" => write(&dir, &options, noise.clone(), bytes),
                _ => write(&dir, &options, mix.clone(), bytes),
            };
            let (seconds, cpu) = (begun.0.elapsed().as_secs_f64(), cpu_seconds() - begun.1);
            let rate = bytes as f64 / seconds / 1e9;
            println!("{kind},{round},{bytes},{seconds:.3},{rate:.3},{cpu:.2},{stored}");
            rates.push(rate);
            let _ = remove_dir_all(&dir);
        }
    }
    print_summary(rates);
}

fn print_summary(mut rates: [Vec<f64>; KINDS.len()]) {
    println!("kind,median GB/s,min,max,share of the slower of dd and hash");
    rates.iter_mut().for_each(|rates| rates.sort_by(f64::total_cmp));
    let median = |rates: &[f64]| (rates[(rates.len() - 1) / 2] + rates[rates.len() / 2]) / 2.0;
    let bound = median(&rates[0]).min(median(&rates[1]));
    for (kind, rates) in KINDS.iter().zip(&rates) {
        let (median, min, max) = (median(rates), rates[0], rates[rates.len() - 1]);
        println!("{kind},{median:.3},{min:.3},{max:.3},{:.2}", median / bound);
    }
}

/// Of all threads.
fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn dd(dir: &Path, mib: usize) -> u64 {
    std::fs::create_dir(dir).unwrap();
    let to = format!("of={}/dd", dir.display());
    let count = format!("count={}", mib.div_ceil(4));
    let dd = Command::new("dd").args(["if=/dev/zero", &to, "oflag=direct", "bs=4M", &count, "status=none"]).status();
    assert!(dd.unwrap().success());
    dir.join("dd").metadata().unwrap().len()
}

/// 64 pages at a time, as the store does: the second digest then finds the page in the cache.
fn hash(noise: &[u8], bytes: usize) -> u64 {
    let mut sha1s = [[0; 20]; 64];
    for group in noise.chunks_exact(64 * PAGE_BYTES).cycle().take(bytes / (64 * PAGE_BYTES)) {
        sha1_pages(black_box(group), &mut sha1s);
        black_box(group.chunks_exact(PAGE_BYTES).fold(0, |all, page| all ^ check64(page)));
        black_box(&sha1s);
    }
    0
}

/// `pages` over and over, each page with another number in front. Gives what the packs take.
fn write(dir: &Path, options: &StoreOptions, mut pages: Vec<u8>, bytes: usize) -> u64 {
    let store = Store::create_or_open_with(dir, options).unwrap();
    let start = AttemptStart {
        job: "write_speed".into(),
        name: "write_speed".into(),
        trigger: "example".into(),
        started_unix_ms: 0,
        processes: 1,
        depth: ckpt_store::Depth::Full,
    };
    let mut attempt = store.begin(start).unwrap();
    let mut list = PageList::new();
    let call_bytes = attempt.best_call_bytes();
    for at in (0..bytes).step_by(call_bytes) {
        let call = &mut pages[at % NOISE_BYTES..][..call_bytes.min(bytes - at)];
        let numbers = (at / PAGE_BYTES) as u64..;
        for (page, number) in call.chunks_exact_mut(PAGE_BYTES).zip(numbers.clone()) {
            page[..8].copy_from_slice(&number.to_le_bytes());
        }
        list.set_run(numbers.start, &attempt.write_pages(call).unwrap());
    }
    attempt.write_page_list(&list).unwrap();
    let end = AttemptEnd { memory_bytes: bytes as u64, processes: 1, ..AttemptEnd::default() };
    attempt.seal(end, b"").unwrap().new_bytes
}

fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = (0..NOISE_BYTES / 8).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.collect()
}

/// Every other 256 KiB has two zero bytes in three.
fn half_compressible() -> Vec<u8> {
    let mut pages = noise();
    for run in pages.chunks_mut(256 << 10).step_by(2) {
        run.iter_mut().enumerate().filter(|(at, _)| at % 24 >= 8).for_each(|(_, byte)| *byte = 0);
    }
    pages
}
