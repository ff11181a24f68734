//! Planar road networks: a seventh of the vertices are junctions, the others lie on the roads between them. 1.064 edges a
//! vertex, as the map of Asia in the paper has.
//!
//! The roads are edges of a triangulation of random junctions: short ones first as far as they connect what was not
//! connected, so that dead ends remain, and then others until there are 1.45 for each junction.

use super::triangulation;
use crate::graph::Graph;

const VERTICES_PER_JUNCTION: u32 = 7;
const ROADS_PER_JUNCTION: f64 = 1.45;

pub fn generate(vertices: u32, random: &mut fastrand::Rng) -> Graph {
    let junctions = vertices / VERTICES_PER_JUNCTION;
    let points = triangulation::random_points(junctions, random);
    let mut wanted: Vec<(f64, (u32, u32))> = triangulation::edges(&points)
        .into_iter()
        .map(|(a, b)| {
            let (a_point, b_point) = (&points[a as usize], &points[b as usize]);
            let length = (a_point.x - b_point.x).hypot(a_point.y - b_point.y);
            (length * (0.5 + random.f64()), (a, b))
        })
        .collect();
    wanted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let roads = connecting(junctions, &wanted);
    let on_roads = f64::from(vertices - junctions);
    let total: f64 = roads.iter().map(|(length, _)| length).sum();
    let mut next = junctions;
    let mut edges = Vec::new();
    for (length, (from, to)) in roads {
        let between = (on_roads * length / total + random.f64()) as u32;
        let mut last = from;
        for vertex in next..next + between {
            edges.push((last, vertex));
            last = vertex;
        }
        edges.push((last, to));
        next += between;
    }
    Graph::new(next, edges)
}

/// The first edges that connect all junctions, and the first others.
fn connecting(junctions: u32, wanted: &[(f64, (u32, u32))]) -> Vec<(f64, (u32, u32))> {
    let mut leaders: Vec<u32> = (0..junctions).collect();
    let (mut roads, others): (Vec<_>, Vec<_>) = wanted.iter().partition(|(_, (a, b))| {
        let (a, b) = (leader(&mut leaders, *a), leader(&mut leaders, *b));
        leaders[a as usize] = b;
        a != b
    });
    let more = (f64::from(junctions) * ROADS_PER_JUNCTION) as usize - roads.len();
    roads.extend(others.into_iter().take(more));
    roads
}

/// Who stands for all that are connected with `junction`.
fn leader(leaders: &mut [u32], mut junction: u32) -> u32 {
    while leaders[junction as usize] != junction {
        let above = leaders[leaders[junction as usize] as usize];
        leaders[junction as usize] = above;
        junction = above;
    }
    junction
}
