//! The command line: what a graph is, what its counters are, what checkpoints of them cost.

#![forbid(unsafe_code)]

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use commands::{count, graph, study};

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
    /// Takes series of checkpoints of the counters and prints a table of what they cost.
    Study(study::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Graph(arguments) => graph::run(&arguments),
        Command::Count(arguments) => count::run(&arguments),
        Command::Study(arguments) => study::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("graphlets: {error}");
            ExitCode::FAILURE
        }
    }
}
