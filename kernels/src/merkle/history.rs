//! Where each digest was seen first, in the whole lineage.

use hashbrown::{HashTable, hash_table::Entry};
use rayon::prelude::*;

use super::found::Found;
use crate::murmur3::Digest;

/// Parts of the table that are filled at once. A digest's last bits say which.
const SHARDS: usize = 64;
/// Nodes that a thread puts in order at a time.
const PART: usize = 64 << 10;

/// A node of a checkpoint all of whose chunks were first seen there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Source {
    /// The number of the checkpoint.
    pub checkpoint: u32,
    /// The node, numbered as the trees of that checkpoint number it.
    pub node: u32,
}

/// First occurrences by digest.
#[derive(Clone)]
pub(super) struct History(Vec<HashTable<(Digest, Source)>>);

impl Default for History {
    fn default() -> Self {
        Self(vec![HashTable::new(); SHARDS])
    }
}

impl History {
    pub fn len(&self) -> usize {
        self.0.iter().map(HashTable::len).sum()
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|table| table.allocation_size() as u64).sum()
    }

    pub fn get(&self, digest: &Digest) -> Option<Source> {
        let shard = &self.0[shard(digest)];
        shard.find(hash(digest), |(known, _)| known == digest).map(|(_, source)| *source)
    }

    /// Gives each node the source where its digest was seen first: its own if that was not before. Of several with one digest
    /// that is the first one, whatever thread comes first.
    pub fn claim(&mut self, found: &mut [Found]) {
        let parts: Vec<Vec<Vec<usize>>> =
            found.par_chunks(PART).enumerate().map(|(part, nodes)| by_shard(part * PART, nodes)).collect();
        let known: Vec<Vec<(usize, Source)>> = self
            .0
            .par_iter_mut()
            .enumerate()
            .map(|(shard, table)| {
                let positions = parts.iter().flat_map(|part| &part[shard]);
                positions.filter_map(|at| claim(table, &found[*at]).map(|source| (*at, source))).collect()
            })
            .collect();
        known.into_iter().flatten().for_each(|(at, source)| found[at].source = source);
    }

    /// Forgets what was seen first in checkpoints that `stays` says no to.
    pub fn retain(&mut self, stays: impl Fn(u32) -> bool) {
        self.0.iter_mut().for_each(|table| table.retain(|(_, source)| stays(source.checkpoint)));
    }
}

/// The positions of nodes by the part of the table that their digests belong to.
fn by_shard(first: usize, nodes: &[Found]) -> Vec<Vec<usize>> {
    let mut positions = vec![Vec::new(); SHARDS];
    (first..).zip(nodes).for_each(|(at, node)| positions[shard(&node.digest)].push(at));
    positions
}

/// Where the digest of a node was seen before. If nowhere, it is known from now on.
fn claim(table: &mut HashTable<(Digest, Source)>, node: &Found) -> Option<Source> {
    match table.entry(hash(&node.digest), |(known, _)| *known == node.digest, |(known, _)| hash(known)) {
        Entry::Occupied(known) => Some(known.get().1),
        Entry::Vacant(free) => {
            free.insert((node.digest, node.source));
            None
        }
    }
}

fn hash(digest: &Digest) -> u64 {
    digest.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

fn shard(digest: &Digest) -> usize {
    usize::from(digest[15]) % SHARDS
}
