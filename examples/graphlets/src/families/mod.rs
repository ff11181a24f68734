//! The families of graphs: what the paper took from traces and collections, generated here from a number of vertices and a
//! seed. The same two give the same graph on every machine.

mod bubbles;
mod delaunay;
mod message_race;
mod road;
mod triangulation;
mod unstructured_mesh;

use crate::graph::Graph;

/// Kinds of graphs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Family {
    /// Events of senders whose messages race to one receiver.
    MessageRace,
    /// Events of an exchange between neighbours of an unstructured mesh.
    UnstructuredMesh,
    /// A planar road network: junctions and long chains between them.
    Road,
    /// A mesh of cells with three neighbours, finer along the walls of bubbles.
    Bubbles,
    /// The Delaunay triangulation of random points.
    Delaunay,
}

impl Family {
    /// All of them.
    pub const EVERY: [Self; 5] = [Self::MessageRace, Self::UnstructuredMesh, Self::Road, Self::Bubbles, Self::Delaunay];

    /// As tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::MessageRace => "message-race",
            Self::UnstructuredMesh => "unstructured-mesh",
            Self::Road => "road",
            Self::Bubbles => "bubbles",
            Self::Delaunay => "delaunay",
        }
    }

    /// A graph of about so many vertices; at least 64.
    pub fn generate(self, vertices: u32, seed: u64) -> Graph {
        let random = &mut fastrand::Rng::with_seed(seed);
        let vertices = vertices.max(64);
        match self {
            Self::MessageRace => message_race::generate(vertices, random),
            Self::UnstructuredMesh => unstructured_mesh::generate(vertices, random),
            Self::Road => road::generate(vertices, random),
            Self::Bubbles => bubbles::generate(vertices, random),
            Self::Delaunay => delaunay::generate(vertices, random),
        }
    }
}

/// Ranks of the programs whose events are vertices: 256, as the counts of vertices and edges in the paper's Table 1 say,
/// unless they would have fewer than 16 events each.
fn ranks(vertices: u32) -> u32 {
    (vertices / 16).clamp(4, 256)
}
