//! Stores of page lists that no writer writes: trees of any shape, whose nodes have the right digests.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    FIRST_PACK, FileMap, STORE_ID,
    small_store::{encode_roots, end, start},
    use_all,
};
use crate::{
    AttemptState, Digest, PAGE_BYTES, PageKey, PageListRef, Result, StoreError,
    attempt::row::AttemptRow,
    backend::Memory,
    codec::Codec,
    files::{Files, HEADER, Kind},
    format::{
        fields::Fields,
        header::Header,
        manifest::{self, Contents, OwnPack},
        node::{self, FAN_OUT, LEAF_PAGES},
    },
    pack::writer::PackWriter,
};

/// What a node of a forged list names at one of its places.
#[derive(Clone, Copy, Debug)]
pub enum Child {
    /// The page whose bytes are all this number, which is not 0; the store has those of 1 to 4.
    Page(u8),
    /// The node with this position in the list of nodes, which comes before this one.
    Node(usize),
}

/// A node of a forged list.
#[derive(Clone, Debug)]
pub struct Node {
    /// 0 for a leaf.
    pub level: u8,
    /// By place.
    pub children: BTreeMap<u16, Child>,
}

/// Inputs to begin with: see [`page_list`].
pub(super) const SEEDS: [(&str, &[u8]); 3] = [
    ("a-leaf", &[0, 1, 0, 2, 5, 1, 9, 2]),
    ("two-levels", &[0, 1, 0, 1, 5, 1, 1, 2, 0, 0, 9, 0]),
    (
        "a-node-in-many-places",
        &[0, 1, 0, 1, 0, 1, 1, 3, 0, 0, 1, 0, 2, 0, 2, 3, 0, 1, 1, 1, 2, 1, 3, 3, 0, 2, 1, 2, 2, 2],
    ),
];
const PAGES: u8 = 4;

/// Uses a store of one list. Input: the difference between the pages that the root names and those there are, the number
/// of lists, and then the nodes, each its level, the number of its children, and two bytes for each: place and child.
/// The last node is the root.
pub fn page_list(bytes: &[u8]) {
    let [difference, roots, rest @ ..] = bytes else { return };
    let nodes = nodes_of(rest);
    let mut root = root_of(&nodes);
    root.pages = root.pages.wrapping_add((*difference).into());
    let files = store_of_nodes(&nodes, &vec![root; usize::from(*roots) % 4]).expect("a store in memory");
    let found = use_all(&files).expect("a sound header");
    found.errors().for_each(|error| assert!(matches!(error, StoreError::Corrupt { .. }), "{error}"));
}

fn nodes_of(bytes: &[u8]) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut fields = Fields(bytes);
    while !fields.0.is_empty() {
        let (level, count) = (fields.u8() % 12, fields.u8());
        let places = if level == 0 { LEAF_PAGES } else { FAN_OUT } as u16;
        let child = |fields: &mut Fields<'_>| {
            let (place, child) = (u16::from(fields.u8()) % places, fields.u8());
            let is_page = level == 0 || nodes.is_empty();
            let page = Child::Page(child % PAGES + 1);
            (place, if is_page { page } else { Child::Node(usize::from(child) % nodes.len()) })
        };
        let children = (0..count).map(|_| child(&mut fields)).collect();
        nodes.push(Node { level, children });
    }
    nodes
}

/// The keys and the bytes of the nodes.
fn encode(nodes: &[Node]) -> (Vec<PageKey>, Vec<Vec<u8>>) {
    let (mut keys, mut encoded) = (Vec::new(), Vec::new());
    for node in nodes {
        let key = |child: &Child| match child {
            Child::Page(byte) => Digest::Sha1.key_of(&[*byte; PAGE_BYTES]),
            Child::Node(at) => keys[*at],
        };
        let bytes = node::encode(node.level, node.children.iter().map(|(place, child)| (*place, key(child))));
        keys.push(Digest::Sha1.key_of_bytes(&bytes));
        encoded.push(bytes);
    }
    (keys, encoded)
}

