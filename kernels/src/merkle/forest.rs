//! The trees over the chunks of a checkpoint: one for each region, their nodes numbered through.
//!
//! A tree has a level for the chunks, and levels of half as many nodes (rounded up) until there is one. Node `i` of a
//! level is over nodes `2 i` and `2 i + 1` of the level below, or, at the end of a level, over one alone. So there is a
//! tree for every number of chunks, the chunks of every node lie side by side, and all nodes of a level can be computed
//! at once. (In a heap of nodes, as the paper has it, the leaves of most numbers of chunks lie on two levels, and their
//! order is not that of the bytes.) Within a region the chunks are numbered first, then level by level.

use std::ops::Range;

use super::{Error, Result};

/// A region of memory as a checkpoint knows it. The id stays with the region when it moves or changes its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionShape {
    /// Chosen by the caller; each once in a checkpoint.
    pub id: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// The trees of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Forest {
    pub trees: Vec<Tree>,
}

/// The tree of a region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tree {
    pub region: RegionShape,
    chunk_bytes: u32,
    /// Numbers of the nodes of each level, the chunks first.
    levels: Vec<Range<u32>>,
    /// The number behind that of the last node.
    end: u32,
    /// How many chunks the trees before have.
    first_chunk: u32,
}

impl Forest {
    /// # Errors
    /// [`Error::TooLarge`] when the nodes cannot be numbered with 32 bits.
    pub fn new(chunk_bytes: u32, regions: impl IntoIterator<Item = RegionShape>) -> Result<Self> {
        let (mut trees, mut end, mut first_chunk) = (Vec::new(), 0, 0);
        for region in regions {
            let chunks = region.bytes.div_ceil(u64::from(chunk_bytes));
            let too_large = || Error::TooLarge { region: region.id, bytes: region.bytes, chunk_bytes };
            let levels = levels(end, chunks).ok_or_else(too_large)?;
            end = levels.last().map_or(end, |root| root.end);
            trees.push(Tree { region, chunk_bytes, levels, end, first_chunk });
            first_chunk += chunks as u32;
        }
        Ok(Self { trees })
    }

    /// How many chunks all trees have.
    pub fn chunks(&self) -> u32 {
        self.trees.last().map_or(0, |tree| tree.first_chunk + tree.chunks())
    }

    /// How many nodes all trees have.
    pub fn nodes(&self) -> u64 {
        self.trees.last().map_or(0, |tree| u64::from(tree.end))
    }

    /// The tree with this node: its position.
    pub fn tree_of(&self, node: u32) -> Option<usize> {
        let at = self.trees.partition_point(|tree| tree.end <= node);
        (at < self.trees.len()).then_some(at)
    }
}

impl Tree {
    pub fn chunks(&self) -> u32 {
        let nodes = self.chunk_nodes();
        nodes.end - nodes.start
    }

    /// How many nodes it has, the chunks among them.
    pub fn node_count(&self) -> u32 {
        self.end - self.chunk_nodes().start.min(self.end)
    }

    pub fn level_count(&self) -> usize {
        self.levels.len()
    }

    /// Numbers of the chunks' own nodes.
    pub fn chunk_nodes(&self) -> Range<u32> {
        self.levels.first().cloned().unwrap_or_default()
    }

    /// Numbers of the nodes of a level.
    pub fn level(&self, level: usize) -> Range<u32> {
        self.levels[level].clone()
    }

    /// Whether it has a node, or one of the trees before has it.
    pub fn ends_behind(&self, node: u32) -> bool {
        node < self.end
    }

    /// The number of its first chunk, counted through all regions.
    pub fn first_chunk(&self) -> u32 {
        self.first_chunk
    }

    /// The node over a node of a level other than the root.
    pub fn parent(&self, level: usize, node: u32) -> u32 {
        self.level(level + 1).start + (node - self.level(level).start) / 2
    }

    /// The level of a node of this tree.
    pub fn level_of(&self, node: u32) -> usize {
        self.levels.iter().position(|level| level.contains(&node)).unwrap_or(0)
    }

