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

    /// Bytes that so many digests take at most: a part doubles when seven eighths of its places are taken, and has then a
    /// place and a byte for each 7/16 of a digest. The parts' first places are beside that.
    pub fn bytes_at_most(digests: usize) -> u64 {
        const FIRST_BYTES: usize = 160;
        let each = (size_of::<(Digest, Source)>() + 1) * 16;
        (digests * each).div_ceil(7) as u64 + (digests.min(SHARDS) * FIRST_BYTES) as u64
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

    /// Remembers chunks that are all stored with a checkpoint, the first of which is that node, as far as they are new.
    pub fn learn(&mut self, checkpoint: u32, first: u32, digests: &[Digest]) {
        for (part, first) in digests.chunks(PART).zip((first..).step_by(PART)) {
            let found =
                |(node, digest): (u32, &Digest)| Found { node, source: Source { checkpoint, node }, digest: *digest };
            self.claim(&mut (first..).zip(part).map(found).collect::<Vec<_>>());
        }
    }

    /// Forgets what was seen first in checkpoints that `stays` says no to.
    pub fn retain(&mut self, stays: impl Fn(u32) -> bool) {
        for table in &mut self.0 {
            table.retain(|(_, source)| stays(source.checkpoint));
            table.shrink_to_fit(|(known, _)| hash(known));
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::murmur3::murmur3;

    #[test]
    fn no_number_of_digests_takes_more_than_was_said() {
        let mut history = History::default();
        for number in 0..60_000_u32 {
            let digest = murmur3(&number.to_le_bytes(), 0);
            history.claim(&mut [Found {
                node: number,
                source: Source { checkpoint: number / 1_000, node: number },
                digest,
            }]);
            let (bytes, at_most) = (history.bytes(), History::bytes_at_most(history.len()));
            assert!(bytes <= at_most, "{number}: {bytes} bytes, {at_most} at most");
        }
        for gone in 0..60 {
            history.retain(|checkpoint| checkpoint != gone);
            assert_eq!(history.len(), 1_000 * (59 - gone as usize));
            assert!(history.bytes() <= History::bytes_at_most(history.len()), "without {gone}");
        }
    }
}
