//! What every graph of a family has in common with those of the paper.

use graphlets::{families::Family, graph::Statistics};

const VERTICES: u32 = 20_000;

fn statistics(family: Family) -> Statistics {
    let statistics = family.generate(VERTICES, 7).statistics();
    let deviation = f64::from(statistics.vertices) / f64::from(VERTICES) - 1.0;
    assert!(deviation.abs() < 0.08, "{family:?} has {} vertices", statistics.vertices);
    assert_eq!(statistics.components, 1, "{family:?} is not connected");
    statistics
}

fn edges_per_vertex(statistics: &Statistics) -> f64 {
    f64::from(statistics.edges) / f64::from(statistics.vertices)
}

fn assert_may_be_planar(statistics: &Statistics) {
    assert!(statistics.edges <= 3 * statistics.vertices - 6, "{statistics:?}");
}

#[test]
fn a_seed_gives_one_graph_and_another_seed_another() {
    for family in Family::EVERY {
        assert_eq!(family.generate(1000, 1), family.generate(1000, 1));
        assert_ne!(family.generate(1000, 1), family.generate(1000, 2), "{family:?}");
    }
}

#[test]
fn the_smallest_graphs_are_connected_too() {
    for family in Family::EVERY {
        assert_eq!(family.generate(0, 1).statistics().components, 1, "{family:?}");
    }
}

#[test]
fn a_delaunay_triangulation_has_all_edges_a_planar_graph_can_have_but_for_its_rim() {
    let statistics = statistics(Family::Delaunay);
    assert_eq!(statistics.vertices, VERTICES);
    assert_may_be_planar(&statistics);
    assert!(statistics.edges > 3 * statistics.vertices - 200, "{statistics:?}");
    assert!(statistics.degree_min >= 2);
}

#[test]
fn events_have_one_edge_to_the_next_and_one_to_their_message() {
    let race = statistics(Family::MessageRace);
    assert_eq!(race.edges, race.vertices - 256 + race.vertices / 2);
    assert_eq!(race.degree_max, 3);
    let mesh = statistics(Family::UnstructuredMesh);
    assert_eq!(mesh.edges, mesh.vertices - 256 + mesh.vertices / 2);
    assert_eq!(mesh.degree_max, 3);
}

#[test]
fn a_road_network_is_mostly_chains() {
    let graph = Family::Road.generate(VERTICES, 7);
    let statistics = statistics(Family::Road);
    assert_may_be_planar(&statistics);
    assert!((1.05..1.08).contains(&edges_per_vertex(&statistics)), "{statistics:?}");
    let on_chains = graph.all().filter(|vertex| graph.degree(*vertex) == 2).count();
    assert!(on_chains as f64 > 0.8 * f64::from(VERTICES), "{on_chains} vertices have two neighbours");
    assert_eq!(statistics.degree_min, 1);
}

#[test]
fn cells_of_bubbles_have_three_neighbours_but_for_the_rim() {
    let statistics = statistics(Family::Bubbles);
    assert_may_be_planar(&statistics);
    assert_eq!(statistics.degree_max, 3);
    assert!((1.48..1.5).contains(&edges_per_vertex(&statistics)), "{statistics:?}");
}
