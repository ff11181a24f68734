//! One entry for neighbours: the trees over the chunks that were found, from the chunks up.
//!
//! Two nodes are joined when both are first occurrences, or when both were seen before and the node over them was too. A
//! level lists only the nodes that may still be joined; whatever has no such neighbour is written down and gone. So when
//! chunks change here and there, the lists are short after a level or two, and nobody walks through a whole tree.
//!
//! First occurrences of a level are claimed before anything is looked up there, so that what is found depends on no race.

use rayon::prelude::*;

use super::{
    Source,
    forest::{Forest, Tree},
    found::Found,
    history::History,
};
use crate::murmur3::{Digest, murmur3, murmur3_chunks};

/// Nodes that a thread looks at at a time.
const PART: usize = 4096;

/// A node below no other that is one thing: a first occurrence, or seen before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    /// Its first chunk, counted through all regions.
    pub chunk: u32,
    pub node: u32,
    pub level: u8,
    pub source: Source,
}

/// The nodes of a level, and the trees they are in.
struct Level<'a> {
    checkpoint: u32,
    forest: &'a Forest,
    level: usize,
    nodes: &'a [Found],
}

/// What becomes of some nodes of a level.
#[derive(Default)]
struct Fates {
    written: Vec<Written>,
    /// Nodes above over first occurrences.
    firsts: Vec<Found>,
    /// Nodes above over what was seen before; with the position of the left one below.
    shifts: Vec<(usize, Found)>,
}

/// How a node is joined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Not at all: its neighbour is another thing, or there is nothing above.
    Written,
    /// With the next one.
    Left,
    /// With the one before, with which it is dealt with.
    Right,
    /// Alone: it is the last of its level, and has no neighbour.
    Single,
}

/// The chunks as they are, without trees.
pub(super) fn unjoined(checkpoint: u32, forest: &Forest, chunks: &[Found]) -> Vec<Written> {
    let level = Level { checkpoint, forest, level: 0, nodes: chunks };
    level.parts().flat_map_iter(|part| level.in_trees(part).map(|(at, tree)| level.written(at, tree))).collect()
}

/// What is to be written down, in the order of bytes.
pub(super) fn joined(checkpoint: u32, forest: &Forest, history: &mut History, chunks: &[Found]) -> Vec<Written> {
    let (mut written, mut joined, mut level) = (Vec::new(), Vec::new(), 0);
    loop {
        let below = Level { checkpoint, forest, level, nodes: if level == 0 { chunks } else { &joined } };
        if below.nodes.is_empty() {
            break;
        }
        let (mut firsts, mut shifts) = (Vec::new(), Vec::new());
        for fates in below.parts().map(|part| below.fates(part)).collect::<Vec<_>>() {
            written.extend(fates.written);
            firsts.extend(fates.firsts);
            shifts.extend(fates.shifts);
        }
        history.claim(&mut firsts);
        let sources: Vec<_> = shifts.par_iter().with_min_len(PART).map(|(_, node)| history.get(&node.digest)).collect();
        for ((left, node), source) in shifts.into_iter().zip(sources) {
            match source {
                Some(source) => firsts.push(Found { source, ..node }),
                None => written.extend(below.pair_at(left)),
            }
        }
        // Two runs in order: the sort merges them.
        firsts.sort_by_key(|found| found.node);
        (joined, level) = (firsts, level + 1);
    }
    written.par_sort_unstable_by_key(|written| written.chunk);
    written
}

impl Level<'_> {
    /// Ranges of positions.
    fn parts(&self) -> impl IndexedParallelIterator<Item = std::ops::Range<usize>> {
        let count = self.nodes.len();
        (0..count.div_ceil(PART)).into_par_iter().map(move |part| part * PART..count.min((part + 1) * PART))
    }

    /// Positions with their trees.
    fn in_trees(&self, part: std::ops::Range<usize>) -> impl Iterator<Item = (usize, &Tree)> {
        let mut tree = self.forest.tree_of(self.nodes[part.start].node).unwrap_or(0);
        part.map(move |at| {
            while !self.forest.trees[tree].ends_behind(self.nodes[at].node) {
                tree += 1;
            }
            (at, &self.forest.trees[tree])
        })
    }

    fn fates(&self, part: std::ops::Range<usize>) -> Fates {
        let mut fates = Fates::default();
        let (mut digests, mut joined) = (Vec::with_capacity(2 * PART), Vec::with_capacity(PART));
        for (at, tree) in self.in_trees(part) {
            match self.fate(at, tree) {
                Fate::Written => fates.written.push(self.written(at, tree)),
                Fate::Right => {}
                Fate::Left => {
                    digests.extend([self.nodes[at].digest, self.nodes[at + 1].digest]);
                    joined.push((at, tree));
                }
                Fate::Single => {
                    let digest = murmur3(&self.nodes[at].digest, self.level as u32 + 1);
                    self.join(at, tree, digest, &mut fates);
                }
            }
        }
        let mut above = vec![Digest::default(); joined.len()];
        murmur3_chunks(digests.as_flattened(), 2 * size_of::<Digest>(), self.level as u32 + 1, &mut above);
        for ((at, tree), digest) in joined.into_iter().zip(above) {
            self.join(at, tree, digest, &mut fates);
        }
        fates
    }

    fn fate(&self, at: usize, tree: &Tree) -> Fate {
        if self.level + 1 == tree.level_count() {
            return Fate::Written;
        }
        let (node, level) = (self.nodes[at].node, tree.level(self.level));
        let is_left = (node - level.start).is_multiple_of(2);
        match is_left {
            true if node + 1 == level.end => Fate::Single,
            true if self.are_alike(at, at + 1) => Fate::Left,
            false if at > 0 && self.are_alike(at - 1, at) => Fate::Right,
            _ => Fate::Written,
        }
    }

    /// Whether two are neighbours, and both first occurrences or both seen before.
    fn are_alike(&self, left: usize, right: usize) -> bool {
        let (Some(left), Some(right)) = (self.nodes.get(left), self.nodes.get(right)) else { return false };
        left.node + 1 == right.node && left.is_first(self.checkpoint) == right.is_first(self.checkpoint)
    }

    fn join(&self, at: usize, tree: &Tree, digest: Digest, fates: &mut Fates) {
        let node = tree.parent(self.level, self.nodes[at].node);
        let above = Found { node, source: Source { checkpoint: self.checkpoint, node }, digest };
        match self.nodes[at].is_first(self.checkpoint) {
            true => fates.firsts.push(above),
            false => fates.shifts.push((at, above)),
        }
    }

    /// The node at a position and its right neighbour, if it has one.
    fn pair_at(&self, at: usize) -> impl Iterator<Item = Written> {
        self.in_trees(at..self.nodes.len()).take(2).enumerate().map_while(move |(side, (at, tree))| {
            let is_there = side == 0 || self.fate(at, tree) == Fate::Right;
            is_there.then(|| self.written(at, tree))
        })
    }

    fn written(&self, at: usize, tree: &Tree) -> Written {
        let Found { node, source, .. } = self.nodes[at];
        let chunk = tree.first_chunk() + tree.chunks_below_in(self.level, node).start;
        Written { chunk, node, level: self.level as u8, source }
    }
}
