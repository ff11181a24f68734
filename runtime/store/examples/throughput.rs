//! How fast a store writes and reads pages: GB/s for unique, duplicate, zero and compressible pages.
//!
//!     cargo run --release -p ckpt-store --example throughput [MiB [DIR]]
//!
//! Writes MiB (default 1024) of each kind into a store in a temporary directory (in DIR, default the system's), reads
//! the unique and the compressible ones back, and prints one line per step as CSV, after machine and command. The pages
//! come from memory in calls of 32 MiB. "seal" is what is left to do at the end: trailers, fsync, manifest.
#![allow(clippy::unwrap_used, reason = "a measurement may stop at the first surprise")]

use std::{path::PathBuf, time::Instant};

use ckpt_store::{AttemptEnd, AttemptStart, PAGE_BYTES, PageKey, PageList, Store};

mod machine;

const CALL_BYTES: usize = 32 << 20;

fn main() {
    let mut args = std::env::args().skip(1);
    let bytes = args.next().map_or(1024, |mib| mib.parse::<usize>().unwrap()) << 20;
    let parent = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = parent.join(format!("ckpt-throughput-{}", std::process::id()));
    let command = format!("{} {}", bytes >> 20, parent.display());
    machine::print(&format!("cargo run --release -p ckpt-store --example throughput {command}"));
    println!("step,pages,bytes,seconds,GB/s,cpu seconds,GB per cpu second");
    let store = Store::create_or_open(&dir).unwrap();
    let noise = fill(bytes, 1);
    let keys = write(&store, "unique", &noise);
    write(&store, "duplicate", &noise);
    write(&store, "zero", &vec![0; bytes]);
    let text = fill(bytes, 8);
    let text_keys = write(&store, "compressible", &text);
    for (what, keys, written) in [("unique", keys, noise), ("compressible", text_keys, text)] {
        let opened = Moment::now();
        let store = Store::open(&dir).unwrap();
        store.read_pages(&keys[..1], &mut [0; PAGE_BYTES]).unwrap();
        report("load index", what, bytes, opened);
        let mut out = vec![0; bytes];
        let begun = Moment::now();
        for (keys, out) in keys.chunks(CALL_BYTES / PAGE_BYTES).zip(out.chunks_mut(CALL_BYTES)) {
            store.read_pages(keys, out).unwrap();
        }
        report("read", what, bytes, begun);
        assert!(out == written, "other pages came back");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Bytes in which each random word comes `repeat` times.
fn fill(bytes: usize, repeat: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 + repeat as u64;
    let mut filled = Vec::with_capacity(bytes);
    while filled.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (0..repeat).for_each(|_| filled.extend_from_slice(&state.to_le_bytes()));
    }
    filled
}

/// A moment: wall clock and the processor time of this process.
struct Moment(Instant, f64);

impl Moment {
    fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        Self(Instant::now(), ticks / 100.0)
    }
}

fn report(step: &str, what: &str, bytes: usize, begun: Moment) {
    let (seconds, cpu) = (begun.0.elapsed().as_secs_f64(), Moment::now().1 - begun.1);
    let rate = |seconds: f64| bytes as f64 / seconds.max(0.001) / 1e9;
    println!("{step},{what},{bytes},{seconds:.3},{:.2},{cpu:.2},{:.2}", rate(seconds), rate(cpu));
}

fn write(store: &Store, what: &str, pages: &[u8]) -> Vec<PageKey> {
    let start = AttemptStart {
        job: "throughput".into(),
        name: what.into(),
        trigger: "example".into(),
        started_unix_ms: 0,
        processes: 1,
        depth: ckpt_store::Depth::Full,
    };
    let mut attempt = store.begin(start).unwrap();
    let begun = Moment::now();
    let keys: Vec<_> = pages.chunks(CALL_BYTES).flat_map(|call| attempt.write_pages(call).unwrap()).collect();
    report("write", what, pages.len(), begun);
    let begun = Moment::now();
    let mut list = PageList::new();
    list.set_run(0, &keys);
    attempt.write_page_list(&list).unwrap();
    report("page list", what, pages.len(), begun);
    let begun = Moment::now();
    let end = AttemptEnd { memory_bytes: pages.len() as u64, processes: 1, ..AttemptEnd::default() };
    attempt.seal(end, b"").unwrap();
    report("seal", what, pages.len(), begun);
    keys
}
