//! The command line: what a graph is, what its counters are, what checkpoints of them cost.

#![forbid(unsafe_code)]

mod commands;

use clap::{Parser, Subcommand};
use commands::{count, graph};

#[derive(Parser)]
#[command(about = "Graphlet degree vectors, and what checkpoints of them cost")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Makes a graph and describes it.
    Graph(graph::Arguments),
    /// Counts the graphlets around each vertex and prints a digest of all counters.
    Count(count::Arguments),
}

fn main() {
    match Arguments::parse().command {
        Command::Graph(arguments) => graph::run(&arguments),
        Command::Count(arguments) => count::run(&arguments),
    }
}
