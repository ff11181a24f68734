//! What it costs that a store is encrypted: seconds to write and seal, and to read for a restart, beside the plain store.
//!
//!     cargo run --release -p ckpt-store --example encryption [MiB [ROUNDS [DIR]]]
//!
//! Each round writes MiB (default 1024) of noise into a new store of each kind in a temporary directory (in DIR, default the
//! system's) in calls of 32 MiB, seals it, and reads it back through a store that was opened anew, as a restart does. The
//! kinds take turns in who is first. One line a step as CSV, after machine and command: the median of each kind over ROUNDS
//! (default 7), and how many times as long the encrypted store took.
#![allow(clippy::unwrap_used, reason = "a measurement may stop at the first surprise")]

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Instant,
};

use ckpt_store::{AttemptEnd, AttemptStart, Key, PAGE_BYTES, PageKey, PageList, Store, StoreError, StoreOptions};

mod machine;

const CALL_BYTES: usize = 32 << 20;
const KINDS: [&str; 2] = ["plain", "encrypted"];
const STEPS: [&str; 4] = ["write and seal", "read", "write and seal (processor)", "read (processor)"];

fn main() {
    let mut args = std::env::args().skip(1);
    let bytes = args.next().map_or(1024, |mib| mib.parse::<usize>().unwrap()) << 20;
    let rounds = args.next().map_or(7, |rounds| rounds.parse::<usize>().unwrap());
    let parent = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let command = format!("{} {rounds} {}", bytes >> 20, parent.display());
    machine::print(&format!("cargo run --release -p ckpt-store --example encryption {command}"));
    let noise = noise(bytes);
    let mut seconds: [[Vec<f64>; 2]; STEPS.len()] = Default::default();
    for round in 0..rounds {
        for kind in [round % 2, (round + 1) % 2] {
            let dir = parent.join(format!("ckpt-encryption-{}-{}", std::process::id(), KINDS[kind]));
            let measured = one_round(&dir, kind == 1, &noise);
            std::fs::remove_dir_all(&dir).unwrap();
            (0..STEPS.len()).for_each(|step| seconds[step][kind].push(measured[step]));
        }
    }
    println!("step,bytes,plain seconds,encrypted seconds,times");
    for (step, [plain, encrypted]) in STEPS.iter().zip(&mut seconds) {
        let (plain, encrypted) = (median(plain), median(encrypted));
        println!("{step},{bytes},{plain:.3},{encrypted:.3},{:.3}", encrypted / plain);
    }
}

/// A moment: wall clock, and the processor time of this process.
struct Moment(Instant, f64);

impl Moment {
    fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        Self(Instant::now(), ticks / 100.0)
    }

    fn elapsed(&self) -> [f64; 2] {
        [self.0.elapsed().as_secs_f64(), Moment::now().1 - self.1]
    }
}

/// Seconds and processor seconds of each step.
fn one_round(dir: &Path, encrypted: bool, noise: &[u8]) -> [f64; 4] {
    let options = StoreOptions { key: encrypted.then(|| Key::from_bytes([7; 32])), ..StoreOptions::default() };
    let begun = Moment::now();
    let keys = write(&Store::create_or_open_with(dir, &options).unwrap(), noise);
    let [written, written_cpu] = begun.elapsed();
    let begun = Moment::now();
    let store = Store::open_with(dir, &options).unwrap();
    let sum = AtomicU64::new(0);
    let take = |_: usize, pages: &[u8]| -> Result<(), StoreError> {
        sum.fetch_add(sum_of(pages), Relaxed);
        Ok(())
    };
    store.take_pages(&keys, &take).unwrap();
    let [read, read_cpu] = begun.elapsed();
    assert_eq!(sum.into_inner(), sum_of(noise));
    [written, read, written_cpu, read_cpu]
}

/// Of the first byte of each page.
fn sum_of(pages: &[u8]) -> u64 {
    pages.iter().step_by(PAGE_BYTES).map(|byte| u64::from(*byte)).sum()
}

fn write(store: &Store, noise: &[u8]) -> Vec<PageKey> {
    let mut attempt = store.begin(AttemptStart { job: "encryption".into(), ..AttemptStart::default() }).unwrap();
    let keys: Vec<_> = noise.chunks(CALL_BYTES).flat_map(|call| attempt.write_pages(call).unwrap()).collect();
    let mut list = PageList::new();
    list.set_run(0, &keys);
    attempt.write_page_list(&list).unwrap();
    attempt.seal(AttemptEnd { memory_bytes: noise.len() as u64, ..AttemptEnd::default() }, b"").unwrap();
    keys
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut filled = Vec::with_capacity(bytes);
    while filled.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        filled.extend_from_slice(&state.to_le_bytes());
    }
    filled
}

fn median(seconds: &mut [f64]) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}
