//! The 73 orbits: the different places a vertex can have in a connected graph of two to five vertices.
//!
//! The table says for every such graph, given by its edges in bits, which orbit each of its vertices is in. It is made once
//! from a list of the 30 graphlets (graphlets.rs), and kernels on a device read the same bytes.

mod graphlets;

use graphlets::{GRAPHLETS, Graphlet};

/// How many there are, which is also the length of a row of counters.
pub const ORBITS: usize = 73;
/// The most vertices of a graphlet.
pub const VERTICES_MAX: usize = 5;
/// Bytes of a row of the table: one for each vertex, and three that are never read.
pub const ROW_BYTES: usize = 8;
/// The first row of graphs of so many vertices.
const FIRST_ROWS: [usize; VERTICES_MAX + 1] = [0, 0, 0, 2, 10, 74];
const ROWS: usize = 74 + 1024;
/// In rows of graphs that are not connected.
const NONE: u8 = u8::MAX;

/// Orbits by the edges of a graph.
#[derive(Clone)]
pub struct OrbitTable(Vec<[u8; ROW_BYTES]>);

/// The edge between vertices `a` and `b` of a small graph, which must be in ascending order.
pub const fn edge_bit(a: usize, b: usize) -> u32 {
    1 << (b * (b - 1) / 2 + a)
}

impl OrbitTable {
    /// The table of all connected graphs of two to five vertices.
    pub fn new() -> Self {
        let mut rows = vec![[NONE; ROW_BYTES]; ROWS];
        let mut next = 0;
        for text in GRAPHLETS {
            let graphlet = Graphlet::parse(text);
            let orbits = graphlet.orbits(next);
            next = 1 + *orbits.iter().max().unwrap_or(&0);
            for order in graphlet.numberings() {
                let row = &mut rows[FIRST_ROWS[graphlet.vertices] + graphlet.edges_in(&order) as usize];
                order.iter().zip(&orbits).for_each(|(place, orbit)| row[*place] = *orbit);
            }
        }
        Self(rows)
    }

    /// The orbits of the vertices of a connected graph, in their order.
    pub fn orbits(&self, vertices: usize, edges: u32) -> &[u8] {
        &self.0[FIRST_ROWS[vertices] + edges as usize][..vertices]
    }

    /// The table as kernels read it: rows of [`ROW_BYTES`], first the 2 for two vertices, then 8, 64 and 1024.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_flattened()
    }
}

impl Default for OrbitTable {
    fn default() -> Self {
        Self::new()
    }
}
