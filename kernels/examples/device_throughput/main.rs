//! How fast differences of device memory are found, sent out and restored, and how much memory that takes. CSV.
//!
//!     device_throughput [DRIVER [MIB]]
//!
//! DRIVER is `libcuda.so.1` unless named, MIB (default 4096) the length of the region. First the digests alone, by length of
//! chunks. Then lineages: noise, and ten checkpoints before each of which a share of all chunks, chosen at random, gets other
//! noise. Rates are of the region's bytes; those of checkpoints are medians of the ten by wall time, with the data sent
//! through the ring to the host, where nothing is done with them; the first checkpoint, of which everything is new, stands
//! apart. `peak` is device memory, the region's own included, as a multiple of the region. At last a lineage is kept,
//! restored to the device, and every byte compared.
//!
//! `CKPT_DEVICE_MEMORY` bounds what the engine takes besides the region. When that is too little for a method, what it fell
//! back to is on the error output.
#![allow(unsafe_code, reason = "the device reads and writes memory by address")]
#![allow(clippy::unwrap_used, reason = "a measurement may stop at the first surprise")]

mod workload;

use std::{io, path::PathBuf, process::ExitCode, sync::Arc, time::Instant};

use ckpt_kernels::{
    device::{Context, Engine, Refill, Region, SLOT_BYTES, Times, bound_from_environment},
    merkle::{Difference, Head, Lineage, Method, Sink},
};
use workload::Workload;

const CHECKPOINTS: u32 = 10;

/// Takes everything and keeps nothing.
struct Nowhere;

impl Sink for Nowhere {
    fn head(&mut self, _: &Head) -> io::Result<()> {
        Ok(())
    }

