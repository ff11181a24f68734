//! The counters wherever a checkpoint of some series is due.

use std::collections::{BTreeMap, BTreeSet};

use super::Result;
use crate::{counting::pauses, graph::Graph, machinery::Machinery};

/// Copies of the counters, by the number of roots that had been counted.
pub struct States {
    vertices: u32,
    after_roots: BTreeMap<u32, Vec<u32>>,
}

impl States {
    /// Counts a graph, and keeps what series of so many checkpoints need.
    ///
    /// # Errors
    /// Of a device.
    pub fn count(machinery: &Machinery, graph: &Graph, numbers: &BTreeSet<u32>) -> Result<Self> {
        let vertices = graph.vertices();
        let due: BTreeSet<u32> = numbers.iter().flat_map(|number| pauses(vertices, *number)).collect();
        let mut counting = machinery.counter(graph)?;
        let (mut counted, mut after_roots) = (0, BTreeMap::new());
        for roots in due {
            counting.advance(counted..roots)?;
            counted = roots;
            after_roots.insert(roots, counting.counters()?);
        }
        Ok(Self { vertices, after_roots })
    }

    /// After how many roots the checkpoints of a series of so many are.
    pub fn pauses(&self, checkpoints: u32) -> impl Iterator<Item = u32> {
        pauses(self.vertices, checkpoints)
    }

    /// The counters at each checkpoint of a series of so many, which is one of those that were counted for.
    pub fn of(&self, checkpoints: u32) -> Vec<&[u32]> {
        self.pauses(checkpoints).map(|roots| &self.after_roots[&roots][..]).collect()
    }

    /// All of them, with the number of roots.
    pub fn all(&self) -> impl Iterator<Item = (u32, &[u32])> {
        self.after_roots.iter().map(|(roots, counters)| (*roots, &counters[..]))
    }
}
