//! Differences in a store: what of a region is where, and its bytes.
//!
//! A difference is a page list: the pages of its head, then those of its data. Of the differences of a checkpoint only the
//! heads and the lists of keys are held; the data stay in the store, which proves each page that it hands out. So a
//! region is read in windows, and however long it is, memory holds a window and the pages that this one needs.

use std::collections::BTreeMap;
use std::ops::Range;

use ckpt_kernels::merkle::{self, Head, Places, Stored};
use ckpt_store::{PAGE_BYTES, PageKey, PageList, Store};

use crate::error::Result;
use crate::image::{ProcessImage, Region, StoredDifference};

/// Bytes of a region that are best read at once.
pub const WINDOW_BYTES: usize = 8 << 20;
/// Pages asked of the store at a time: 8 MiB.
const BATCH_PAGES: usize = 2048;
/// More than any head has: one of 2^28 nodes that are told of one by one.
const HEAD_BYTES_MAX: u64 = 1 << 30;
const PAGE: u64 = PAGE_BYTES as u64;

/// Where the data of a difference are.
#[derive(Debug)]
struct Data {
    list: PageList,
    /// The page at which they begin.
    first_page: u64,
}

/// The differences of a checkpoint, or of all checkpoints of a program.
#[derive(Default)]
pub struct Differences {
    places: Places,
    data: BTreeMap<u32, Data>,
    newest: Option<u32>,
}

/// Bytes of a difference that is not in the store yet: fills the buffer with those at the range of its data.
pub type Unsealed<'a> = dyn Fn(Range<u64>, &mut [u8]) -> Result<()> + 'a;

/// A part of a page that goes to a part of a window.
struct Piece {
    checkpoint: u32,
    page: u64,
    within: Range<usize>,
    to: usize,
}

impl Differences {
    /// Those of an image.
    ///
    /// # Errors
    /// The store's, and [`crate::error::Error::Difference`] when they contradict themselves, each other or the image.
    pub fn of(image: &ProcessImage, store: &Store) -> Result<Differences> {
        let mut all = Differences::default();
        for stored in &image.differences {
            all.add(&read_head(stored, store)?, store.page_list(&stored.pages)?)?;
        }
        all.check_regions(image)?;
        Ok(all)
    }

    /// They must have the blocks of all regions that are said to be in them.
    fn check_regions(&self, image: &ProcessImage) -> Result<()> {
        let mut known = BTreeMap::new();
        if let Some(newest) = self.newest {
            known.extend(self.places.regions(newest)?.map(|block| (block.id, block.bytes)));
        }
        let checkpoint = self.newest.unwrap_or_default();
        for block in image.regions.iter().filter(|region| region.in_differences).flat_map(Region::blocks) {
            let bytes = block.end - block.start;
            if known.get(&block.start) != Some(&bytes) {
                return Err(merkle::Error::NoSuchRegion { checkpoint, region: block.start, bytes }.into());
            }
        }
        Ok(())
    }

    /// Adds one, with all of its pages; an empty list for one that is not in the store yet.
    ///
    /// # Errors
    /// When it contradicts itself or the others.
    pub fn add(&mut self, head: &Head, list: PageList) -> Result<()> {
        self.places.add(head)?;
        let first_page = (head.encode().len() as u64).div_ceil(PAGE);
        self.data.insert(head.checkpoint, Data { list, first_page });
        self.newest = Some(head.checkpoint);
        Ok(())
    }

    /// The pages of the newest one, which are in the store by now.
    pub fn complete(&mut self, list: PageList) {
        if let Some(data) = self.newest.and_then(|newest| self.data.get_mut(&newest)) {
            data.list = list;
        }
    }

    /// Where bytes are.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Fills `to` with bytes of a block at the newest checkpoint, from an offset on.
    ///
    /// # Errors
    /// The store's; when the block was not there or shorter.
    pub fn read(
        &self,
        store: &Store,
        block: u64,
        offset: u64,
        to: &mut [u8],
        unsealed: Option<&Unsealed<'_>>,
    ) -> Result<()> {
        let bytes = offset.saturating_add(to.len() as u64);
        let newest = self.newest.ok_or(merkle::Error::NoSuchRegion { checkpoint: 0, region: block, bytes })?;
        let mut pieces = Vec::new();
        for stored in self.places.find(newest, block, offset..bytes)? {
            let at = (stored.offset - offset) as usize;
            match unsealed.filter(|_| stored.checkpoint == newest) {
                Some(read) => {
                    let end = at + (stored.bytes.end - stored.bytes.start) as usize;
                    read(stored.bytes, &mut to[at..end])?;
                }
                None => self.cut(&stored, at, &mut pieces),
            }
        }
        pieces.sort_unstable_by_key(|piece| (piece.checkpoint, piece.page));
        self.read_pieces(store, &pieces, to)
    }

    /// Cuts what is stored in one place at the borders of pages.
    fn cut(&self, stored: &Stored, mut to: usize, pieces: &mut Vec<Piece>) {
        let first_page = self.data.get(&stored.checkpoint).map_or(0, |data| data.first_page);
        let mut at = stored.bytes.start;
        while at < stored.bytes.end {
            let end = stored.bytes.end.min((at / PAGE + 1) * PAGE);
            let within = (at % PAGE) as usize..(at % PAGE + end - at) as usize;
            let length = within.len();
            pieces.push(Piece { checkpoint: stored.checkpoint, page: first_page + at / PAGE, within, to });
            to += length;
            at = end;
        }
    }

    /// Reads each page once, for all pieces that are parts of it.
    fn read_pieces(&self, store: &Store, pieces: &[Piece], to: &mut [u8]) -> Result<()> {
        let of_pages: Vec<&[Piece]> =
            pieces.chunk_by(|one, next| (one.checkpoint, one.page) == (next.checkpoint, next.page)).collect();
        let mut buffer = vec![0; of_pages.len().min(BATCH_PAGES) * PAGE_BYTES];
        for batch in of_pages.chunks(BATCH_PAGES) {
            let keys: Vec<PageKey> = batch.iter().map(|of_page| self.key(&of_page[0])).collect();
            let pages = &mut buffer[..keys.len() * PAGE_BYTES];
            store.read_pages(&keys, pages)?;
            for (of_page, page) in batch.iter().zip(pages.chunks_exact(PAGE_BYTES)) {
                for piece in *of_page {
                    to[piece.to..piece.to + piece.within.len()].copy_from_slice(&page[piece.within.clone()]);
                }
            }
        }
        Ok(())
    }

    fn key(&self, piece: &Piece) -> PageKey {
        self.data.get(&piece.checkpoint).map_or(PageKey::ZERO, |data| data.list.get(piece.page))
    }
}

fn read_head(stored: &StoredDifference, store: &Store) -> Result<Head> {
    let wrong = |what: &str| merkle::Error::Corrupt { checkpoint: u32::MAX, what: what.into() };
    if stored.head_bytes > HEAD_BYTES_MAX {
        return Err(wrong("no head is so long").into());
    }
    let list = store.page_list(&stored.pages)?;
    let keys: Vec<PageKey> = (0..stored.head_bytes.div_ceil(PAGE)).map(|page| list.get(page)).collect();
    let mut bytes = vec![0; keys.len() * PAGE_BYTES];
    store.read_pages(&keys, &mut bytes)?;
    let (head, behind) = Head::decode(&bytes[..stored.head_bytes as usize])?;
    if behind.is_empty() { Ok(head) } else { Err(wrong("its head is longer than it says").into()) }
}