    /// The chunks below a node of this tree, counted in the region.
    pub fn chunks_below(&self, node: u32) -> Range<u32> {
        self.chunks_below_in(self.level_of(node), node)
    }

    /// The same of a node whose level is known.
    pub fn chunks_below_in(&self, level: usize, node: u32) -> Range<u32> {
        let index = u64::from(node - self.level(level).start);
        let end = ((index + 1) << level).min(u64::from(self.chunks()));
        (index << level) as u32..end as u32
    }

    /// The chunks that have any of these bytes, which are counted in the region.
    pub fn chunks_with(&self, bytes: Range<u64>) -> Range<u32> {
        let chunk_bytes = u64::from(self.chunk_bytes);
        (bytes.start / chunk_bytes) as u32..bytes.end.div_ceil(chunk_bytes) as u32
    }

    /// The bytes of chunks, counted in the region.
    pub fn bytes_of_chunks(&self, chunks: Range<u32>) -> Range<u64> {
        let at = |chunk: u32| (u64::from(chunk) * u64::from(self.chunk_bytes)).min(self.region.bytes);
        at(chunks.start)..at(chunks.end)
    }
}

/// Numbers for the nodes of each level over so many chunks, from `first` on, as far as there are numbers.
fn levels(first: u32, chunks: u64) -> Option<Vec<Range<u32>>> {
    let (mut levels, mut start, mut count) = (Vec::new(), first, chunks);
    while count > 0 {
        let end = start.checked_add(u32::try_from(count).ok()?)?;
        levels.push(start..end);
        (start, count) = (end, if count == 1 { 0 } else { count.div_ceil(2) });
    }
    Some(levels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(bytes: u64) -> Tree {
        let regions = [RegionShape { id: 1, bytes: 0 }, RegionShape { id: 2, bytes: 70 }, RegionShape { id: 3, bytes }];
        Forest::new(32, regions).unwrap().trees.pop().unwrap()
    }

    #[test]
    fn the_chunks_of_every_node_are_those_of_its_children_for_every_number_of_chunks() {
        for bytes in 0..1_200 {
            let tree = tree(bytes);
            assert_eq!(u64::from(tree.chunks()), bytes.div_ceil(32));
            for level in 1..tree.level_count() {
                for node in tree.level(level) {
                    let is_below = |below: &u32| tree.parent(level - 1, *below) == node;
                    let children: Vec<_> = tree.level(level - 1).filter(is_below).collect();
                    let below: Vec<u32> = children.iter().flat_map(|child| tree.chunks_below(*child)).collect();
                    assert!(!below.is_empty() && tree.chunks_below(node).eq(below), "{bytes} bytes, node {node}");
                }
            }
            let root = tree.levels.last().map(|root| tree.bytes_of_chunks(tree.chunks_below(root.start)));
            assert_eq!(root, (bytes > 0).then_some(0..bytes));
        }
    }

    #[test]
    fn every_node_belongs_to_one_tree_also_beside_empty_regions() {
        let regions = [0, 33, 0, 0, 500, 1, 0].map(|bytes| RegionShape { id: bytes, bytes });
        let forest = Forest::new(32, regions).unwrap();
        let mut seen = 0;
        let mut chunks = 0;
        for (at, tree) in forest.trees.iter().enumerate() {
            assert_eq!(tree.first_chunk(), chunks);
            chunks += tree.chunks();
            for node in tree.levels.iter().cloned().flatten() {
                assert_eq!((forest.tree_of(node), node), (Some(at), seen));
                seen += 1;
            }
        }
        assert_eq!((forest.chunks(), forest.tree_of(seen)), (chunks, None));
    }

    #[test]
    fn more_nodes_than_can_be_numbered_are_refused() {
        for bytes in [1 << 37, (1 << 36) + 1, u64::MAX] {
            let error = Forest::new(32, [RegionShape { id: 7, bytes }]).unwrap_err();
            assert!(matches!(error, Error::TooLarge { region: 7, .. }), "{error}");
        }
    }
}
