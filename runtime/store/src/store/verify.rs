//! Proving that checkpoints are whole: every record, node and page that they reach is read and its digests compared.
//!
//! A page that several checkpoints share is read once. Pages count as proved only when they have been, so damage is found
//! again by each checkpoint that it touches, which is what the person who asks wants to know.

use std::collections::HashSet;

use super::{Manifest, Shared, Store, marks::Marks};
use crate::{PAGE_BYTES, PageKey, PageListRef, Result, files::Kind, format::manifest};

/// Pages read and proved at once: 32 MiB.
const WINDOW_PAGES: usize = 1 << 13;

/// Proves checkpoints of one store, one after another.
pub struct Verifier<'a> {
    store: &'a Store,
    proved: Marks,
    proved_lists: HashSet<PageListRef>,
    /// Where pages are read to.
    room: Vec<u8>,
}

impl Store {
    /// A verifier that has proved nothing yet.
    pub fn verifier(&self) -> Verifier<'_> {
        Verifier { store: self, proved: Marks::default(), proved_lists: HashSet::new(), room: Vec::new() }
    }

    /// The numbers of the sealed checkpoints, damaged ones included, oldest first.
    pub fn sealed(&self) -> Result<Vec<u64>> {
        self.shared.files.list_sealed()
    }
}

impl Verifier<'_> {
    /// Reads all of checkpoint `id`, unless an earlier call has read it, on all cores. What its state means is for the
    /// caller to judge.
    ///
    /// `progress` is told how many more pages are known to be whole: in all, as many as the checkpoint's lists have.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] with the place of the first damage that is met.
    pub fn checkpoint(&mut self, id: u64, progress: &mut dyn FnMut(u64)) -> Result<Manifest> {
        let Shared { files, header, .. } = &*self.store.shared;
        let Some(input) = files.open_if_there(&Kind::Manifest.name(id))? else {
            return Err(self.store.no_such_checkpoint(id)?);
        };
        let (row, contents, state) = manifest::read(&input, &header.store_id, id)?;
        for root in &contents.roots {
            self.list(root, progress)?;
        }
        Ok(Manifest { id, row, state })
    }

    fn list(&mut self, root: &PageListRef, progress: &mut dyn FnMut(u64)) -> Result<()> {
        if self.proved_lists.contains(root) {
            progress(root.pages);
            return Ok(());
        }
        let mut left = root.pages;
        if let Some(tree) = self.store.page_list_tree(root)? {
            let mut keys = Vec::with_capacity(WINDOW_PAGES);
            for key in tree.pages() {
                keys.push(key);
                if keys.len() == WINDOW_PAGES {
                    self.pages(&mut keys)?;
                    progress(WINDOW_PAGES as u64);
                    left -= WINDOW_PAGES as u64;
                }
            }
            self.pages(&mut keys)?;
        }
        self.proved_lists.insert(root.clone());
        progress(left);
        Ok(())
    }

    /// Proves the pages of `keys`, and leaves it empty.
    fn pages(&mut self, keys: &mut Vec<PageKey>) -> Result<()> {
        let shared = &self.store.shared;
        // What has no place is kept: reading it tells why.
        let place = |key: &PageKey| shared.index().page(key);
        keys.retain(|key| place(key).is_none_or(|place| !self.proved.contains(place)));
        self.room.resize(keys.len() * PAGE_BYTES, 0);
        self.store.read_pages(keys, &mut self.room)?;
        keys.iter().filter_map(place).for_each(|place| self.proved.insert(place));
        keys.clear();
        Ok(())
    }
}
