//! `graphlets count`.

use std::thread;
use std::time::{Duration, Instant};

use graphlets::{counting::pauses, study::Result};
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::IntoBytes;

use super::{chosen_graph::ChosenGraph, chosen_machinery::ChosenMachinery};

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    graph: ChosenGraph,
    #[command(flatten)]
    machinery: ChosenMachinery,
    /// Prints the digest so many times, each after the same number of roots.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    checkpoints: u32,
    /// Waits so many milliseconds behind each digest, for whoever wants to checkpoint it meanwhile.
    #[arg(long, default_value_t = 0)]
    pause_ms: u64,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let graph = arguments.graph.make();
    let mut counting = arguments.machinery.find()?.counter(&graph)?;
    let begun = Instant::now();
    let mut counted = 0;
    for roots in pauses(graph.vertices(), arguments.checkpoints) {
        counting.advance(counted..roots)?;
        counted = roots;
        let digest = xxh3_64(counting.counters()?.as_bytes());
        println!("{roots} of {} roots: {digest:016x} after {:.2} s", graph.vertices(), begun.elapsed().as_secs_f64());
        thread::sleep(Duration::from_millis(arguments.pause_ms));
    }
    Ok(())
}
