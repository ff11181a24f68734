//! Page lists in the store: trees of nodes found by their digest.
//!
//! Writing goes from the leaves up and skips every node the store has; reading goes from the root down, one level at a
//! time, each node once. The digest of a node proves its bytes, but not that a tree is sound: ten levels that share one
//! node in all places are a list without end from 3 KiB of file. So what a tree amounts to is counted from its nodes,
//! before anything is made of it that is larger than they are.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use rayon::prelude::*;

use super::{Leaf, PageList, PageListRef};
use crate::{
    Digest, PAGE_BYTES, PageKey, Result, StoreError,
    format::node::{self, FAN_OUT, LEAF_PAGES, LEVEL_MAX},
};

/// Bytes of memory that a leaf covers.
const LEAF_BYTES: u64 = LEAF_PAGES * PAGE_BYTES as u64;

/// A list may have this many leaves whatever they are: 2 TiB of memory that is not zero, a list of 36 MiB.
const LEAVES_OF_ANY_LIST: u64 = 1 << 20;
/// And it may have more when they differ: each leaf in so many places on average, at most.
const PLACES_OF_A_LEAF: u64 = 64;

/// Nodes read at once: 1 MiB, in memory that the next ones are read to as well.
const NODES_TOGETHER: usize = 64;

/// Leaves that a list of `distinct` different ones has, at most. The same when it is written and when it is read.
fn leaves_max(distinct: usize) -> u64 {
    LEAVES_OF_ANY_LIST.max(PLACES_OF_A_LEAF * distinct as u64)
}

/// Where nodes are written to.
pub(crate) trait NodeSink {
    /// What nodes are named by there.
    fn digest(&self) -> Digest;
    /// Whether the node is stored already.
    fn has(&self, key: &PageKey) -> bool;
    /// Stores a node.
    fn write(&mut self, key: PageKey, node: &[u8]) -> Result<()>;
}

/// Writes the nodes of `list` that the sink does not have.
pub(crate) fn write(list: &PageList, sink: &mut impl NodeSink) -> Result<PageListRef> {
    check_repetition(list, sink.digest())?;
    let mut nodes = Vec::with_capacity(list.leaves.len());
    for (window, leaf) in &list.leaves {
        let key = leaf.node_key(sink.digest());
        if !sink.has(&key) {
            sink.write(key, &leaf.encode())?;
        }
        nodes.push((*window, key));
    }
    let mut level = 0;
    while nodes.last().is_some_and(|(position, _)| *position > 0) {
        level += 1;
        nodes = write_level(level, &nodes, sink)?;
    }
    let root = nodes.first().map_or(PageKey::ZERO, |(_, key)| *key);
    Ok(PageListRef { root, level, pages: list.page_count() })
}

/// A list that could not be read back is not written.
fn check_repetition(list: &PageList, digest: Digest) -> Result<()> {
    let leaves = list.leaves.len() as u64;
    if leaves <= leaves_max(0) {
        return Ok(());
    }
    let distinct: HashSet<PageKey> = list.leaves().map(|leaf| leaf.node_key(digest)).collect();
    let (found, max) = (leaves * LEAF_BYTES, leaves_max(distinct.len()) * LEAF_BYTES);
    if found <= max { Ok(()) } else { Err(StoreError::TooLarge { what: "a region that repeats itself", found, max }) }
}

type Positions = Vec<(u64, PageKey)>;

fn write_level(level: u8, below: &[(u64, PageKey)], sink: &mut impl NodeSink) -> Result<Positions> {
    let mut nodes = Vec::new();
    for children in below.chunk_by(|a, b| a.0 / FAN_OUT == b.0 / FAN_OUT) {
        let node = node::encode(level, children.iter().map(|(at, key)| ((at % FAN_OUT) as u16, *key)));
        let key = sink.digest().key_of_bytes(&node);
        if !sink.has(&key) {
            sink.write(key, &node)?;
        }
        nodes.push((children[0].0 / FAN_OUT, key));
    }
    Ok(nodes)
}

/// Gives the bytes of nodes, proved by their digests.
pub(crate) type ReadNodes<'a> = dyn Fn(&[PageKey]) -> Result<Vec<Vec<u8>>> + 'a;
/// Makes the error for a node that is not what its place in the tree asks for.
pub(crate) type Damage<'a> = dyn Fn(&PageKey, String) -> StoreError + 'a;

