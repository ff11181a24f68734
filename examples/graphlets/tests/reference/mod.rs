//! Graphlet degree vectors by looking at every set of two to five vertices, and at nothing that the crate computes: a set's
//! graphlet is known by its degrees and triangles, a vertex's orbit by the sum of the degrees around it.

use graphlets::{graph::Graph, orbits::ORBITS};

/// Graphlets in the published order: the degrees of the vertices, the triangles, and for each orbit the sum of the degrees
/// of a vertex in it and its neighbours.
#[rustfmt::skip]
pub const GRAPHLETS: [(&str, usize, &[usize]); 30] = [
    ("11", 0, &[2]),
    ("211", 0, &[3, 4]), ("222", 1, &[6]),
    ("2211", 0, &[3, 5]), ("3111", 0, &[4, 6]), ("2222", 0, &[6]), ("3221", 1, &[4, 7, 8]), ("3322", 2, &[8, 10]),
    ("3333", 4, &[12]),
    ("22211", 0, &[3, 5, 6]), ("32111", 0, &[3, 4, 6, 7]), ("41111", 0, &[5, 8]), ("33211", 1, &[4, 8, 9]),
    ("32221", 1, &[3, 6, 7, 9]), ("42211", 1, &[5, 8, 10]), ("22222", 0, &[6]), ("32221", 0, &[4, 6, 7, 8]),
    ("43221", 2, &[5, 9, 11, 12]), ("42222", 2, &[8, 12]), ("33321", 2, &[4, 8, 10, 11]), ("33222", 0, &[8, 9]),
    ("33222", 1, &[7, 8, 10]), ("44222", 3, &[10, 14]), ("43331", 4, &[5, 13, 14]), ("43322", 3, &[9, 12, 14]),
    ("33332", 2, &[8, 11, 12]), ("44332", 5, &[10, 14, 16]), ("43333", 4, &[13, 16]), ("44433", 7, &[15, 18]),
    ("44444", 10, &[20]),
];

/// The counters of all vertices.
pub fn counters(graph: &Graph) -> Vec<u32> {
    let mut counters = vec![0; graph.vertices() as usize * ORBITS];
    for set in 0..1_u32 << graph.vertices() {
        let members: Vec<u32> = graph.all().filter(|vertex| set >> vertex & 1 == 1).collect();
        if (2..=5).contains(&members.len()) && is_connected(graph, &members) {
            for (member, orbit) in members.iter().zip(orbits(graph, &members)) {
                counters[*member as usize * ORBITS + orbit] += 1;
            }
        }
    }
    counters
}

fn is_connected(graph: &Graph, members: &[u32]) -> bool {
    let mut reached = vec![members[0]];
    let mut at = 0;
    while let Some(&vertex) = reached.get(at) {
        let new: Vec<u32> =
            members.iter().copied().filter(|other| graph.is_edge(vertex, *other) && !reached.contains(other)).collect();
        reached.extend(new);
        at += 1;
    }
    reached.len() == members.len()
}

fn orbits(graph: &Graph, members: &[u32]) -> Vec<usize> {
    let near = |vertex: u32| members.iter().copied().filter(move |other| graph.is_edge(vertex, *other));
    let degree = |vertex: u32| near(vertex).count();
    let mut degrees: Vec<usize> = members.iter().map(|vertex| degree(*vertex)).collect();
    degrees.sort_unstable_by(|a, b| b.cmp(a));
    let degrees: String = degrees.iter().map(ToString::to_string).collect();
    let corners: usize = members
        .iter()
        .map(|vertex| near(*vertex).flat_map(|a| near(*vertex).map(move |b| (a, b))))
        .map(|pairs| pairs.filter(|(a, b)| a < b && graph.is_edge(*a, *b)).count())
        .sum();
    let graphlet = GRAPHLETS.iter().position(|known| known.0 == degrees && known.1 == corners / 3).expect("a graphlet");
    let first: usize = GRAPHLETS[..graphlet].iter().map(|known| known.2.len()).sum();
    let sum = |vertex: u32| degree(vertex) + near(vertex).map(degree).sum::<usize>();
    let place = |vertex: u32| GRAPHLETS[graphlet].2.iter().position(|known| *known == sum(vertex)).expect("an orbit");
    members.iter().map(|vertex| first + place(*vertex)).collect()
}
