//! The content of a file that is in a checkpoint, by its offsets.

use ckpt_store::{PAGE_BYTES, PageKey, PageList, Store};

use crate::error::Result;
use crate::image::FileContent;

const PAGE: u64 = PAGE_BYTES as u64;

/// A content, and where its pages are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    list: PageList,
    bytes: u64,
}

impl StoredFile {
    /// That of a record.
    ///
    /// # Errors
    /// The store's.
    pub fn of(content: &FileContent, store: &Store) -> Result<StoredFile> {
        Ok(StoredFile { list: store.page_list(&content.pages)?, bytes: content.bytes })
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills `to` with its bytes from `offset` on, a multiple of a page; zeros where it has none.
    ///
    /// # Errors
    /// The store's.
    pub fn read(&self, store: &Store, offset: u64, to: &mut [u8]) -> Result<()> {
        let pages = (offset / PAGE)..(offset + to.len() as u64).div_ceil(PAGE);
        let keys: Vec<(usize, PageKey)> = (0..)
            .zip(pages)
            .map(|(place, page)| (place, self.list.get(page)))
            .filter(|(_, key)| !key.is_zero())
            .collect();
        let mut content = vec![0; keys.len() * PAGE_BYTES];
        store.read_pages(&keys.iter().map(|(_, key)| *key).collect::<Vec<_>>(), &mut content)?;
        to.fill(0);
        for ((place, _), page) in keys.iter().zip(content.chunks_exact(PAGE_BYTES)) {
            let place = &mut to[place * PAGE_BYTES..];
            let bytes = place.len().min(PAGE_BYTES);
            place[..bytes].copy_from_slice(&page[..bytes]);
        }
        Ok(())
    }
}
