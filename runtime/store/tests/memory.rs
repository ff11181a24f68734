//! A checkpoint of any size is written in bounded memory.
//!
//! A process of its own writes unique pages and says the most memory it ever had (VmHWM). What is measured here on small
//! amounts, docs/performance.md has for 4 GiB, by `CKPT_TEST_MIB=4096`.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::process::Command;

use ckpt_store::{PAGE_BYTES, PageList, Store, StoreOptions};

mod story;
use story::{end, start};

const MIB: &str = "CKPT_TEST_MIB";
const MEMORY_MIB: &str = "CKPT_TEST_MEMORY_MIB";
/// The pages are given as the agent gives them.
const CALL_BYTES: usize = 1 << 20;
/// Bytes for each new page: 47 in the attempt's table, which moves into the index when it is sealed, 29 in the page list
/// of this test, and 8 while tables move.
const PAGE_SHARE_BYTES: usize = 84;
/// Program, threads, and what the allocator keeps: measured 14 MiB.
const PROCESS_MIB: usize = 24;

#[test]
#[ignore = "what the other test runs as a process of its own"]
fn a_process_of_its_own() {
    let number = |name| std::env::var(name).expect("started by the other test").parse::<usize>().unwrap();
    let options = StoreOptions { memory_bytes: number(MEMORY_MIB) << 20, ..StoreOptions::default() };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = Store::create_or_open_with(dir.path(), &options).unwrap();
    let mut attempt = store.begin(start("memory")).unwrap();
    let mut list = PageList::new();
    let mut call = noise();
    for at in (0..number(MIB) << 20).step_by(CALL_BYTES) {
        let first = (at / PAGE_BYTES) as u64;
        for (page, number) in call.chunks_exact_mut(PAGE_BYTES).zip(first..) {
            page[..8].copy_from_slice(&number.to_le_bytes());
        }
        list.set_run(first, &attempt.write_pages(&call).unwrap());
    }
    attempt.write_page_list(&list).unwrap();
    attempt.seal(end(), b"").unwrap();
    println!("peak {}", peak_kib());
}

fn noise() -> Vec<u8> {
    (0..CALL_BYTES / PAGE_BYTES).flat_map(|number| story::page(number as u64 * 2 + 1)).collect()
}

fn peak_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

fn peak_mib(mib: usize, memory_mib: usize) -> usize {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "a_process_of_its_own", "--nocapture", "--quiet"]);
    let output = command.env(MIB, mib.to_string()).env(MEMORY_MIB, memory_mib.to_string()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let peak = said.lines().find_map(|line| line.strip_prefix("peak ")).unwrap();
    peak.parse::<usize>().unwrap() >> 10
}

#[test]
fn the_peak_of_a_writer_stays_below_its_memory_and_the_share_of_the_tables() {
    let mib = std::env::var(MIB).map_or(512, |mib| mib.parse().unwrap());
    for memory_mib in [64, 256] {
        let (peak, tables) = (peak_mib(mib, memory_mib), ((mib << 20) / PAGE_BYTES * PAGE_SHARE_BYTES) >> 20);
        println!("{mib} MiB written with {memory_mib} MiB: peak {peak} MiB, tables at most {tables} MiB");
        assert!(peak < memory_mib + tables + PROCESS_MIB, "{peak} MiB with {memory_mib} MiB of buffers");
    }
}
