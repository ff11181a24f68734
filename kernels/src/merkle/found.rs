//! The chunks of a checkpoint that are not what they were at the checkpoint before.
//!
//! Of all nodes only these are listed, here and in the trees above (joined.rs): what has not changed costs the digest of
//! its chunk, and nothing else.

use std::collections::HashMap;

use rayon::prelude::*;

use super::{
    Region, Source,
    forest::{Forest, Tree},
};
use crate::murmur3::{Digest, murmur3_chunks};

/// Chunks that a thread hashes at a time: no more than this, and of no more bytes than that, as far as all lanes are full.
const BATCH_CHUNKS: usize = 1024;
const BATCH_BYTES: usize = 1 << 20;
const LANES: usize = 16;

/// A node that is not as it was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub node: u32,
    /// Where its digest was seen first: here, as long as nobody knows better.
    pub source: Source,
    pub digest: Digest,
}

/// What a node is that is not as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// All its chunks occur for the first time.
    First,
    /// Its digest was seen before.
    Shift,
    /// Its chunks are of both kinds, and those that were seen before were seen in this checkpoint.
    Mixed,
}

impl Found {
    pub fn kind(&self, checkpoint: u32) -> Kind {
        match self.source.node {
            MIXED => Kind::Mixed,
            node if node == self.node && self.source.checkpoint == checkpoint => Kind::First,
            _ => Kind::Shift,
        }
    }

    /// The same, once what is below it has been written down.
    pub fn mixed(self) -> Self {
        Self { source: Source { node: MIXED, ..self.source }, ..self }
    }

    /// Whether all its chunks were seen first in this checkpoint, so that it is enough to say what they are.
    pub fn is_of(&self, checkpoint: u32) -> bool {
        self.source.checkpoint == checkpoint
    }
}

/// The source of nodes that are no single thing. There is no node of this number.
const MIXED: u32 = u32::MAX;

/// The digests of all chunks at a checkpoint.
#[derive(Clone)]
pub(super) struct Previous {
    pub checkpoint: u32,
    /// By the id of the region.
    digests: HashMap<u64, Vec<Digest>>,
}

/// The chunks that are not as `previous` has them, in their order.
pub(super) fn found<'a>(
    checkpoint: u32,
    chunk_bytes: u32,
    forest: &Forest,
    regions: &[Region<'a>],
    previous: Option<&Previous>,
) -> Vec<Found> {
    let chunk_bytes = chunk_bytes as usize;
    let batch_chunks = (BATCH_BYTES / chunk_bytes).clamp(LANES, BATCH_CHUNKS);
    let of_region = |(region, tree): (&Region<'a>, &Tree)| {
        let before = previous.and_then(|previous| previous.digests.get(&region.id)).map_or(&[][..], Vec::as_slice);
        let first = tree.chunk_nodes().start;
        let batches = region.bytes.par_chunks(batch_chunks * chunk_bytes).enumerate();
        batches.flat_map_iter(move |(batch, bytes)| {
            let at = batch * batch_chunks;
            let before = before.get(at..).unwrap_or_default();
            batch_of(checkpoint, first + at as u32, chunk_bytes, bytes, before)
        })
    };
    (regions, &forest.trees).into_par_iter().flat_map(of_region).collect()
}

/// The same of some chunks side by side, the first of which is that node.
fn batch_of(checkpoint: u32, first: u32, chunk_bytes: usize, bytes: &[u8], before: &[Digest]) -> Vec<Found> {
    let mut digests = [Digest::default(); BATCH_CHUNKS];
    let digests = &mut digests[..bytes.len().div_ceil(chunk_bytes)];
    murmur3_chunks(bytes, chunk_bytes, 0, digests);
    if before.starts_with(digests) {
        return Vec::new();
    }
    let all = (first..).zip(digests.iter().enumerate());
    let others = all.filter(|(_, (at, digest))| before.get(*at) != Some(*digest));
    others.map(|(node, (_, digest))| Found { node, source: Source { checkpoint, node }, digest: *digest }).collect()
}

impl Previous {
    /// What the chunks of these trees are, when all but `found` are as `before` has them.
    pub fn new(checkpoint: u32, forest: &Forest, before: Self, mut found: &[Found]) -> Self {
        let mut before = before.digests;
        let mut after = HashMap::new();
        for tree in &forest.trees {
            let nodes = tree.chunk_nodes();
            let mut digests = before.remove(&tree.region.id).unwrap_or_default();
            let chunks = tree.chunks() as usize;
            digests.reserve_exact(chunks.saturating_sub(digests.len()));
            digests.resize(chunks, Digest::default());
            digests.shrink_to_fit();
            let (here, behind) = found.split_at(found.partition_point(|found| found.node < nodes.end));
            here.iter().for_each(|found| digests[(found.node - nodes.start) as usize] = found.digest);
            found = behind;
            after.insert(tree.region.id, digests);
        }
        Self { checkpoint, digests: after }
    }

    /// What the chunks of a region were.
    pub fn of(&self, region: u64) -> Option<&[Digest]> {
        self.digests.get(&region).map(Vec::as_slice)
    }

    /// What they were is not known any more.
    pub fn forget(&mut self, region: u64) {
        self.digests.remove(&region);
    }

    /// They were this.
    pub fn learn(&mut self, region: u64, digests: Vec<Digest>) {
        self.digests.insert(region, digests);
    }

    /// Nothing is known.
    pub fn nothing(checkpoint: u32) -> Self {
        Self { checkpoint, digests: HashMap::new() }
    }

    /// Bytes that it takes for so many chunks.
    pub fn bytes_of(chunks: u32) -> u64 {
        u64::from(chunks) * size_of::<Digest>() as u64
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        self.digests.values().map(|digests| (digests.capacity() * size_of::<Digest>()) as u64).sum()
    }
}