/// Pages below the last node, as many as a number holds.
fn count(nodes: &[Node]) -> u64 {
    let mut counts: Vec<u64> = Vec::new();
    for node in nodes {
        let count = |child: &Child| if let Child::Node(at) = child { counts[*at] } else { 1 };
        counts.push(node.children.values().map(count).fold(0, u64::saturating_add));
    }
    counts.last().copied().unwrap_or_default()
}

/// A store whose only checkpoint has these lists, in a pack of these nodes and of the pages 1 to 4.
///
/// # Errors
///
/// Those of a store in memory: none.
pub fn store_of_nodes(nodes: &[Node], roots: &[PageListRef]) -> Result<FileMap> {
    let pages: Vec<u8> = (1..=PAGES).flat_map(|byte| [byte; PAGE_BYTES]).collect();
    let keys = pages.chunks_exact(PAGE_BYTES).map(|page| Digest::Sha1.key_of(page)).collect();
    sealed_store((Codec::Raw, &pages, keys), encode(nodes), roots)
}

/// A store of one list, whose pages are to be had from one run: `stored` bytes of the codec with this number.
///
/// # Errors
///
/// Those of a store in memory: none.
pub fn store_of_run(codec: u8, stored: &[u8], pages: u16) -> Result<FileMap> {
    let keys: Vec<PageKey> = (0..pages).map(|page| Digest::Sha1.key_of_bytes(&page.to_le_bytes())).collect();
    let leaf = node::encode(0, (0..).zip(keys.iter().copied()));
    let key = Digest::Sha1.key_of_bytes(&leaf);
    let root = PageListRef { root: key, level: 0, pages: pages.into() };
    let codec = Codec::from_number(codec).unwrap_or(Codec::Raw);
    sealed_store((codec, stored, keys), (vec![key], vec![leaf]), &[root])
}

type Run<'a> = (Codec, &'a [u8], Vec<PageKey>);

fn sealed_store(run: Run<'_>, nodes: (Vec<PageKey>, Vec<Vec<u8>>), roots: &[PageListRef]) -> Result<FileMap> {
    let header = Header { store_id: STORE_ID, created_unix_s: 0, digest: Digest::Sha1, proof: None };
    let memory = Memory::of_files(&[(HEADER.into(), header.encode().to_vec())].into());
    let mut pack =
        PackWriter::create(&Files::new(Arc::new(memory.clone())), &STORE_ID, FIRST_PACK, 1 << 16, Arc::default())?;
    let (codec, stored, page_keys) = run;
    pack.append_run(codec, page_keys.into_iter(), crc32fast::hash(stored), stored)?;
    let (node_keys, encoded) = nodes;
    encoded.iter().zip(node_keys).try_for_each(|(node, key)| pack.append_node(key, node).map(drop))?;
    let (_, bytes, syncing) = pack.finish()?;
    syncing.wait()?;
    let contents = Contents { packs: vec![OwnPack { sequence: 0, bytes }], roots: roots.to_vec() };
    let mut row = AttemptRow::begun(1, start("small"));
    (row.state, row.memory_bytes) = (AttemptState::Sealed, end().memory_bytes);
    let manifest = manifest::encode(
        &Files::new(Arc::new(Memory::default())),
        &STORE_ID,
        &mut row,
        &contents,
        &encode_roots(roots),
    )?;
    let mut all = memory.files();
    all.insert(Kind::Manifest.name(1), manifest);
    Ok(all)
}

/// The root of the list whose last node is the last of these, as an honest one would name it.
pub fn root_of(nodes: &[Node]) -> PageListRef {
    let root = encode(nodes).0.last().copied().unwrap_or(PageKey::ZERO);
    PageListRef { root, level: nodes.last().map_or(0, |node| node.level), pages: count(nodes) }
}
