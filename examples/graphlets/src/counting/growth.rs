//! Finding each connected set of two to five vertices once, from its smallest vertex.
//!
//! The enumeration of Wernicke ("Efficient detection of network motifs", 2006) without its lists. A set is grown by a
//! neighbour of one of its members; the candidates are ordered by the first member that they are neighbours of, and by
//! their place among its neighbours; and every member must come behind the one before it in this order. So what has to be
//! remembered of a set is its members and one place, however many neighbours they have. The kernel in cuda/graphlets.cu
//! does the same.

use crate::{
    graph::Graph,
    orbits::{VERTICES_MAX, edge_bit},
};

/// Calls `found` with the members of each set that has `root` as its smallest, and the edges among them in bits.
pub fn grow(graph: &Graph, root: u32, found: &mut impl FnMut(&[u32], u32)) {
    let mut members = [0; VERTICES_MAX];
    members[0] = root;
    grow_further(graph, &mut members, Set { size: 1, edges: 0, place: (0, 0) }, found);
}

#[derive(Clone, Copy)]
struct Set {
    size: usize,
    edges: u32,
    /// The first place not yet looked at: a member, and which of its neighbours.
    place: (usize, usize),
}

fn grow_further(graph: &Graph, members: &mut [u32; VERTICES_MAX], set: Set, found: &mut impl FnMut(&[u32], u32)) {
    let (first, mut at) = set.place;
    for member in first..set.size {
        let neighbours = graph.neighbours(members[member]);
        while let Some(&candidate) = neighbours.get(at) {
            at += 1;
            if candidate > members[0]
                && let Some(edges) = edges_of_new(graph, &members[..set.size], member, candidate)
            {
                members[set.size] = candidate;
                let grown = Set { size: set.size + 1, edges: set.edges | edges, place: (member, at) };
                found(&members[..grown.size], grown.edges);
                if grown.size < VERTICES_MAX {
                    grow_further(graph, members, grown, found);
                }
            }
        }
        at = 0;
    }
}

/// The edges between a neighbour of `member` and all members, or None if it is a neighbour of an earlier member too: then
/// it is in the set already, or it had its turn there.
fn edges_of_new(graph: &Graph, members: &[u32], member: usize, candidate: u32) -> Option<u32> {
    let is_edge = |other: &u32| graph.is_edge(*other, candidate);
    if members[..member].iter().any(is_edge) {
        return None;
    }
    let new = members.len();
    let later = (member + 1..new).filter(|other| is_edge(&members[*other]));
    Some(later.map(|other| edge_bit(other, new)).sum::<u32>() | edge_bit(member, new))
}
