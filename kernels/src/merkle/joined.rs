//! One entry for neighbours: the trees over the chunks that were found, from the chunks up.
//!
//! Two nodes are joined when both are first occurrences, or when both were seen before and the node over them was too. A
//! level lists only the nodes that may still be joined; whatever has no such neighbour is written down and gone. So when
//! chunks change here and there, the lists are short after a level or two, and nobody walks through a whole tree.
//!
//! The history learns every node all of whose chunks were seen first in this checkpoint, also where some of them repeat
//! others: it is found when it comes again as a whole, in this checkpoint (a run of equal chunks costs an entry for each
//! doubling of its length) or later.
//!
//! All these nodes of a level are claimed before anything is looked up there, so that what is found depends on no race.

use rayon::prelude::*;

use super::{
    Source,
    forest::{Forest, Tree},
    found::{Found, Kind},
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
    /// Nodes above, all of whose chunks were seen first in this checkpoint, ...
    claimed: Vec<Found>,
    /// ... and what is below each.
    below: Vec<Below>,
    /// Other nodes above over what was seen before; with the position of the left one below.
    looked_up: Vec<(usize, Found)>,
}

/// What is below a node.
#[derive(Clone, Copy)]
enum Below {
    Firsts,
    /// What was seen before, the left one at this position: to be written down if the node was not.
    Shifts(usize),
    /// This and that, which has been written down.
    Mixed,
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
    level.parts().flat_map_iter(|part| level.in_trees(part).filter_map(|(at, tree)| level.written(at, tree))).collect()
}

/// What is to be written down, in the order of bytes.
pub(super) fn joined(checkpoint: u32, forest: &Forest, history: &mut History, chunks: &[Found]) -> Vec<Written> {
    let (mut written, mut joined, mut level) = (Vec::new(), Vec::new(), 0);
    loop {
        let below = Level { checkpoint, forest, level, nodes: if level == 0 { chunks } else { &joined } };
        if below.nodes.is_empty() {
            break;
        }
        let mut fates = Fates::default();
        below.parts().map(|part| below.fates(part)).collect::<Vec<_>>().into_iter().for_each(|part| fates.append(part));
        history.claim(&mut fates.claimed);
        written.append(&mut fates.written);
        let mut above = below.above(history, fates, &mut written);
        // Runs in order: the sort merges them.
        above.sort_by_key(|found| found.node);
        (joined, level) = (above, level + 1);
    }
    written.par_sort_unstable_by_key(|written| written.chunk);
    written
}

impl Fates {
    fn claim(&mut self, above: Found, below: Below) {
        self.claimed.push(above);
        self.below.push(below);
    }

    fn append(&mut self, mut behind: Self) {
        self.written.append(&mut behind.written);
        self.claimed.append(&mut behind.claimed);
        self.below.append(&mut behind.below);
        self.looked_up.append(&mut behind.looked_up);
    }
}

impl Level<'_> {
    /// The nodes of the level above that may still be joined. What is below one that is no single thing is written down.
    fn above(&self, history: &History, fates: Fates, written: &mut Vec<Written>) -> Vec<Found> {
        let mut above = Vec::with_capacity(fates.claimed.len() + fates.looked_up.len());
        for (node, below) in fates.claimed.into_iter().zip(fates.below) {
            above.push(match below {
                Below::Firsts => node,
                Below::Shifts(_) if node.kind(self.checkpoint) == Kind::Shift => node,
                Below::Shifts(left) => {
                    written.extend(self.pair_at(left));
                    node.mixed()
                }
                Below::Mixed => node.mixed(),
            });
        }
        let looked_up = fates.looked_up.par_iter().with_min_len(PART);
        let sources: Vec<_> = looked_up.map(|(_, node)| history.get(&node.digest)).collect();
        for ((left, node), source) in fates.looked_up.into_iter().zip(sources) {
            match source {
                Some(source) => above.push(Found { source, ..node }),
                None => written.extend(self.pair_at(left)),
            }
        }
        above
    }

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
                Fate::Written => fates.written.extend(self.written(at, tree)),
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
            true if self.are_joined(at, at + 1) => Fate::Left,
            false if at > 0 && self.are_joined(at - 1, at) => Fate::Right,
            _ => Fate::Written,
        }
    }

    /// Whether two are neighbours, and the node over them may be seen again or was seen before.
    fn are_joined(&self, left: usize, right: usize) -> bool {
        let (Some(left), Some(right)) = (self.nodes.get(left), self.nodes.get(right)) else { return false };
        let [is_left_of, is_right_of] = [left, right].map(|found| found.is_of(self.checkpoint));
        let are_shifts = [left, right].map(|found| found.kind(self.checkpoint)) == [Kind::Shift; 2];
        left.node + 1 == right.node && (are_shifts || is_left_of && is_right_of)
    }

    /// Joins the node at a position with its right neighbour, if it has one.
    fn join(&self, at: usize, tree: &Tree, digest: Digest, fates: &mut Fates) {
        let node = tree.parent(self.level, self.nodes[at].node);
        let above = Found { node, source: Source { checkpoint: self.checkpoint, node }, digest };
        let below = match self.nodes[at].node + 1 == tree.level(self.level).end {
            true => &self.nodes[at..=at],
            false => &self.nodes[at..at + 2],
        };
        let all_are = |kind| below.iter().all(|found| found.kind(self.checkpoint) == kind);
        let is_of = below.iter().all(|found| found.is_of(self.checkpoint));
        match () {
            () if all_are(Kind::First) => fates.claim(above, Below::Firsts),
            () if all_are(Kind::Shift) && is_of => fates.claim(above, Below::Shifts(at)),
            () if all_are(Kind::Shift) => fates.looked_up.push((at, above)),
            () if is_of => {
                (at..at + below.len()).for_each(|at| fates.written.extend(self.written(at, tree)));
                fates.claim(above, Below::Mixed);
            }
            () => {}
        }
    }

    /// The node at a position and its right neighbour, if it has one.
    fn pair_at(&self, at: usize) -> impl Iterator<Item = Written> {
        let pair = self.in_trees(at..self.nodes.len()).take(2).enumerate();
        let there = pair.take_while(|(side, (at, tree))| *side == 0 || self.fate(*at, tree) == Fate::Right);
        there.filter_map(|(_, (at, tree))| self.written(at, tree))
    }

    /// Nothing for a node that is no single thing: what is below it has been written down.
    fn written(&self, at: usize, tree: &Tree) -> Option<Written> {
        let Found { node, source, .. } = self.nodes[at];
        let chunk = tree.first_chunk() + tree.chunks_below_in(self.level, node).start;
        let is_one = self.nodes[at].kind(self.checkpoint) != Kind::Mixed;
        is_one.then_some(Written { chunk, node, level: self.level as u8, source })
    }
}
