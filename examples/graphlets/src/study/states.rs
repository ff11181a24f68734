//! The counters wherever a checkpoint of some series is due.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    counting::{Counter, Threads, pauses},
    graph::Graph,
};

/// Copies of the counters, by the number of roots that had been counted.
pub struct States {
    vertices: u32,
    after_roots: BTreeMap<u32, Vec<u32>>,
}

impl States {
    /// Counts a graph, and keeps what series of so many checkpoints need.
    pub fn count(graph: &Graph, numbers: &BTreeSet<u32>) -> Self {
        let vertices = graph.vertices();
        let due: BTreeSet<u32> = numbers.iter().flat_map(|number| pauses(vertices, *number)).collect();
        let mut counting = Threads::new(graph);
        let (mut counted, mut after_roots) = (0, BTreeMap::new());
        for roots in due {
            counting.advance(counted..roots);
            counted = roots;
            after_roots.insert(roots, counting.counters());
        }
        Self { vertices, after_roots }
    }

    /// The counters at each checkpoint of a series of so many, which is one of those that were counted for.
    pub fn of(&self, checkpoints: u32) -> Vec<&[u32]> {
        pauses(self.vertices, checkpoints).map(|roots| &self.after_roots[&roots][..]).collect()
    }
}
