//! Finding differences on the CPU, on all cores.

use std::{
    collections::HashMap,
    ops::Range,
};

use rayon::prelude::*;

use super::{
    Body, Error, Head, Method, Result, Shift, Sink, Source, check_chunk_bytes, check_ids, check_order,
    forest::{Forest, RegionShape, Tree},
    history::History,
    pieces::Pieces,
};
use crate::murmur3::{Digest, murmur3, murmur3_chunks};

/// Chunks hashed by a thread at a time.
const BATCH_CHUNKS: usize = 1024;

/// A region's bytes as they are now.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    /// Stays with the region when it moves or changes its length.
    pub id: u64,
    /// All of it.
    pub bytes: &'a [u8],
}

/// Finds what each checkpoint of a lineage adds to it.
#[derive(Clone)]
pub struct Engine {
    chunk_bytes: u32,
    last: Option<u32>,
    history: History,
    /// What the chunks were at the last checkpoint, if that is known.
    previous: Option<Previous>,
}

/// What the chunks were at a checkpoint.
#[derive(Clone)]
struct Previous {
    checkpoint: u32,
    /// By the id of the region.
    digests: HashMap<u64, Vec<Digest>>,
}

/// A checkpoint that has been taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// What the sink was told.
    pub head: Head,
    /// The method that was used.
    pub method: Method,
}

/// What is known of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Label {
    /// As at the checkpoint before.
    Fixed,
    /// All its chunks occur for the first time.
    First,
    /// Occurred before, there.
    Shift(Source),
    /// Its children have been written down.
    Mixed,
}

/// All nodes of a checkpoint.
struct Nodes {
    forest: Forest,
    digests: Vec<Digest>,
    labels: Vec<Label>,
}

impl Engine {
    /// For chunks of so many bytes.
    ///
    /// # Errors
    /// [`Error::ChunkBytes`] for fewer than 32, more than 65,536, or no multiple of 4.
    pub fn new(chunk_bytes: u32) -> Result<Self> {
        check_chunk_bytes(chunk_bytes)?;
        Ok(Self { chunk_bytes, last: None, history: History::default(), previous: None })
    }

    /// How many digests the history holds.
    pub fn history_len(&self) -> usize {
        self.history.len()
    }

    /// Forgets what was seen first in checkpoints that `stays` says no to: their differences may be removed when none that
    /// stays needs them.
    pub fn forget(&mut self, stays: impl Fn(u32) -> bool) {
        self.history.retain(stays);
    }

    /// Forgets a checkpoint and all after it, as if they had never been taken: for who could not make the difference of one
    /// durable. The next one may have its number. It differs from none, since what was there before is not known any more.
    pub fn abandon(&mut self, checkpoint: u32) {
        if self.last.is_some_and(|last| last >= checkpoint) {
            self.last = checkpoint.checked_sub(1);
            self.previous = None;
            self.history.retain(|seen| seen < checkpoint);
        }
    }

