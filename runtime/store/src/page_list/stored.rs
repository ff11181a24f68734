//! Page lists in the store: trees of nodes found by their digest.
//!
//! Writing goes from the leaves up and skips every node the store has; reading goes from the root down, one level at a
//! time. The digest of a node proves its bytes, but not that a tree is sound: a hostile store can share one node so
//! often that the list has no end, so leaves are counted and equal ones are kept once.

use std::{collections::HashMap, sync::Arc};

use super::{Leaf, PageList, PageListRef};
use crate::{
    Digest, PageKey, Result, StoreError,
    format::node::{self, FAN_OUT, LEVEL_MAX},
};

/// Leaves in one list, at most: 8 TiB of memory that is not zero.
const LEAVES_MAX: usize = 1 << 22;

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

/// Reads the list of `root`, whose nodes are named by `digest`.
pub(crate) fn read(
    root: &PageListRef,
    digest: Digest,
    read_nodes: &ReadNodes<'_>,
    corrupt: &Damage<'_>,
) -> Result<PageList> {
    let mut list = PageList::new();
    if root.root.is_zero() && root.pages == 0 {
        return Ok(list);
    }
    if root.level > LEVEL_MAX {
        return Err(corrupt(&root.root, format!("a tree of {} levels", root.level)));
    }
    let mut nodes: Positions = vec![(0, root.root)];
    for level in (1..=root.level).rev() {
        let decoded = decode_level(level, &nodes, read_nodes, corrupt)?;
        let mut below = Vec::new();
        for (position, key) in &nodes {
            let children = &decoded[key];
            below.extend(children.iter().map(|(at, key)| (position.wrapping_mul(FAN_OUT) + u64::from(*at), *key)));
            if below.len() > LEAVES_MAX {
                return Err(corrupt(&root.root, "more leaves than any list has".into()));
            }
        }
        nodes = below;
    }
    let decoded = decode_level(0, &nodes, read_nodes, corrupt)?;
    let leaf = |(key, children): (PageKey, Children)| (key, Arc::new(Leaf::of_children(&children, digest, key)));
    let leaves: HashMap<_, _> = decoded.into_iter().map(leaf).collect();
    list.leaves = nodes.iter().map(|(window, key)| (*window, leaves[key].clone())).collect();
    let pages = list.page_count();
    if pages != root.pages || list.leaves.values().any(|leaf| leaf.page_count() == 0) {
        return Err(corrupt(&root.root, format!("a list of {pages} pages, not of {}", root.pages)));
    }
    Ok(list)
}

type Children = Vec<(u16, PageKey)>;

/// The children of every node of a level, each node read once.
fn decode_level(
    level: u8,
    nodes: &[(u64, PageKey)],
    read_nodes: &ReadNodes<'_>,
    corrupt: &Damage<'_>,
) -> Result<HashMap<PageKey, Children>> {
    let mut keys: Vec<PageKey> = nodes.iter().map(|(_, key)| *key).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut decoded = HashMap::with_capacity(keys.len());
    for keys in keys.chunks(1 << 10) {
        for (key, bytes) in keys.iter().zip(read_nodes(keys)?) {
            let children = node::decode(level, &bytes).map_err(|found| corrupt(key, found.into()))?;
            decoded.insert(*key, children);
        }
    }
    Ok(decoded)
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
    let mut nodes = vec![(0, root.root)];
    for level in (0..=root.level).rev() {
        nodes.retain(|(_, key)| walk.enters(key));
        let decoded = decode_level(level, &nodes, read_nodes, corrupt)?;
        for (node, children) in &decoded {
            walk.passes(node, if level == 0 { children } else { &[] });
        }
        nodes = decoded.into_values().flatten().map(|(_, key)| (0, key)).collect();
    }
    Ok(())
}
