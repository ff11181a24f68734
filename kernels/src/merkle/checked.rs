//! A difference whose numbers have been checked, as pieces of regions.

use std::ops::Range;

use super::{
    Body, Difference, Head, Result, Source,
    forest::{Forest, Tree},
};

/// A difference whose numbers have been checked.
#[derive(Clone)]
pub(super) struct Checked {
    pub difference: Difference,
    pub forest: Forest,
    /// What it says, in the order of trees and of chunks. No chunk is in two of them.
    pieces: Vec<Piece>,
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
    /// Stored with another checkpoint, or here with other chunks.
    There(Source),
}

/// What a difference says of chunks: where they are, or that they are stored here.
type Said = (usize, Range<u32>, Option<Source>);

impl Checked {
    /// # Errors
    /// [`super::Error::Corrupt`], [`super::Error::TooLarge`].
    pub fn new(difference: Difference) -> Result<Self> {
        let head = &difference.head;
        let forest = head.forest()?;
        let said = match &head.body {
            Body::Full => (0..).zip(&forest.trees).map(|(tree, shape)| (tree, 0..shape.chunks(), None)).collect(),
            Body::Changed(bits) => changed(head, &forest, bits)?,
            Body::Nodes { firsts, shifts } => {
                let firsts = firsts.iter().map(|node| (*node, None));
                let shifts = shifts.iter().map(|shift| (shift.node, Some(shift.source)));
                nodes(head, &forest, firsts.chain(shifts))?
            }
        };
        let mut offset = 0;
        let mut pieces = Vec::with_capacity(said.len());
        for (tree, chunks, source) in said {
            let place = source.map_or(Place::Here(offset), Place::There);
            if source.is_none() {
                offset += bytes(&forest.trees[tree], &chunks);
            }
            pieces.push(Piece { tree, chunks, place });
        }
        let stored = difference.data.len() as u64;
        if offset != stored || offset != head.data_bytes {
            return Err(head.corrupt(format!("{stored} bytes are stored, and {offset} should be")));
        }
        Ok(Self { difference, forest, pieces })
    }

    /// What it says of the chunks of a tree.
    pub fn pieces_of(&self, tree: usize) -> &[Piece] {
        let first = self.pieces.partition_point(|piece| piece.tree < tree);
        let end = self.pieces.partition_point(|piece| piece.tree <= tree);
        &self.pieces[first..end]
    }

    /// How many bytes chunks of a tree have.
    pub fn bytes(&self, tree: usize, chunks: &Range<u32>) -> u64 {
        bytes(&self.forest.trees[tree], chunks)
    }
}

fn bytes(tree: &Tree, chunks: &Range<u32>) -> u64 {
    let bytes = tree.bytes_of_chunks(chunks.clone());
    bytes.end - bytes.start
}

/// Runs of the chunks whose bit is set.
fn changed(head: &Head, forest: &Forest, bits: &[u64]) -> Result<Vec<Said>> {
    let chunks: u64 = forest.trees.iter().map(|tree| u64::from(tree.chunks())).sum();
    if bits.len() as u64 != chunks.div_ceil(64) {
        return Err(head.corrupt(format!("{} words of bits for {chunks} chunks", bits.len())));
    }
    let (mut runs, mut bit): (Vec<Said>, usize) = (Vec::new(), 0);
    for (tree, shape) in forest.trees.iter().enumerate() {
        for chunk in 0..shape.chunks() {
            if bits[bit / 64] >> (bit % 64) & 1 == 1 {
                match runs.last_mut() {
                    Some((last, run, _)) if *last == tree && run.end == chunk => run.end += 1,
                    _ => runs.push((tree, chunk..chunk + 1, None)),
                }
            }
            bit += 1;
        }
    }
    Ok(runs)
}

fn nodes(head: &Head, forest: &Forest, nodes: impl Iterator<Item = (u32, Option<Source>)>) -> Result<Vec<Said>> {
    let mut said: Vec<Said> = Vec::new();
    for (node, source) in nodes {
        let unknown = || head.corrupt(format!("it has no node {node}"));
        let tree = forest.tree_of(node).ok_or_else(unknown)?;
        said.push((tree, forest.trees[tree].chunks_below(node), source));
    }
    said.sort_by_key(|(tree, chunks, _)| (*tree, chunks.start));
    let twice = said.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].1.end > pair[1].1.start);
    match twice {
        Some(pair) => Err(head.corrupt(format!("it says two things of chunk {}", pair[1].1.start))),
        None => Ok(said),
    }
}