    /// Finds what checkpoint `checkpoint` of these regions adds, and hands it to `sink`.
    ///
    /// # Errors
    /// When a number or an id is taken, there are too many chunks, or the sink fails. Then the checkpoint has not been taken,
    /// and the next one will differ from the one before.
    pub fn difference(
        &mut self,
        checkpoint: u32,
        method: Method,
        regions: &[Region<'_>],
        sink: &mut dyn Sink,
    ) -> Result<Taken> {
        check_order(self.last, checkpoint)?;
        let shapes: Vec<_> =
            regions.iter().map(|region| RegionShape { id: region.id, bytes: region.bytes.len() as u64 }).collect();
        check_ids(&shapes)?;
        let forest = Forest::new(self.chunk_bytes, shapes.iter().copied())?;
        let mut pieces = Pieces::of(regions);
        let (body, nodes) = match method {
            Method::Full => {
                (0..).zip(&shapes).for_each(|(at, shape)| pieces.push(at, 0..shape.bytes));
                (Body::Full, None)
            }
            Method::Basic => self.changed(forest, regions, &mut pieces),
            Method::List | Method::Tree => self.nodes(checkpoint, method, forest, regions, &mut pieces),
        };
        let previous = self.previous.as_ref().map(|previous| previous.checkpoint).filter(|_| method != Method::Full);
        let (chunk_bytes, data_bytes) = (self.chunk_bytes, pieces.bytes());
        let head = Head { checkpoint, previous, chunk_bytes, regions: shapes, body, data_bytes };
        if let Err(source) = sink.head(&head).and_then(|()| pieces.send(sink)) {
            self.history.retain(|seen| seen < checkpoint);
            return Err(Error::Sink { checkpoint, source });
        }
        self.last = Some(checkpoint);
        // After Full nobody has looked at the chunks: at the next checkpoint none is known to be as before.
        self.previous = nodes.map(|nodes| Previous::new(checkpoint, &nodes));
        Ok(Taken { head, method })
    }

    fn changed(&mut self, forest: Forest, regions: &[Region<'_>], pieces: &mut Pieces<'_>) -> (Body, Option<Nodes>) {
        let nodes = self.chunks(forest, regions);
        let (mut bits, mut chunk) = (Vec::new(), 0);
        for (tree, shape) in nodes.forest.trees.iter().enumerate() {
            for (at, node) in (0..).zip(shape.chunk_nodes()) {
                bits.resize(chunk / 64 + 1, 0);
                if nodes.labels[node as usize] != Label::Fixed {
                    bits[chunk / 64] |= 1 << (chunk % 64);
                    pieces.push(tree, shape.bytes_of_chunks(at..at + 1));
                }
                chunk += 1;
            }
        }
        (Body::Changed(bits), Some(nodes))
    }

    fn nodes(
        &mut self,
        checkpoint: u32,
        method: Method,
        forest: Forest,
        regions: &[Region<'_>],
        pieces: &mut Pieces<'_>,
    ) -> (Body, Option<Nodes>) {
        let mut nodes = self.chunks(forest, regions);
        let source = |node| Source { checkpoint, node };
        let found: Vec<u32> =
            (0..).zip(&nodes.labels).filter(|(_, label)| **label == Label::First).map(|(node, _)| node).collect();
        self.claim(&mut nodes, &found, source);
        if method == Method::Tree {
            self.join_firsts(&mut nodes, source);
            self.join_shifts(&mut nodes);
        }
        let (mut firsts, mut shifts) = (Vec::new(), Vec::new());
        for (tree, shape) in nodes.forest.trees.iter().enumerate() {
            for node in nodes.topmost(shape, method) {
                match nodes.labels[node as usize] {
                    Label::First => {
                        firsts.push(node);
                        pieces.push(tree, shape.bytes_below(node));
                    }
                    Label::Shift(source) => shifts.push(Shift { node, source }),
                    Label::Fixed | Label::Mixed => {}
                }
            }
        }
        shifts.sort_by_key(|shift| shift.source.checkpoint);
        (Body::Nodes { firsts, shifts }, Some(nodes))
    }

    /// The digests of all chunks. They are fixed, or first occurrences as long as nobody knows better.
    fn chunks(&self, forest: Forest, regions: &[Region<'_>]) -> Nodes {
        let mut digests = vec![Digest::default(); forest.nodes()];
        let mut labels = vec![Label::Mixed; forest.nodes()];
        for (tree, region) in forest.trees.iter().zip(regions) {
            let chunks = positions(tree.chunk_nodes());
            let previous = self.previous.as_ref().and_then(|previous| previous.digests.get(&region.id));
            let previous = previous.map_or(&[][..], Vec::as_slice);
            let batch = self.chunk_bytes as usize * BATCH_CHUNKS;
            let digests = digests[chunks.clone()].par_chunks_mut(BATCH_CHUNKS);
            let labels = labels[chunks].par_chunks_mut(BATCH_CHUNKS);
            region.bytes.par_chunks(batch).zip(digests.zip(labels)).enumerate().for_each(
                |(at, (bytes, (digests, labels)))| {
                    let before = previous.get(at * BATCH_CHUNKS..).unwrap_or_default();
                    murmur3_chunks(bytes, self.chunk_bytes as usize, 0, digests);
                    for (number, label) in labels.iter_mut().enumerate() {
                        let is_fixed = before.get(number) == Some(&digests[number]);
                        *label = if is_fixed { Label::Fixed } else { Label::First };
                    }
                },
            );
        }
        Nodes { forest, digests, labels }
    }

    /// Makes these nodes first occurrences or shifted duplicates.
    fn claim(&mut self, nodes: &mut Nodes, found: &[u32], source: impl Fn(u32) -> Source + Sync) {
        let digests: Vec<Digest> = found.iter().map(|node| nodes.digests[*node as usize]).collect();
        let sources = self.history.claim(&digests, |at| source(found[at]));
        for (node, first) in found.iter().zip(sources) {
            nodes.labels[*node as usize] = if first == source(*node) { Label::First } else { Label::Shift(first) };
        }
    }

    /// Nodes over first occurrences alone occur for the first time too.
    fn join_firsts(&mut self, nodes: &mut Nodes, source: impl Fn(u32) -> Source + Sync + Copy) {
        for at in 0..nodes.forest.trees.len() {
            for level in 1..nodes.forest.trees[at].level_count() {
                let joined = nodes.joined(at, level, |label| *label == Label::First);
                nodes.digest_all(at, level, &joined);
                joined.iter().for_each(|node| nodes.labels[*node as usize] = Label::First);
                self.claim(nodes, &joined, source);
            }
        }
    }

    /// Nodes over duplicates alone are duplicates when the history has them as a whole.
    fn join_shifts(&self, nodes: &mut Nodes) {
        for at in 0..nodes.forest.trees.len() {
            for level in 1..nodes.forest.trees[at].level_count() {
                for node in nodes.joined(at, level, |label| *label == Label::Fixed) {
                    nodes.labels[node as usize] = Label::Fixed;
                }
                let joined = nodes.joined(at, level, |label| matches!(label, Label::Shift(_)));
                nodes.digest_all(at, level, &joined);
                for node in joined {
                    if let Some(source) = self.history.get(&nodes.digests[node as usize]) {
                        nodes.labels[node as usize] = Label::Shift(source);
                    }
                }
            }
        }
    }
}

impl Previous {
    fn new(checkpoint: u32, nodes: &Nodes) -> Self {
        let chunks = |tree: &Tree| (tree.region.id, nodes.digests[positions(tree.chunk_nodes())].to_vec());
        Self { checkpoint, digests: nodes.forest.trees.iter().map(chunks).collect() }
    }
}

impl Nodes {
    /// The nodes of a level all of whose children have such a label.
    fn joined(&self, tree: usize, level: usize, is_it: impl Fn(&Label) -> bool) -> Vec<u32> {
        let tree = &self.forest.trees[tree];
        let all = |node: &u32| tree.children(level, *node).all(|child| is_it(&self.labels[child as usize]));
        tree.level(level).filter(all).collect()
    }

    /// The digests of these nodes of a level, from those of their children.
    fn digest_all(&mut self, tree: usize, level: usize, nodes: &[u32]) {
        for node in nodes {
            let children = self.forest.trees[tree].children(level, *node);
            let below = self.digests[positions(children)].as_flattened();
            self.digests[*node as usize] = murmur3(below, level as u32);
        }
    }

    /// The nodes to be written down: those below no other that is fixed, first or shifted. In the order of their bytes.
    fn topmost(&self, tree: &Tree, method: Method) -> Vec<u32> {
        let Some(root) = tree.root() else { return Vec::new() };
        if method == Method::List {
            return tree.chunk_nodes().collect();
        }
        let (mut topmost, mut open) = (Vec::new(), vec![(tree.level_count() - 1, root)]);
        while let Some((level, node)) = open.pop() {
            if self.labels[node as usize] == Label::Mixed && level > 0 {
                open.extend(tree.children(level, node).rev().map(|child| (level - 1, child)));
            } else {
                topmost.push(node);
            }
        }
        topmost
    }
}

/// Where these nodes are among all.
fn positions(nodes: Range<u32>) -> Range<usize> {
    nodes.start as usize..nodes.end as usize
}
