//! Where each digest was seen first, in the whole lineage.

use hashbrown::{HashTable, hash_table::Entry};
use rayon::prelude::*;

use super::found::Found;
use crate::murmur3::Digest;

/// Parts of the table, of which each is filled by one thread at a time: small enough to stay in that core's cache meanwhile.
/// A digest's last bits say which.
const SHARDS: usize = 1024;
/// Nodes that a thread puts in the order of shards at a time.
const PART: usize = 16 << 10;

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
        if found.len() <= SHARDS {
            for node in found {
                node.source = claim(&mut self.0[shard(&node.digest)], node).unwrap_or(node.source);
            }
            return;
        }
        let parts: Vec<ByShard> =
            found.par_chunks(PART).enumerate().map(|(part, nodes)| ByShard::new(part, nodes)).collect();
        let known: Vec<Vec<(u32, Source)>> = self
            .0
            .par_iter_mut()
            .enumerate()
            .map(|(shard, table)| {
                let nodes = parts.iter().flat_map(|part| part.of(shard));
                nodes.filter_map(|(at, node)| claim(table, node).map(|source| (*at, source))).collect()
            })
            .collect();
        known.into_iter().flatten().for_each(|(at, source)| found[at as usize].source = source);
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

/// Some nodes with their positions, by the shard of their digests, and in order within a shard. They are copied: to look at
/// every thousandth node where they are would be a miss of the cache, and of the page tables, for each.
struct ByShard {
    nodes: Vec<(u32, Found)>,
    /// Where the nodes of each shard begin, and where the last ones end.
    begins: Vec<u32>,
}

impl ByShard {
    fn new(part: usize, nodes: &[Found]) -> Self {
        let mut begins = vec![0; SHARDS + 1];
        nodes.iter().for_each(|node| begins[shard(&node.digest) + 1] += 1);
        (0..SHARDS).for_each(|shard| begins[shard + 1] += begins[shard]);
        let first = Found { node: 0, source: Source { checkpoint: 0, node: 0 }, digest: Digest::default() };
        let (mut next, mut ordered) = (begins.clone(), vec![(0, first); nodes.len()]);
        for (at, node) in (part as u32 * PART as u32..).zip(nodes) {
            let place = &mut next[shard(&node.digest)];
            ordered[*place as usize] = (at, *node);
            *place += 1;
        }
        Self { nodes: ordered, begins }
    }

    fn of(&self, shard: usize) -> &[(u32, Found)] {
        &self.nodes[self.begins[shard] as usize..self.begins[shard + 1] as usize]
    }
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
    usize::from(u16::from_le_bytes([digest[14], digest[15]])) % SHARDS
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

    #[test]
    fn of_many_equal_digests_the_first_is_the_source_however_many_threads_claim_them() {
        let nodes = |checkpoint| {
            let node = move |node: u32| {
                let digest = murmur3(&(node % 5_000).to_le_bytes(), 0);
                Found { node, source: Source { checkpoint, node }, digest }
            };
            (0..60_000).map(node).collect::<Vec<_>>()
        };
        let mut history = History::default();
        for checkpoint in [1, 2] {
            let mut nodes = nodes(checkpoint);
            history.claim(&mut nodes);
            let first = |node: &Found| node.source == Source { checkpoint: 1, node: node.node % 5_000 };
            assert!(nodes.iter().all(first), "checkpoint {checkpoint}");
        }
        assert_eq!(history.len(), 5_000);
    }
}