/// The nodes of a list that has any, each once however many places it has.
pub(crate) struct Tree {
    root: PageListRef,
    leaves: HashMap<PageKey, Arc<Leaf>>,
    /// The other nodes, by level, the lowest first.
    levels: Vec<HashMap<PageKey, Children>>,
}

type Children = Vec<(u16, PageKey)>;

/// Reads the list of `root`, whose nodes are named by `digest`.
pub(crate) fn read(
    root: &PageListRef,
    digest: Digest,
    read_nodes: &ReadNodes<'_>,
    corrupt: &Damage<'_>,
) -> Result<PageList> {
    let tree = Tree::read(root, digest, read_nodes, corrupt)?;
    Ok(tree.map_or_else(PageList::new, Tree::into_list))
}

impl Tree {
    /// Reads the nodes of `root`, and proves that they are a list of as many pages as it says, and one of those that
    /// are written. `None` for a list of zeros.
    pub fn read(
        root: &PageListRef,
        digest: Digest,
        read_nodes: &ReadNodes<'_>,
        corrupt: &Damage<'_>,
    ) -> Result<Option<Self>> {
        if root.root.is_zero() && root.pages == 0 {
            return Ok(None);
        }
        if root.level > LEVEL_MAX {
            return Err(corrupt(&root.root, format!("a tree of {} levels", root.level)));
        }
        let mut levels = Vec::new();
        let mut keys = vec![root.root];
        for level in (1..=root.level).rev() {
            let nodes = read_level(level, &keys, read_nodes, corrupt, |_, children| children)?;
            keys = children_of(&nodes);
            levels.push(nodes);
        }
        levels.reverse();
        let leaf = |key: &PageKey, children: Children| Arc::new(Leaf::of_children(&children, digest, *key));
        let leaves = read_level(0, &keys, read_nodes, corrupt, leaf)?;
        let tree = Self { root: root.clone(), leaves, levels };
        let (leaves, pages) = tree.count();
        if pages != root.pages {
            return Err(corrupt(&root.root, format!("a list of {pages} pages, not of {}", root.pages)));
        }
        if leaves > leaves_max(tree.leaves.len()) {
            let found = format!("a list that repeats {} leaves in {leaves} places", tree.leaves.len());
            return Err(corrupt(&root.root, found));
        }
        Ok(Some(tree))
    }

    /// The leaves and the pages of the list; a number without meaning when there are more than can be.
    fn count(&self) -> (u64, u64) {
        let leaf = |leaf: &Leaf| (1, leaf.page_count() as u64);
        let mut below: HashMap<_, _> = self.leaves.iter().map(|(key, found)| (*key, leaf(found))).collect();
        for nodes in &self.levels {
            let sum = |children: &Children| {
                let counts = children.iter().map(|(_, key)| below[key]);
                counts.fold((0, 0), |a: (u64, u64), b| (a.0.saturating_add(b.0), a.1.saturating_add(b.1)))
            };
            below = nodes.iter().map(|(key, children)| (*key, sum(children))).collect();
        }
        below[&self.root.root]
    }

    /// The pages of the list that are not zero, in order, those of each leaf only in its first place.
    pub fn pages(&self) -> impl Iterator<Item = PageKey> {
        let (mut seen, mut leaves) = (HashSet::new(), Vec::new());
        self.walk(self.root.level, 0, &self.root.root, &mut |_, key| {
            if seen.insert(*key) {
                leaves.push(&self.leaves[key]);
            }
        });
        leaves.into_iter().flat_map(|leaf| leaf.iter()).map(|(_, key)| key)
    }

    fn into_list(self) -> PageList {
        let mut places = Vec::new();
        let place = &mut |window, key: &PageKey| places.push((window, self.leaves[key].clone()));
        self.walk(self.root.level, 0, &self.root.root, place);
        PageList { leaves: places.into_iter().collect() }
    }

    /// Tells `leaf` every place of a leaf below the node `key`, in order.
    fn walk(&self, level: u8, position: u64, key: &PageKey, leaf: &mut impl FnMut(u64, &PageKey)) {
        if level == 0 {
            return leaf(position, key);
        }
        for (at, child) in &self.levels[usize::from(level) - 1][key] {
            self.walk(level - 1, position * FAN_OUT + u64::from(*at), child, leaf);
        }
    }
}

