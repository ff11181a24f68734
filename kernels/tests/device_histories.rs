//! Random histories of regions in device memory: the engine for the GPU finds what the one for the CPU finds, byte for byte,
//! and every checkpoint is restored as it was.
#![allow(clippy::unwrap_used, reason = "a test")]

mod driver;
mod steps;

use std::{collections::BTreeMap, process::Command, sync::Arc};

use ckpt_kernels::{
    device::{self, Buffer, Context, Stream},
    merkle::{Difference, Engine, Lineage, Method, Region},
};
use steps::{Random, State, change};

/// Device memory with bytes that begin `offset` bytes into it.
struct Copied {
    memory: Buffer,
    offset: u64,
}

fn copy_in(context: &Arc<Context>, stream: &Stream, bytes: &[u8], offset: usize) -> Copied {
    let mut shifted = vec![0xcc; offset];
    shifted.extend_from_slice(bytes);
    let memory = Buffer::new(context, shifted.len() as u64).unwrap();
    stream.write(&memory, &shifted).unwrap();
    Copied { memory, offset: offset as u64 }
}

fn history(context: &Arc<Context>, stream: &Stream, seed: u64) {
    let mut random = Random::new(seed);
    let chunk_bytes = [32, 32, 36, 48, 64, 128, 160, 292][random.below(8)];
    let scale = if random.below(8) == 0 { 50 } else { 1 };
    let mut on_cpu = Engine::new(chunk_bytes, None).unwrap();
    let mut on_gpu = device::Engine::new(context, chunk_bytes, device::SLOT_BYTES_MIN).unwrap();
    let (mut lineage, mut known, mut now) = (Lineage::default(), BTreeMap::new(), State::new());
    let favourite = Method::EVERY[random.below(4)];
    let mut number = 0;
    for _ in 0..3 + random.below(8) {
        (0..random.below(6)).for_each(|_| change(&mut random, &mut now, &known, scale));
        number += 1 + random.below(2) as u32;
        let method = if random.below(4) == 0 { Method::EVERY[random.below(4)] } else { favourite };

        let mut expected = Difference::default();
        let regions: Vec<_> = now.iter().map(|(id, bytes)| Region { id: *id, bytes }).collect();
        on_cpu.difference(number, method, &regions, &mut expected).unwrap();

        let memory: Vec<_> =
            now.iter().map(|(_, bytes)| copy_in(context, stream, bytes, [0, 0, 16, 4, 7][random.below(5)])).collect();
        let regions: Vec<_> = now
            .iter()
            .zip(&memory)
            .map(|((id, bytes), copied)| device::Region {
                id: *id,
                address: copied.memory.address() + copied.offset,
                bytes: bytes.len() as u64,
            })
            .collect();
        let mut found = Difference::default();
        // SAFETY: the regions are in device memory that nobody else uses.
        unsafe { on_gpu.difference(number, method, &regions, &mut found) }.unwrap();
        assert!(found == expected, "seed {seed}, checkpoint {number}: {:?} is not {:?}", found.head, expected.head);

        lineage.add(found).unwrap_or_else(|error| panic!("seed {seed}, checkpoint {number}: {error}"));
        known.insert(number, now.clone());
        if random.below(6) == 0 {
            let kept: Vec<u32> = known.keys().copied().filter(|_| random.below(2) == 0).collect();
            let gone = lineage.keep(&kept).unwrap();
            on_cpu.forget(|number| !gone.contains(&number));
            on_gpu.forget(|number| !gone.contains(&number)).unwrap();
            known.retain(|number, _| kept.contains(number));
        }
        for (number, state) in &known {
            let restored = lineage.restore(*number).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert!(restored == *state, "seed {seed}: checkpoint {number} is not what it was");
        }
    }
}

#[test]
fn the_gpu_finds_what_the_cpu_finds_in_random_histories() {
    let number = |name, otherwise| std::env::var(name).map_or(otherwise, |number| number.parse().unwrap());
    let (first, count) = (number("CKPT_TEST_DEVICE_FIRST", 0), number("CKPT_TEST_DEVICE_HISTORIES", 300));
    let context = Context::new(driver::path(), None).unwrap();
    let _entered = context.enter().unwrap();
    let stream = Stream::new(&context).unwrap();
    (first..first + count).for_each(|seed| history(&context, &stream, seed));
}

/// Goes through some histories with kernels compiled for a sanitizer, in a process of its own.
fn watch(sanitizer: &str, runtime: &str, count: u32) {
    if std::env::var_os("CKPT_TEST_DRIVER").is_some() {
        println!("skipped: the driver is given");
        return;
    }
    let driver = driver::compile(sanitizer, &[&format!("-fsanitize={sanitizer}"), "-fno-sanitize-recover=all"]);
    // Of what is not compiled for the sanitizer it sees no order: only of the kernels does it speak.
    let executable = std::env::current_exe().unwrap();
    let suppressions = driver.with_extension("suppressions");
    std::fs::write(&suppressions, format!("race:{}\n", executable.file_name().unwrap().display())).unwrap();
    let runtime = Command::new("g++").arg(format!("-print-file-name={runtime}")).output().unwrap().stdout;
    let run = Command::new(executable)
        .args(["--exact", "the_gpu_finds_what_the_cpu_finds_in_random_histories"])
        .env("CKPT_TEST_DRIVER", driver)
        .env("CKPT_TEST_DEVICE_HISTORIES", count.to_string())
        .env("LD_PRELOAD", String::from_utf8(runtime).unwrap().trim())
        // What lives as long as the process is no leak.
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .env("TSAN_OPTIONS", format!("halt_on_error=1 suppressions={}", suppressions.display()))
        .output()
        .unwrap();
    let output = [run.stdout, run.stderr].concat();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&output));
    assert!(String::from_utf8_lossy(&output).contains("1 passed"), "{}", String::from_utf8_lossy(&output));
}

#[test]
fn no_kernel_reads_or_writes_beside_what_is_there() {
    watch("address,undefined", "libasan.so", 60);
}

#[test]
fn no_two_threads_of_a_kernel_race() {
    watch("thread", "libtsan.so", 8);
}