    fn data(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// A device, and how much of its memory engines may take.
struct Device {
    driver: PathBuf,
    bytes_max: Option<u64>,
}

impl Device {
    /// Another context each time: each has its own peak.
    fn context(&self) -> Arc<Context> {
        Context::new(&self.driver, self.bytes_max).unwrap()
    }
}

fn main() -> ExitCode {
    match bound_from_environment() {
        Ok(bytes_max) => measure(bytes_max),
        Err(error) => {
            eprintln!("device_throughput: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn measure(bytes_max: Option<u64>) {
    let mut arguments = std::env::args().skip(1);
    let driver = PathBuf::from(arguments.next().unwrap_or_else(|| "libcuda.so.1".into()));
    let mib: u64 = arguments.next().map_or(4096, |mib| mib.parse().unwrap());
    let device = &Device { driver, bytes_max };
    let (name, version) = device.context().description().unwrap();
    println!("# {name}, driver for CUDA {}.{}, a region of {mib} MiB", version / 1000, version % 1000 / 10);
    let workload = Workload::new(&device.driver, mib << 20);
    println!("chunk_bytes,hash_gb_s");
    for chunk_bytes in [32, 64, 128, 256, 292, 512, 1024, 4096, 65536] {
        let hash_s = hash(device, &workload, chunk_bytes);
        println!("{chunk_bytes},{:.1}", gb_s(workload.region().bytes, hash_s));
    }
    println!();
    println!(
        "chunk_bytes,changed_percent,method,first_gb_s,gb_s,hash_gb_s,find_ms,entries_ms,data_ms,data_mib,metadata_mib,peak"
    );
    for chunk_bytes in [128, 4096] {
        for per_million in [1_000, 10_000, 100_000] {
            for method in Method::EVERY {
                lineage(device, &workload, chunk_bytes, per_million, method);
            }
        }
    }
    println!();
    println!("chunk_bytes,restored_gb_s,compared_gb_s");
    for chunk_bytes in [128, 4096] {
        restore(device, &workload, chunk_bytes);
    }
}

fn gb_s(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / seconds / 1e9
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Takes a checkpoint, and says how long it took.
fn take(engine: &mut Engine, number: u32, method: Method, region: Region, sink: &mut dyn Sink) -> (Head, f64) {
    let begun = Instant::now();
    // SAFETY: the region belongs to the workload, which does nothing meanwhile.
    let taken = unsafe { engine.difference(number, method, &[region], sink) }.unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    if let Some(shortage) = taken.shortage {
        eprintln!("checkpoint {number} was taken by {:?}: {shortage}", taken.method);
    }
    (taken.head, seconds)
}

/// Seconds for the digests of a region in which nothing has changed, the median of seven.
fn hash(device: &Device, workload: &Workload, chunk_bytes: u32) -> f64 {
    workload.fill();
    let mut engine = Engine::new(&device.context(), chunk_bytes, SLOT_BYTES).unwrap();
    take(&mut engine, 0, Method::Basic, workload.region(), &mut Nowhere);
    let seconds = (1..8).map(|number| {
        take(&mut engine, number, Method::Basic, workload.region(), &mut Nowhere);
        engine.times().hash_s
    });
    median(seconds.collect())
}

fn lineage(device: &Device, workload: &Workload, chunk_bytes: u32, per_million: u32, method: Method) {
    let context = device.context();
    let mut engine = Engine::new(&context, chunk_bytes, SLOT_BYTES).unwrap();
    let region = workload.region();
    workload.fill();
    let (_, first_s) = take(&mut engine, 0, method, region, &mut Nowhere);
    let (mut seconds, mut times, mut data, mut metadata) = (Vec::new(), Vec::new(), 0, 0);
    for number in 1..=CHECKPOINTS {
        workload.change(chunk_bytes, per_million, number);
        let (head, taken_s) = take(&mut engine, number, method, region, &mut Nowhere);
        seconds.push(taken_s);
        times.push(engine.times());
        data += head.data_bytes;
        metadata += head.metadata_bytes();
    }
    let of = |part: fn(&Times) -> f64| median(times.iter().map(part).collect());
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let hash_s = of(|times| times.hash_s);
    println!(
        "{chunk_bytes},{},{method:?},{:.1},{:.1},{:.1},{:.3},{:.3},{:.3},{:.2},{:.3},{:.3}",
        f64::from(per_million) / 1e4,
        gb_s(region.bytes, first_s),
        gb_s(region.bytes, median(seconds)),
        if hash_s > 0.0 { gb_s(region.bytes, hash_s) } else { 0.0 },
        of(|times| times.find_s) * 1e3,
        of(|times| times.entries_s) * 1e3,
        of(|times| times.data_s) * 1e3,
        mib(data),
        mib(metadata as u64),
        (region.bytes + context.peak_bytes()) as f64 / region.bytes as f64,
    );
}

fn restore(device: &Device, workload: &Workload, chunk_bytes: u32) {
    let context = device.context();
    let mut engine = Engine::new(&context, chunk_bytes, SLOT_BYTES).unwrap();
    let (mut lineage, region) = (Lineage::default(), workload.region());
    workload.fill();
    for number in 0..=CHECKPOINTS {
        let mut difference = Difference::default();
        take(&mut engine, number, Method::Tree, region, &mut difference);
        lineage.add(difference).unwrap();
        workload.change(chunk_bytes, 10_000, number + 1);
    }
    let mut refill = Refill::new(&context, SLOT_BYTES).unwrap();
    let seconds = (0..3).map(|_| {
        let begun = Instant::now();
        // SAFETY: as in `take`.
        unsafe { refill.restore(&lineage, CHECKPOINTS, &[region]) }.unwrap();
        begun.elapsed().as_secs_f64()
    });
    let restored_s = median(seconds.collect());
    let begun = Instant::now();
    // SAFETY: as in `take`.
    let mismatch = unsafe { engine.mismatch(&lineage, CHECKPOINTS, &[region]) }.unwrap();
    let compared_s = begun.elapsed().as_secs_f64();
    assert_eq!(mismatch, None, "the region is not what it was");
    println!("{chunk_bytes},{:.1},{:.1}", gb_s(region.bytes, restored_s), gb_s(region.bytes, compared_s));
}
