//! The head of a difference, its numbers checked, as pieces of regions.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
};

use rayon::prelude::*;

use super::{
    Body, Error, Head, Result, Source,
    forest::{Forest, Tree},
};

/// A head whose numbers have been checked. It says where bytes are, and has none.
#[derive(Clone)]
pub(super) struct Checked {
    pub checkpoint: u32,
    pub chunk_bytes: u32,
    pub forest: Forest,
    /// What it says, in the order of trees and of chunks. No chunk is in two of them.
    pieces: Vec<Piece>,
    /// Where the pieces of each tree begin.
    first_pieces: Vec<usize>,
    /// Positions of the trees.
    trees: HashMap<u64, usize>,
}

/// Chunks side by side.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// Position of the tree.
    pub tree: usize,
    /// Counted in the region.
    pub chunks: Range<u32>,
    pub place: Place,
}

/// Where the bytes of chunks are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// Stored here, from this offset in the data on.
    Here(u64),
    /// As another node of this level, of this checkpoint or another one.
    There(Source, usize),
}

/// What a difference says of chunks: of which node they are another occurrence, and its level; or that they are stored here.
type Said = (usize, Range<u32>, Option<(Source, usize)>);

impl Checked {
    /// # Errors
    /// [`super::Error::Corrupt`], [`super::Error::TooLarge`].
    pub fn new(head: &Head) -> Result<Self> {
        let forest = head.forest()?;
        let said: Vec<Said> = match &head.body {
            Body::Full => (0..).zip(&forest.trees).map(|(tree, shape)| (tree, 0..shape.chunks(), None)).collect(),
            Body::Changed(bits) => changed(head, &forest, bits)?,
            Body::Nodes { firsts, shifts } => {
                let firsts = firsts.iter().map(|node| (*node, None));
                let shifts = shifts.iter().map(|shift| (shift.node, Some(shift.source)));
                nodes(head, &forest, firsts.chain(shifts))?
            }
        };
        let pieces = pieces(&forest, said);
        let &Head { checkpoint, chunk_bytes, data_bytes, .. } = head;
        let (first_pieces, trees) = (first_pieces(&forest, &pieces), trees(head)?);
        let known = Self { checkpoint, chunk_bytes, forest, pieces, first_pieces, trees };
        known.check_length(data_bytes)?;
        Ok(known)
    }

    /// The bytes stored must be as many as it takes.
    fn check_length(&self, stored: u64) -> Result<()> {
        let here = self.pieces.iter().filter(|piece| matches!(piece.place, Place::Here(_)));
        let needed: u64 = here.map(|piece| self.bytes(piece.tree, &piece.chunks)).sum();
        let wrong = || self.corrupt(format!("{stored} bytes are stored, and {needed} should be"));
        (needed == stored).then_some(()).ok_or_else(wrong)
    }

    pub fn corrupt(&self, what: impl Into<String>) -> Error {
        Error::Corrupt { checkpoint: self.checkpoint, what: what.into() }
    }

    /// What it says nothing of must be as `newest` has it.
    ///
    /// # Errors
    /// [`super::Error::Corrupt`].
    pub fn check_unsaid(&self, newest: Option<&Self>) -> Result<()> {
        let newest = newest.filter(|newest| newest.chunk_bytes == self.chunk_bytes);
        for (at, tree) in self.forest.trees.iter().enumerate() {
            let before = newest.and_then(|newest| Some(&newest.forest.trees[newest.tree_of_region(tree.region.id)?]));
            let is_there = |chunks: &Range<u32>| {
                before.is_some_and(|it| it.bytes_of_chunks(chunks.clone()) == tree.bytes_of_chunks(chunks.clone()))
            };
            let (mut end, behind) = (0, tree.chunks()..tree.chunks());
            for said in self.pieces_of(at).iter().map(|piece| piece.chunks.clone()).chain(std::iter::once(behind)) {
                let unsaid = end..said.start;
                if !unsaid.is_empty() && !is_there(&unsaid) {
                    return Err(self.unsaid(tree, &unsaid));
                }
                end = said.end;
            }
        }
        Ok(())
    }

