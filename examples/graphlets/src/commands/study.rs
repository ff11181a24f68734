//! `graphlets study`.

use std::{io, path::PathBuf};

use graphlets::{
    families::Family,
    study::{COLUMNS, Plan, Result, Subject},
};

use super::{chosen_graph::Order, chosen_machinery::ChosenMachinery};

#[derive(clap::Args)]
pub struct Arguments {
    /// The kinds of graphs.
    #[arg(long, value_delimiter = ',', default_values_t = Family::EVERY, value_enum)]
    families: Vec<Family>,
    /// About how many vertices each has. Takes memory for 292 bytes x vertices x all checkpoints, twice.
    #[arg(long, default_value_t = 100_000)]
    vertices: u32,
    /// What their random numbers begin with.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The orders of their vertices.
    #[arg(long, value_delimiter = ',', default_value = "gorder")]
    orders: Vec<Order>,
    /// Bytes of a chunk: powers of two, and parts and multiples of a row of 292.
    #[arg(long, value_delimiter = ',', default_value = "32,36,64,72,128,148,256,292,512,584,1024,1168,2048,4096")]
    chunks: Vec<u32>,
    /// Checkpoints of each series with these chunks; the first is left out of all figures but those "with first".
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=1000))]
    checkpoints: u32,
    /// Further numbers of checkpoints, ...
    #[arg(long, value_delimiter = ',', default_value = "5,10,20", value_parser = clap::value_parser!(u32).range(2..=1000))]
    frequencies: Vec<u32>,
    /// ... tried with these bytes of a chunk.
    #[arg(long, value_delimiter = ',', default_value = "64,292")]
    frequency_chunks: Vec<u32>,
    /// How often each series is made; the best time of each checkpoint counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    #[command(flatten)]
    machinery: ChosenMachinery,
    /// Writes the counters of all checkpoints into this folder, for other compressors (nvcomp.py).
    #[arg(long)]
    states: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let plan = Plan {
        chunks: arguments.chunks.clone(),
        checkpoints: arguments.checkpoints,
        frequencies: arguments.frequencies.clone(),
        frequency_chunks: arguments.frequency_chunks.clone(),
        repeats: arguments.repeats,
        machinery: arguments.machinery.find()?,
        states: arguments.states.clone(),
    };
    println!("{COLUMNS}");
    for family in &arguments.families {
        for order in &arguments.orders {
            let graph = order.apply(family.generate(arguments.vertices, arguments.seed));
            let subject = Subject { family: *family, order: order.name(), graph: &graph };
            plan.study(&subject, &mut io::stdout())?;
        }
    }
    Ok(())
}
