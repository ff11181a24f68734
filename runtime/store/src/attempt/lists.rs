//! Writing page lists: only the nodes that no checkpoint has yet.
//!
//! Every page that a list names must be in the store or in this attempt: a list kept over from an attempt that failed,
//! or from a checkpoint that was pruned, is found out here and not at the restart. A page of a leaf is looked for once in
//! each generation of the index. That a leaf is stored says nothing about its pages: a pack that is needed for other things
//! keeps its nodes when their pages are gone.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::Attempt;
use crate::{
    Digest, PageKey, PageList, PageListRef, Result, StoreError,
    files::PackName,
    index::{Index, Shareable},
    key_table::Place,
    page_list::{
        Leaf,
        stored::{self, NodeSink},
    },
};

/// Leaves that are worth more than one thread.
const LEAVES_TOGETHER: usize = 8;

impl Attempt {
    /// Writes a page list and returns its root, to be kept in the checkpoint's state. What a checkpoint refers to is
    /// what the lists written in its attempt name: write every list of the checkpoint, unchanged ones cost nothing.
    pub fn write_page_list(&mut self, list: &PageList) -> Result<PageListRef> {
        self.check_usable()?;
        // The list may name what others have sealed since this process last looked.
        self.shared.refresh()?;
        let leaves: Vec<&Leaf> = list.leaves().collect();
        let digest = self.digest();
        if leaves.len() < LEAVES_TOGETHER {
            leaves.iter().for_each(|leaf| _ = leaf.node_key(digest));
        } else {
            self.pool()?.install(|| leaves.par_iter().for_each(|leaf| _ = leaf.node_key(digest)));
        }
        let condemned = self.find_pages(&leaves)?;
        if !condemned.is_empty() {
            crate::store::condemned::pardon(&self.shared, &condemned)?;
            if let Some(name) = self.find_pages(&leaves)?.first() {
                let (path, page) = (self.shared.files.path(&name.name()), "one of its pages".into());
                return Err(StoreError::UnknownPage { path, page });
            }
        }
        let written = stored::write(list, self);
        let root = self.guard(written)?;
        self.roots.push(root.clone());
        Ok(root)
    }

    /// Writes a list that the store has already, for an attempt that copies.
    pub(crate) fn copy_list(&mut self, list: &PageList) -> Result<PageListRef> {
        let written = stored::write(list, self);
        self.guard(written)
    }

    /// Writes a node that the store has already, for an attempt that copies.
    pub(crate) fn copy_node(&mut self, key: PageKey, node: &[u8]) -> Result<()> {
        if self.has(&key) {
            return Ok(());
        }
        let written = self.write(key, node);
        self.guard(written)
    }

    /// Finds every page of these leaves; returns the condemned packs that would be needed.
    fn find_pages(&self, leaves: &[&Leaf]) -> Result<BTreeSet<PackName>> {
        let index = self.shared.index();
        let mut condemned = BTreeSet::new();
        // One after the other: nobody may wait for the threads of the pool who holds the index.
        for leaf in leaves {
            self.find_pages_of(&index, leaf, &mut condemned)?;
        }
        Ok(condemned)
    }

    fn find_pages_of(&self, index: &Index, leaf: &Leaf, condemned: &mut BTreeSet<PackName>) -> Result<()> {
        let (pages, keys): (Vec<usize>, Vec<PageKey>) = leaf.unknown_in(index.generation).into_iter().unzip();
        if keys.is_empty() {
            return Ok(());
        }
        let mut stay_known = Vec::with_capacity(keys.len());
        let found = index.shareable_pages(&keys, self.row.id).zip(self.pages.get_many(&keys));
        for ((page, key), (found, own)) in pages.into_iter().zip(&keys).zip(found) {
            match found {
                Shareable::Yes => stay_known.push(page),
                Shareable::ThisTime => {}
                _ if own.is_some() => {}
                Shareable::Condemned(pack) => drop(condemned.insert(pack)),
                Shareable::Missing => {
                    return Err(StoreError::UnknownPage { path: self.shared.files.path(""), page: key.hex() });
                }
            }
        }
        leaf.note_known(index.generation, stay_known);
        Ok(())
    }
}

impl NodeSink for Attempt {
    fn digest(&self) -> Digest {
        self.shared.header.digest
    }

    fn has(&self, key: &PageKey) -> bool {
        let found = || self.shared.index().shareable_node(key, self.row.id);
        let shares = || self.sharing.finds_nodes() && matches!(found(), Shareable::Yes | Shareable::ThisTime);
        self.nodes.get(key).is_some() || shares()
    }

    fn write(&mut self, key: PageKey, node: &[u8]) -> Result<()> {
        let writer = self.writer()?;
        let (pack, item) = (writer.sequence(), writer.append_node(key, node)?);
        self.nodes.insert(key, Place { pack, item });
        Ok(())
    }
}