    /// What it refers to must be as long, on the same level, and of the checkpoint that it is said to be of: stored there, or
    /// referred to from lower levels of it. Those references have been checked too, so that all can be followed to the end.
    ///
    /// # Errors
    /// [`super::Error::Corrupt`].
    pub fn check_references(&self, differences: &BTreeMap<u32, Self>) -> Result<()> {
        let sources: HashSet<(Source, usize, u64)> = self
            .pieces
            .iter()
            .filter_map(|piece| match piece.place {
                Place::Here(_) => None,
                Place::There(source, level) => Some((source, level, self.bytes(piece.tree, &piece.chunks))),
            })
            .collect();
        sources.into_par_iter().try_for_each(|(source, level, bytes)| {
            let is_there = self.at(source, differences).is_some_and(|there| {
                let are_chunks_alike = there.chunk_bytes == self.chunk_bytes;
                are_chunks_alike && there.has(source, level, bytes)
            });
            let lost = || self.corrupt(format!("it refers to {source:?}, where that is not stored"));
            is_there.then_some(()).ok_or_else(lost)
        })
    }

    /// Whether this difference says all of a node of a level and of so many bytes, without any other.
    fn has(&self, source: Source, level: usize, bytes: u64) -> bool {
        let Some((tree, chunks)) = self.below(source.node) else { return false };
        let mut end = chunks.start;
        for piece in self.pieces_over(tree, &chunks) {
            let is_followed = match piece.place {
                Place::Here(_) => true,
                Place::There(next, lower) => lower < level && next.checkpoint == source.checkpoint,
            };
            if !is_followed || piece.chunks.start > end {
                return false;
            }
            end = piece.chunks.end;
        }
        let is_as_long = self.bytes(tree, &chunks) == bytes && self.forest.trees[tree].level_of(source.node) == level;
        is_as_long && end >= chunks.end
    }

    /// The difference that a source is in, which may be this one.
    pub fn at<'a>(&'a self, source: Source, differences: &'a BTreeMap<u32, Self>) -> Option<&'a Self> {
        match source.checkpoint == self.checkpoint {
            true => Some(self),
            false => differences.get(&source.checkpoint),
        }
    }

    /// The tree of a node, and the chunks below it.
    pub fn below(&self, node: u32) -> Option<(usize, Range<u32>)> {
        let tree = self.forest.tree_of(node)?;
        Some((tree, self.forest.trees[tree].chunks_below(node)))
    }

    /// What it says of some chunks of a tree, and perhaps of others beside them.
    pub fn pieces_over(&self, tree: usize, chunks: &Range<u32>) -> &[Piece] {
        let pieces = self.pieces_of(tree);
        let begin = pieces.partition_point(|piece| piece.chunks.end <= chunks.start);
        let end = begin + pieces[begin..].partition_point(|piece| piece.chunks.start < chunks.end);
        &pieces[begin..end]
    }

    /// The error that nobody knows what some chunks are.
    pub fn unsaid(&self, tree: &Tree, chunks: &Range<u32>) -> Error {
        self.corrupt(format!("nothing says what chunks {chunks:?} of region {} are", tree.region.id))
    }

    /// The tree of a region: its position.
    pub fn tree_of_region(&self, id: u64) -> Option<usize> {
        self.trees.get(&id).copied()
    }

    /// What it says.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// What it says of the chunks of a tree.
    pub fn pieces_of(&self, tree: usize) -> &[Piece] {
        &self.pieces[self.first_pieces[tree]..self.first_pieces[tree + 1]]
    }

    /// How many bytes chunks of a tree have.
    pub fn bytes(&self, tree: usize, chunks: &Range<u32>) -> u64 {
        bytes(&self.forest.trees[tree], chunks)
    }

