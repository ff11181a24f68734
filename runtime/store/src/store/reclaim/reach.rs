//! What the checkpoints of a store reach: which pages and nodes of which packs.
//!
//! A subtree that checkpoints share is gone through once, checkpoints are added once, and marks only ever grow: those
//! sealed meanwhile cost only what is new in them. A page that is missing (its pack is damaged) reaches nothing; a node
//! that is missing is an error, because nobody knows then what is still needed.

use std::collections::{BTreeSet, HashSet};

use super::super::{Shared, marks::Marks};
use crate::{
    PageKey, Result,
    files::Kind,
    format::manifest,
    key_table::Place,
    pack::{self, Pack},
    page_list::stored::{self, Walk},
};

/// What has been reached so far.
#[derive(Default)]
pub(super) struct Reach {
    pages: Marks,
    nodes: Marks,
    passed: HashSet<PageKey>,
    checkpoints: BTreeSet<u64>,
}

impl Reach {
    /// Adds every checkpoint that is sealed by now.
    pub fn extend(&mut self, shared: &Shared) -> Result<()> {
        for id in shared.files.list_sealed()? {
            if !self.checkpoints.contains(&id) {
                self.add(shared, id)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, shared: &Shared, id: u64) -> Result<()> {
        let input = shared.files.open(&Kind::Manifest.name(id))?;
        let (_, contents, _) = manifest::read(&input, &shared.header.store_id, id)?;
        let read_nodes = |keys: &[PageKey]| shared.read_nodes(keys);
        let corrupt = shared.damaged_list();
        for root in &contents.roots {
            stored::walk(root, &read_nodes, &corrupt, &mut Marking { shared, reach: self })?;
        }
        self.checkpoints.insert(id);
        Ok(())
    }

    /// Whether anything in the pack at this position is reached.
    pub fn reaches(&self, pack: u32) -> bool {
        self.live_pages(pack) + self.nodes.count(pack) > 0
    }

    /// How many pages of a pack are reached.
    pub fn live_pages(&self, pack: u32) -> usize {
        self.pages.count(pack)
    }

    /// Whether a page is reached.
    pub fn has_page(&self, place: Place) -> bool {
        self.pages.contains(place)
    }

    /// Whether a node is reached.
    pub fn has_node(&self, place: Place) -> bool {
        self.nodes.contains(place)
    }

    /// All of a pack that is reached has been copied to other packs.
    pub fn leave(&mut self, pack: u32) {
        self.pages.clear(pack);
        self.nodes.clear(pack);
    }

    /// A pack consists of such copies.
    pub fn reach_all(&mut self, position: u32, pack: &Pack) {
        pack::page_items(&pack.runs).for_each(|item| self.pages.insert(Place { pack: position, item }));
        (0..pack.nodes.len() as u32).for_each(|item| self.nodes.insert(Place { pack: position, item }));
    }
}

/// Marks what is gone through.
struct Marking<'a> {
    shared: &'a Shared,
    reach: &'a mut Reach,
}

impl Walk for Marking<'_> {
    fn enters(&mut self, node: &PageKey) -> bool {
        !self.reach.passed.contains(node)
    }

    fn passes(&mut self, node: &PageKey, pages: &[(u16, PageKey)]) {
        let index = self.shared.index();
        self.reach.passed.insert(*node);
        index.node(node).into_iter().for_each(|place| self.reach.nodes.insert(place));
        pages.iter().filter_map(|(_, key)| index.page(key)).for_each(|place| self.reach.pages.insert(place));
    }
}
