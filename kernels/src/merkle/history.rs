//! Where each digest was seen first, in the whole lineage.

use hashbrown::{HashTable, hash_table::Entry};
use rayon::prelude::*;

use crate::murmur3::Digest;

/// Parts of the table that are filled at once. A digest's last bits say which.
const SHARDS: usize = 64;

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

    pub fn get(&self, digest: &Digest) -> Option<Source> {
        let shard = &self.0[shard(digest)];
        shard.find(hash(digest), |(known, _)| known == digest).map(|(_, source)| *source)
    }

    /// For each digest where it occurred first: that is `own(position)` if it was unknown. Digests that occur several times
    /// belong to the first of them, whatever thread comes first.
    pub fn claim(&mut self, digests: &[Digest], own: impl Fn(usize) -> Source + Sync) -> Vec<Source> {
        let mut positions = vec![Vec::new(); SHARDS];
        digests.iter().enumerate().for_each(|(at, digest)| positions[shard(digest)].push(at));
        let claimed: Vec<Vec<(usize, Source)>> = (&mut self.0, positions)
            .into_par_iter()
            .map(|(table, positions)| {
                let claim = |at: usize| (at, claim(table, &digests[at], own(at)));
                positions.into_iter().map(claim).collect()
            })
            .collect();
        let mut sources = vec![Source { checkpoint: 0, node: 0 }; digests.len()];
        claimed.into_iter().flatten().for_each(|(at, source)| sources[at] = source);
        sources
    }

    /// Forgets what was seen first in checkpoints that `stays` says no to.
    pub fn retain(&mut self, stays: impl Fn(u32) -> bool) {
        self.0.iter_mut().for_each(|table| table.retain(|(_, source)| stays(source.checkpoint)));
    }
}

fn claim(table: &mut HashTable<(Digest, Source)>, digest: &Digest, own: Source) -> Source {
    match table.entry(hash(digest), |(known, _)| known == digest, |(known, _)| hash(known)) {
        Entry::Occupied(known) => known.get().1,
        Entry::Vacant(free) => free.insert((*digest, own)).get().1,
    }
}

fn hash(digest: &Digest) -> u64 {
    digest.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

fn shard(digest: &Digest) -> usize {
    usize::from(digest[15]) % SHARDS
}