    /// Where so many bytes of a piece are, after some of its chunks, in the data of this difference, if they are there.
    pub fn stored_in(&self, piece: &Piece, skipped_chunks: u32, length: u64) -> Option<Range<u64>> {
        let Place::Here(offset) = piece.place else { return None };
        let from = offset + u64::from(skipped_chunks) * u64::from(self.chunk_bytes);
        Some(from..from + length)
    }
}

/// As pieces, those that lie side by side and are stored here as one.
fn pieces(forest: &Forest, said: Vec<Said>) -> Vec<Piece> {
    let (mut pieces, mut offset): (Vec<Piece>, u64) = (Vec::new(), 0);
    for (tree, chunks, source) in said {
        let place = source.map_or(Place::Here(offset), |(source, level)| Place::There(source, level));
        if source.is_none() {
            offset += bytes(&forest.trees[tree], &chunks);
        }
        match pieces.last_mut() {
            Some(Piece { tree: same, chunks: before, place: Place::Here(_) })
                if source.is_none() && *same == tree && before.end == chunks.start =>
            {
                before.end = chunks.end;
            }
            _ => pieces.push(Piece { tree, chunks, place }),
        }
    }
    pieces
}

/// Where the pieces of each tree begin, and where the last ones end.
fn first_pieces(forest: &Forest, pieces: &[Piece]) -> Vec<usize> {
    (0..=forest.trees.len()).map(|tree| pieces.partition_point(|piece| piece.tree < tree)).collect()
}

/// Positions of the trees by the ids of their regions.
fn trees(head: &Head) -> Result<HashMap<u64, usize>> {
    let trees: HashMap<u64, usize> = head.regions.iter().map(|region| region.id).zip(0..).collect();
    let is_right = trees.len() == head.regions.len();
    is_right.then_some(trees).ok_or_else(|| head.corrupt("two of its regions have one id"))
}

fn bytes(tree: &Tree, chunks: &Range<u32>) -> u64 {
    let bytes = tree.bytes_of_chunks(chunks.clone());
    bytes.end - bytes.start
}

/// Runs of the chunks whose bit is set.
fn changed(head: &Head, forest: &Forest, bits: &[u64]) -> Result<Vec<Said>> {
    let chunks = forest.chunks();
    if bits.len() != chunks.div_ceil(64) as usize {
        return Err(head.corrupt(format!("{} words of bits for {chunks} chunks", bits.len())));
    }
    let next = |is_set: bool, from: u32, end: u32| {
        let mut at = from;
        while at < end {
            let word = bits[at as usize / 64] >> (at % 64);
            match if is_set { word } else { !word }.trailing_zeros() {
                zeros if zeros < 64 - at % 64 => return end.min(at + zeros),
                _ => at = at.saturating_add(64 - at % 64),
            }
        }
        end
    };
    let mut runs = Vec::new();
    for (tree, shape) in forest.trees.iter().enumerate() {
        let (first, end) = (shape.first_chunk(), shape.first_chunk() + shape.chunks());
        let mut at = next(true, first, end);
        while at < end {
            let behind = next(false, at, end);
            runs.push((tree, at - first..behind - first, None));
            at = next(true, behind, end);
        }
    }
    Ok(runs)
}

fn nodes(head: &Head, forest: &Forest, nodes: impl Iterator<Item = (u32, Option<Source>)>) -> Result<Vec<Said>> {
    let mut said: Vec<Said> = Vec::new();
    for (node, source) in nodes {
        let unknown = || head.corrupt(format!("it has no node {node}"));
        let tree = forest.tree_of(node).ok_or_else(unknown)?;
        let source = source.map(|source| (source, forest.trees[tree].level_of(node)));
        said.push((tree, forest.trees[tree].chunks_below(node), source));
    }
    said.sort_by_key(|(tree, chunks, _)| (*tree, chunks.start));
    let twice = said.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].1.end > pair[1].1.start);
    match twice {
        Some(pair) => Err(head.corrupt(format!("it says two things of chunk {}", pair[1].1.start))),
        None => Ok(said),
    }
}
