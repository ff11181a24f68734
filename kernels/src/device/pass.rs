//! A checkpoint that is being taken: what the kernels are told of it.

use super::layout::{self, TILE_WORDS};
use crate::merkle::forest::Forest;

/// A checkpoint that is being taken.
pub struct Pass {
    pub forest: Forest,
    /// What the kernels are told.
    pub parameter: layout::Checkpoint,
    /// Those that have chunks.
    pub regions: Vec<layout::Region>,
}

impl Pass {
    /// Words with a bit for each chunk, by tiles.
    pub fn words(&self) -> u64 {
        u64::from(self.parameter.tile_count) * TILE_WORDS
    }

    /// Nodes over chunks.
    pub fn inner_nodes(&self) -> u64 {
        let chunks: u64 = self.regions.iter().map(|region| u64::from(region.chunks)).sum();
        self.forest.nodes() - chunks
    }
}
