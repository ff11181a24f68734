//! Counters against known ones, and against those found by looking at all sets of vertices.

#![allow(clippy::unwrap_used, reason = "a test")]

mod reference;

use graphlets::{
    counting::{Counter, Threads},
    graph::Graph,
    orbits::{ORBITS, OrbitTable},
};

fn counters(graph: &Graph) -> Vec<u32> {
    let mut counting = Threads::new(graph);
    counting.advance(graph.all()).unwrap();
    counting.counters().unwrap()
}

/// What is not zero in a vertex's row.
fn row(graph: &Graph, vertex: usize) -> Vec<(usize, u32)> {
    let counters = counters(graph);
    let row = &counters[vertex * ORBITS..][..ORBITS];
    row.iter().copied().enumerate().filter(|(_, count)| *count != 0).collect()
}

fn complete(vertices: u32) -> Graph {
    Graph::new(vertices, (0..vertices).flat_map(|a| (0..a).map(move |b| (a, b))))
}

#[test]
fn there_are_thirty_graphlets_with_seventy_three_orbits() {
    assert_eq!(reference::GRAPHLETS.iter().map(|graphlet| graphlet.2.len()).sum::<usize>(), ORBITS);
    let table = OrbitTable::new();
    let mut seen: Vec<u8> = table.bytes().iter().copied().filter(|orbit| *orbit != u8::MAX).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, (0..ORBITS as u8).collect::<Vec<_>>());
    // 1, 4, 38 and 728 labelled graphs of 2 to 5 vertices are connected.
    let rows = table.bytes().chunks(8).filter(|row| row[0] != u8::MAX).count();
    assert_eq!(rows, 1 + 4 + 38 + 728);
}

#[test]
fn the_counters_of_a_path_are_known() {
    let path = Graph::new(6, (0..5).map(|vertex| (vertex, vertex + 1)));
    assert_eq!(row(&path, 0), [(0, 1), (1, 1), (4, 1), (15, 1)]);
    assert_eq!(row(&path, 2), [(0, 2), (1, 2), (2, 1), (4, 1), (5, 2), (16, 1), (17, 1)]);
}

#[test]
fn the_counters_of_a_cycle_are_known() {
    let cycle = |length: u32| Graph::new(length, (0..length).map(|vertex| (vertex, (vertex + 1) % length)));
    assert_eq!(row(&cycle(4), 1), [(0, 2), (1, 2), (2, 1), (8, 1)]);
    assert_eq!(row(&cycle(5), 1), [(0, 2), (1, 2), (2, 1), (4, 2), (5, 2), (34, 1)]);
    assert_eq!(row(&cycle(9), 1), [(0, 2), (1, 2), (2, 1), (4, 2), (5, 2), (15, 2), (16, 2), (17, 1)]);
}

#[test]
fn the_counters_of_a_star_are_known() {
    let star = Graph::new(7, (1..7).map(|leaf| (0, leaf)));
    assert_eq!(row(&star, 0), [(0, 6), (2, 15), (7, 20), (23, 15)]);
    assert_eq!(row(&star, 3), [(0, 1), (1, 5), (6, 10), (22, 10)]);
}

#[test]
fn the_counters_of_a_clique_are_known() {
    assert_eq!(row(&complete(8), 5), [(0, 7), (3, 21), (14, 35), (72, 35)]);
}

#[test]
fn random_graphs_have_the_counters_that_all_their_sets_of_vertices_give() {
    let random = &mut fastrand::Rng::with_seed(1);
    for round in 0..60 {
        let vertices = random.u32(2..12);
        let density = 0.15 + 0.85 * f64::from(round) / 60.0;
        let pairs: Vec<_> = complete(vertices).edges().filter(|_| random.f64() < density).collect();
        let graph = Graph::new(vertices, pairs);
        assert_eq!(counters(&graph), reference::counters(&graph), "{:?}", graph.edges().collect::<Vec<_>>());
    }
}

#[test]
fn the_counters_of_a_wheel_are_known() {
    // With 40 spokes: no graphlet goes around the hub.
    let rim = 40;
    let spokes = (1..=rim).map(|vertex| (0, vertex));
    let wheel = Graph::new(rim + 1, spokes.chain((1..=rim).map(|vertex| (vertex, vertex % rim + 1))));
    let counters = counters(&wheel);
    assert_eq!(counters[0], rim);
    assert_eq!(counters[3], rim);
    // Three spokes next to each other, four next to each other, and four none of which is next to another.
    assert_eq!(counters[13], rim);
    assert_eq!(counters[61], rim);
    assert_eq!(counters[23], 40 * (35 * 34 * 33 / 6) / 4);
}

#[test]
fn an_edge_between_two_hubs_is_found_and_none_is_not() {
    assert_eq!(row(&complete(20), 5), [(0, 19), (3, 171), (14, 969), (72, 3876)]);
    // Two hubs with 20 neighbours in common: 190 squares, 20 x 19 x 18 / 6 of K2,3, and no triangle.
    let apart = Graph::new(22, (2..22).flat_map(|vertex| [(0, vertex), (1, vertex)]));
    assert_eq!(row(&apart, 1), [(0, 20), (1, 20), (2, 190), (7, 1140), (8, 190), (23, 4845), (50, 1140)]);
}

#[test]
fn counting_may_pause_between_any_two_roots() {
    let graph = graphlets::families::Family::Delaunay.generate(500, 3);
    let mut counting = Threads::new(&graph);
    for roots in [0..1, 1..200, 200..200, 200..500] {
        counting.advance(roots).unwrap();
    }
    assert_eq!(counting.counters().unwrap(), counters(&graph));
}
