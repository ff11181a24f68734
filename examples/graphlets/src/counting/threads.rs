//! Counting on all cores of this machine.

use std::{
    ops::Range,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use ckpt_kernels::device::Result;
use rayon::prelude::*;

use super::{Counter, growth::grow};
use crate::{
    graph::Graph,
    orbits::{ORBITS, OrbitTable},
};

/// Roots that a thread takes at a time.
const BATCH_ROOTS: usize = 64;

/// Counts with a thread for each core. The sums do not depend on who adds first, so neither does what a checkpoint holds.
pub struct Threads<'a> {
    graph: &'a Graph,
    table: OrbitTable,
    counters: Vec<[AtomicU32; ORBITS]>,
}

impl<'a> Threads<'a> {
    /// With all counters at zero.
    pub fn new(graph: &'a Graph) -> Self {
        let row = |_| [const { AtomicU32::new(0) }; ORBITS];
        Self { graph, table: OrbitTable::new(), counters: graph.all().map(row).collect() }
    }
}

impl Counter for Threads<'_> {
    fn advance(&mut self, roots: Range<u32>) -> Result<()> {
        let (table, counters) = (&self.table, &self.counters);
        let count = |members: &[u32], edges: u32| {
            for (member, orbit) in members.iter().zip(table.orbits(members.len(), edges)) {
                counters[*member as usize][usize::from(*orbit)].fetch_add(1, Relaxed);
            }
        };
        let roots = roots.into_par_iter().with_min_len(BATCH_ROOTS);
        roots.for_each(|root| grow(self.graph, root, &mut { count }));
        Ok(())
    }

    fn counters(&self) -> Result<Vec<u32>> {
        Ok(self.counters.as_flattened().par_iter().map(|counter| counter.load(Relaxed)).collect())
    }
}
