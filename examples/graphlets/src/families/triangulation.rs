//! Triangulations of points in the plane, which three of the families are made from.

use delaunator::{EMPTY, Point, Triangulation, triangulate};

/// Points anywhere in the unit square.
pub fn random_points(count: u32, random: &mut fastrand::Rng) -> Vec<Point> {
    (0..count).map(|_| Point { x: random.f64(), y: random.f64() }).collect()
}

/// The edges between points.
pub fn edges(points: &[Point]) -> Vec<(u32, u32)> {
    let triangulation = triangulate(points);
    let corner = |at: usize| triangulation.triangles[at] as u32;
    each_edge(&triangulation).map(|(at, _)| (corner(at), corner(delaunator::next_halfedge(at)))).collect()
}

/// How many triangles there are, and the edges between triangles that have a side in common.
pub fn dual(points: &[Point]) -> (u32, Vec<(u32, u32)>) {
    let triangulation = triangulate(points);
    let inner = each_edge(&triangulation).filter(|(_, twin)| *twin != EMPTY);
    let between = inner.map(|(at, twin)| (at as u32 / 3, twin as u32 / 3)).collect();
    (triangulation.len() as u32, between)
}

/// Each edge once, with its other half, which is [`EMPTY`] at the rim.
fn each_edge(triangulation: &Triangulation) -> impl Iterator<Item = (usize, usize)> {
    let halves = triangulation.halfedges.iter().copied().enumerate();
    halves.filter(|(at, twin)| *twin == EMPTY || at < twin)
}
