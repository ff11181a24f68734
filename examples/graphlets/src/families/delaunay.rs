//! Delaunay triangulations of random points in a square, as the graphs "delaunay_nXX" of the 10th DIMACS challenge are made.
//! Nearly three edges a vertex, many triangles.

use super::triangulation;
use crate::graph::Graph;

pub fn generate(vertices: u32, random: &mut fastrand::Rng) -> Graph {
    Graph::new(vertices, triangulation::edges(&triangulation::random_points(vertices, random)))
}
