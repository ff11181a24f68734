//! The order of the vertices is one, and changes nothing but their numbers.

#![allow(clippy::unwrap_used, reason = "a test")]

use graphlets::{
    counting::{Counter, Threads},
    families::Family,
    gorder::gorder,
    graph::Graph,
    orbits::ORBITS,
};

fn counters(graph: &Graph) -> Vec<u32> {
    let mut counting = Threads::new(graph);
    counting.advance(graph.all()).unwrap();
    counting.counters().unwrap()
}

#[test]
fn every_vertex_gets_one_number() {
    let star = Graph::new(500, (1..500).map(|leaf| (0, leaf)));
    let parts = Graph::new(9, [(0, 5), (5, 7), (1, 2)]);
    for graph in Family::EVERY.map(|family| family.generate(2000, 5)).into_iter().chain([star, parts]) {
        let mut order = gorder(&graph);
        order.sort_unstable();
        assert!(order.into_iter().eq(graph.all()));
    }
}

#[test]
fn counters_move_with_their_vertices() {
    for family in Family::EVERY {
        let graph = family.generate(1500, 5);
        let order = gorder(&graph);
        let (before, after) = (counters(&graph), counters(&graph.reordered(&order)));
        for (new, old) in order.iter().enumerate() {
            let old = *old as usize;
            assert_eq!(after[new * ORBITS..][..ORBITS], before[old * ORBITS..][..ORBITS], "{family:?}");
        }
    }
}

#[test]
fn neighbours_come_to_lie_close_together() {
    let graph = Family::Delaunay.generate(5000, 5);
    let close = |graph: &Graph| graph.edges().filter(|(a, b)| b - a <= 5).count() as f64 / graph.edges().count() as f64;
    let after = close(&graph.reordered(&gorder(&graph)));
    assert!(close(&graph) < 0.01 && after > 0.3, "{after} of all edges lead no further than the window");
}
