//! `graphlets graph`.

use graphlets::{counting::ROW_BYTES, study::Result};

use super::chosen_graph::ChosenGraph;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    graph: ChosenGraph,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let graph = arguments.graph.make();
    let statistics = graph.statistics();
    let edges_per_vertex = f64::from(statistics.edges) / f64::from(statistics.vertices);
    let far: u64 = graph.edges().map(|(a, b)| u64::from(b - a)).sum();
    println!("vertices        {}", statistics.vertices);
    println!("edges           {} ({edges_per_vertex:.3} a vertex)", statistics.edges);
    println!("degrees         {} to {}", statistics.degree_min, statistics.degree_max);
    println!("components      {}", statistics.components);
    println!("edge length     {:.1} on average", far as f64 / f64::from(statistics.edges));
    println!("counters        {} bytes", statistics.vertices as usize * ROW_BYTES);
    Ok(())
}
