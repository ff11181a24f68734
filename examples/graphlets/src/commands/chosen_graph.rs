//! Which graph a command is about.

use graphlets::{families::Family, gorder::gorder, graph::Graph};

#[derive(clap::Args)]
pub struct ChosenGraph {
    /// The kind of graph.
    #[arg(long)]
    family: Family,
    /// About how many vertices it has.
    #[arg(long, default_value_t = 100_000)]
    vertices: u32,
    /// What its random numbers begin with.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The order of its vertices.
    #[arg(long, default_value = "gorder")]
    order: Order,
}

/// Orders of the vertices of a graph.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Order {
    /// As it was generated.
    Natural,
    /// Those that are looked at together lie together.
    Gorder,
}

impl ChosenGraph {
    pub fn make(&self) -> Graph {
        self.order.apply(self.family.generate(self.vertices, self.seed))
    }
}

impl Order {
    pub fn name(self) -> &'static str {
        match self {
            Self::Natural => "natural",
            Self::Gorder => "gorder",
        }
    }

    pub fn apply(self, graph: Graph) -> Graph {
        match self {
            Self::Natural => graph,
            Self::Gorder => graph.reordered(&gorder(&graph)),
        }
    }
}
