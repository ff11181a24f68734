//! Proving that checkpoints are whole: every record, node and page that they reach is read and its digests compared.
//!
//! A page that several checkpoints share is read once: the pages proved so far are a bit each, so that a store of a
//! terabyte takes 32 MiB. They count as proved only when they have been, so damage is found again by each checkpoint
//! that it touches, which is what the person who asks wants to know.

use std::collections::HashSet;

use super::{Manifest, Shared, Store};
use crate::{
    PAGE_BYTES, PageKey, PageListRef, Result, StoreError, files::Kind, format::manifest, key_table::Place,
    pack::run_and_page,
};

/// Pages read and proved at once: 32 MiB.
const WINDOW_PAGES: usize = 1 << 13;

/// Proves checkpoints of one store, one after another.
pub struct Verifier<'a> {
    store: &'a Store,
    proved: ProvedPages,
    proved_lists: HashSet<PageKey>,
    /// Where pages are read to.
    room: Vec<u8>,
}

impl Store {
    /// A verifier that has proved nothing yet.
    pub fn verifier(&self) -> Verifier<'_> {
        Verifier {
            store: self,
            proved: ProvedPages::default(),
            proved_lists: HashSet::new(),
            room: vec![0; WINDOW_PAGES * PAGE_BYTES],
        }
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
            return Err(StoreError::NoSuchCheckpoint {
                path: files.path(""),
                id,
                newest: self.store.newest_sealed(None)?,
            });
        };
        let (row, contents, state) = manifest::read(&input, &header.store_id, id)?;
        for root in &contents.roots {
            self.list(root, progress)?;
        }
        Ok(Manifest { id, row, state })
    }

    fn list(&mut self, root: &PageListRef, progress: &mut dyn FnMut(u64)) -> Result<()> {
        if self.proved_lists.contains(&root.root) {
            progress(root.pages);
            return Ok(());
        }
        let list = self.store.page_list(root)?;
        let mut keys = Vec::with_capacity(WINDOW_PAGES);
        for (_, key) in list.iter() {
            keys.push(key);
            if keys.len() == WINDOW_PAGES {
                self.pages(&mut keys, progress)?;
            }
        }
        self.pages(&mut keys, progress)?;
        self.proved_lists.insert(root.root);
        Ok(())
    }

    /// Proves the pages of `keys`, and leaves it empty.
    fn pages(&mut self, keys: &mut Vec<PageKey>, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let count = keys.len() as u64;
        let shared = &self.store.shared;
        // What has no place is kept: reading it tells why.
        let place = |key: &PageKey| shared.index().pages.get(key);
        keys.retain(|key| place(key).is_none_or(|place| !self.proved.contains(place)));
        self.store.read_pages(keys, &mut self.room[..keys.len() * PAGE_BYTES])?;
        keys.iter().filter_map(place).for_each(|place| self.proved.insert(place));
        keys.clear();
        progress(count);
        Ok(())
    }
}

/// A bit for every page, by its place in the packs of the index, which keep their positions.
#[derive(Default)]
struct ProvedPages(Vec<Vec<u64>>);

impl ProvedPages {
    fn contains(&self, place: Place) -> bool {
        let (run, page) = run_and_page(place.item);
        let bits = self.0.get(place.pack as usize).and_then(|runs| runs.get(run));
        bits.is_some_and(|bits| bits >> page & 1 == 1)
    }

    fn insert(&mut self, place: Place) {
        let (run, page) = run_and_page(place.item);
        let pack = place.pack as usize;
        self.0.resize_with(self.0.len().max(pack + 1), Vec::new);
        let runs = &mut self.0[pack];
        runs.resize(runs.len().max(run + 1), 0);
        runs[run] |= 1 << page;
    }
}