/// The keys that these nodes name, each once.
fn children_of(nodes: &HashMap<PageKey, Children>) -> Vec<PageKey> {
    let mut keys: Vec<PageKey> = nodes.values().flatten().map(|(_, key)| *key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// What `make` makes of the children of each node of a level, by the node's key.
fn read_level<T: Send>(
    level: u8,
    keys: &[PageKey],
    read_nodes: &ReadNodes<'_>,
    corrupt: &Damage<'_>,
    make: impl Fn(&PageKey, Children) -> T + Sync,
) -> Result<HashMap<PageKey, T>> {
    let mut made = HashMap::with_capacity(keys.len());
    for keys in keys.chunks(NODES_TOGETHER) {
        let nodes = read_nodes(keys)?;
        let decode =
            |(key, bytes): (&PageKey, &Vec<u8>)| node::decode(level, bytes).map(|children| make(key, children));
        let decoded: Vec<_> = keys.par_iter().zip(&nodes).map(decode).collect();
        for (key, decoded) in keys.iter().zip(decoded) {
            made.insert(*key, decoded.map_err(|found| corrupt(key, found.into()))?);
        }
    }
    Ok(made)
}

/// Goes through trees, each node once.
pub(crate) trait Walk {
    /// Whether to go into a node: it has not been gone through yet.
    fn enters(&mut self, node: &PageKey) -> bool;
    /// A node that was read, with its pages if it is a leaf.
    fn passes(&mut self, node: &PageKey, pages: &[(u16, PageKey)]);
}

/// Goes through the nodes of the list of `root`.
pub(crate) fn walk(
    root: &PageListRef,
    read_nodes: &ReadNodes<'_>,
    corrupt: &Damage<'_>,
    walk: &mut impl Walk,
) -> Result<()> {
    if root.root.is_zero() && root.pages == 0 {
        return Ok(());
    }
    if root.level > LEVEL_MAX {
        return Err(corrupt(&root.root, format!("a tree of {} levels", root.level)));
    }
    let mut keys = vec![root.root];
    for level in (0..=root.level).rev() {
        keys.retain(|key| walk.enters(key));
        let nodes = read_level(level, &keys, read_nodes, corrupt, |_, children| children)?;
        for (node, children) in &nodes {
            walk.passes(node, if level == 0 { children } else { &[] });
        }
        keys = children_of(&nodes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Written(HashMap<PageKey, Vec<u8>>);

    impl NodeSink for Written {
        fn digest(&self) -> Digest {
            Digest::Sha1
        }

        fn has(&self, key: &PageKey) -> bool {
            self.0.contains_key(key)
        }

        fn write(&mut self, key: PageKey, node: &[u8]) -> Result<()> {
            self.0.insert(key, node.to_vec());
            Ok(())
        }
    }

    /// A list of `leaves` leaves, of which all but `different` are the same.
    fn repeating(leaves: u64, different: u64) -> PageList {
        let leaf = |number: u64| {
            let mut leaf = Leaf::default();
            leaf.set(0, Digest::Sha1.key_of_bytes(&number.to_le_bytes()));
            Arc::new(leaf)
        };
        let same = leaf(0);
        let at = |window| (window, if window < different { leaf(window + 1) } else { same.clone() });
        PageList { leaves: (0..leaves).map(at).collect() }
    }

    #[test]
    fn a_list_is_read_back_exactly_when_it_was_written_however_often_it_repeats_itself() {
        let most = LEAVES_OF_ANY_LIST;
        let enough = most / PLACES_OF_A_LEAF;
        for (leaves, different, is_written) in [(most, 0, true), (most + 1, 0, false), (most + 64, enough, true)] {
            let (list, mut written) = (repeating(leaves, different), Written::default());
            let root = write(&list, &mut written);
            assert_eq!(root.is_ok(), is_written, "{leaves} {different}");
            let Ok(root) = root else { continue };
            let nodes = |keys: &[PageKey]| Ok(keys.iter().map(|key| written.0[key].clone()).collect());
            let damage = |_: &PageKey, found| StoreError::NotAStore { path: "test".into(), found };
            assert!(read(&root, Digest::Sha1, &nodes, &damage).unwrap() == list);
        }
    }
}
