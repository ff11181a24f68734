//! What the checkpoints of a store reach: which pages and nodes of which packs.
//!
//! A subtree that checkpoints share is gone through once, checkpoints are added once, and marks only ever grow: those
//! sealed meanwhile cost only what is new in them. A page that is missing (its pack is damaged) reaches nothing; a node
//! that is missing is an error, because nobody knows then what is still needed.

use std::collections::{BTreeSet, HashSet};

use super::super::{Shared, marks::Marks};
use crate::{
    AttemptRow, PageKey, Result,
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
    /// Adds every checkpoint that is sealed by now, and loads the index.
    ///
    /// In this order: the index has the packs of every checkpoint that is added. One that is newer than the index can name a
    /// list that an old pack has, and pages that are in its own pack alone. They would reach nothing, and the list is not
    /// gone through again.
    pub fn extend(&mut self, shared: &Shared) -> Result<()> {
        self.extend_but(shared, &[])
    }

    /// The same without those that are about to be dropped.
    pub fn extend_but(&mut self, shared: &Shared, dropped: &[AttemptRow]) -> Result<()> {
        let sealed = shared.files.list_sealed()?;
        shared.reload()?;
        for id in sealed {
            if !self.checkpoints.contains(&id) && !dropped.iter().any(|row| row.id == id) {
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        AttemptEnd, AttemptStart, Depth, PAGE_BYTES, PageList, Store, StoreOptions, backend::Memory, files::PackName,
    };

    /// A checkpoint of the pages that consist of these bytes.
    fn checkpoint(store: &Store, bytes: &[u8]) -> u64 {
        let start = AttemptStart {
            job: "job".into(),
            name: "job".into(),
            trigger: "test".into(),
            started_unix_ms: 1,
            processes: 1,
            depth: Depth::Full,
        };
        let mut attempt = store.begin(start).unwrap();
        let pages: Vec<u8> = bytes.iter().flat_map(|byte| vec![*byte; PAGE_BYTES]).collect();
        let mut list = PageList::new();
        list.set_run(0, &attempt.write_pages(&pages).unwrap());
        attempt.write_page_list(&list).unwrap();
        attempt.seal(AttemptEnd::default(), &[]).unwrap().id
    }

    #[test]
    fn what_is_sealed_after_the_index_was_loaded_reaches_its_own_pack() {
        let memory = Memory::default();
        let open = || Store::create_or_open_on(Arc::new(memory.clone()), &StoreOptions::default()).unwrap();
        let (old, writer) = (open(), open());
        // The second pack keeps the list of pages 1 and 2 when page 1 is gone with the first one.
        checkpoint(&writer, &[1]);
        checkpoint(&writer, &[1, 2]);
        checkpoint(&writer, &[2]);
        writer.prune(1, None).unwrap();
        old.shared.reload().unwrap();
        let id = checkpoint(&writer, &[1, 2]);
        let name = PackName { attempt: id, sequence: 0 };
        let mut reach = Reach::default();
        for _ in 0..2 {
            reach.extend(&old.shared).unwrap();
            let position = old.shared.index().position(name).expect("it wrote page 1 anew");
            assert_eq!(reach.live_pages(position), 1);
        }
    }
}
