//! Writing page lists: only the nodes that no checkpoint has yet.
//!
//! Every page that a new leaf names must be in the store or in this attempt. It would be a mistake of the caller if not
//! (a list kept over from an attempt that failed), and it is found here and not at the restart. Leaves that are stored
//! already were checked when they were written.

use rayon::prelude::*;

use super::Attempt;
use crate::{
    PageKey, PageList, PageListRef, Result, StoreError,
    key_table::Place,
    page_list::{
        Leaf,
        stored::{self, NodeSink},
    },
};

impl Attempt {
    /// Writes a page list and returns its root, to be kept in the checkpoint's state. What a checkpoint refers to is
    /// what the lists written in its attempt name: write every list of the checkpoint, unchanged ones cost nothing.
    pub fn write_page_list(&mut self, list: &PageList) -> Result<PageListRef> {
        self.check_usable()?;
        // The list may name what others have sealed since this process last looked.
        self.shared.refresh()?;
        let leaves: Vec<&Leaf> = list.leaves().collect();
        leaves.par_iter().for_each(|leaf| {
            leaf.node_key();
        });
        for leaf in leaves {
            self.check_pages_known(leaf)?;
        }
        let written = stored::write(list, self);
        let root = self.guard(written)?;
        self.roots.push(root.clone());
        Ok(root)
    }

    fn check_pages_known(&self, leaf: &Leaf) -> Result<()> {
        if self.has(&leaf.node_key()) {
            return Ok(());
        }
        let index = self.shared.index();
        self.pages.touch(leaf.keys());
        let mut sealed = leaf.keys().iter().zip(index.pages.get_many(leaf.keys()));
        match sealed.find(|(key, sealed)| sealed.is_none() && self.pages.get(key).is_none()) {
            None => Ok(()),
            Some((key, _)) => Err(StoreError::UnknownPage { path: self.shared.files.path(""), page: key.hex() }),
        }
    }
}

impl NodeSink for Attempt {
    fn has(&self, key: &PageKey) -> bool {
        self.nodes.get(key).is_some() || self.shared.index().nodes.get(key).is_some()
    }

    fn write(&mut self, key: PageKey, node: &[u8]) -> Result<()> {
        let writer = self.writer()?;
        let (pack, item) = (writer.sequence(), writer.append_node(node)?);
        self.nodes.insert(key, Place { pack, item });
        Ok(())
    }
}
