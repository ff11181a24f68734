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
        let all = Differences::read_all(&image.differences, store)?;
        all.check_regions(&image.regions)?;
        Ok(all)
    }

    /// The same, whatever they are of.
    pub fn read_all(differences: &[StoredDifference], store: &Store) -> Result<Differences> {
        let mut all = Differences::default();
        for stored in differences {
            let list = store.page_list(&stored.pages)?;
            all.add(&read_head(stored, &list, store)?, list)?;
        }
        Ok(all)
    }

    /// They must have the blocks of all regions that are said to be in them.
    fn check_regions(&self, regions: &[Region]) -> Result<()> {
        let known: BTreeMap<u64, u64> = self.regions()?.into_iter().map(|block| (block.id, block.bytes)).collect();
        let checkpoint = self.newest.unwrap_or_default();
        for block in regions.iter().filter(|region| region.in_differences).flat_map(Region::blocks) {
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

    /// What the newest one has: the ids of its regions, and how many bytes each has.
    ///
    /// # Errors
    /// None for differences that could be read.
    pub fn regions(&self) -> Result<Vec<merkle::RegionShape>> {
        match self.newest {
            Some(newest) => Ok(self.places.regions(newest)?.collect()),
            None => Ok(Vec::new()),
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

fn read_head(stored: &StoredDifference, list: &PageList, store: &Store) -> Result<Head> {
    let wrong = |what: &str| merkle::Error::Corrupt { checkpoint: u32::MAX, what: what.into() };
    if stored.head_bytes > HEAD_BYTES_MAX {
        return Err(wrong("no head is so long").into());
    }
    let keys: Vec<PageKey> = (0..stored.head_bytes.div_ceil(PAGE)).map(|page| list.get(page)).collect();
    let mut bytes = vec![0; keys.len() * PAGE_BYTES];
    store.read_pages(&keys, &mut bytes)?;
    let (head, behind) = Head::decode(&bytes[..stored.head_bytes as usize])?;
    if behind.is_empty() { Ok(head) } else { Err(wrong("its head is longer than it says").into()) }
}

#[cfg(test)]
mod tests {
    use ckpt_kernels::merkle::{Difference, Engine, Method, Region as Slice};
    use ckpt_store::{AttemptEnd, AttemptStart};

    use super::*;
    use crate::error::{Error, exit_code};
    use crate::image::{Advice, Backing};

    const BYTES: usize = 3 << 20;
    const BLOCK: u64 = 7 * PAGE;

    fn noise(seed: u32) -> Vec<u8> {
        (0..BYTES as u32).map(|n| (n.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 24) as u8).collect()
    }

    /// Three states of a block, the last of which needs all three differences, two chunks moved among them.
    fn states() -> Vec<Vec<u8>> {
        let first = noise(1);
        let mut second = first.clone();
        (0..BYTES).step_by(4096).for_each(|at| second[at + 9] ^= 1);
        second[64_000..128_000].copy_from_slice(&first[1_280_000..1_344_000]);
        let mut third = second.clone();
        (0..BYTES).step_by(50_000).for_each(|at| third[at] ^= 2);
        third[2_000_000..2_100_000].fill(0);
        vec![first, second, third]
    }

    fn differences(states: &[Vec<u8>]) -> Vec<Difference> {
        let mut engine = Engine::new(128, None).unwrap();
        let take = |(number, bytes): (u32, &Vec<u8>)| {
            let mut difference = Difference::default();
            engine.difference(number, Method::Tree, &[Slice { id: BLOCK, bytes }], &mut difference).unwrap();
            difference
        };
        (0..).zip(states).map(take).collect()
    }

    fn stored(differences: &[Difference]) -> (tempfile::TempDir, Store, Vec<StoredDifference>) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::create_or_open(&dir.path().join("store")).unwrap();
        let (job, name, trigger) = ("job".into(), "lab".into(), "command".into());
        let start = AttemptStart { job, name, trigger, processes: 1, ..Default::default() };
        let mut attempt = store.begin(start).unwrap();
        let mut write = |difference: &Difference| {
            let mut bytes = difference.head.encode();
            let head_bytes = bytes.len() as u64;
            bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
            bytes.extend_from_slice(&difference.data);
            bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
            let mut list = PageList::new();
            list.set_run(0, &attempt.write_pages(&bytes).unwrap());
            StoredDifference { pages: attempt.write_page_list(&list).unwrap(), head_bytes }
        };
        let all = differences.iter().map(&mut write).collect();
        let end = AttemptEnd { processes: 1, ..AttemptEnd::default() };
        attempt.seal(end, b"").unwrap();
        (dir, store, all)
    }

    const RANGES: [(usize, usize); 7] =
        [(0, BYTES), (0, 1), (BYTES - 1, 1), (63_999, 64_002), (127, 2), (1_999_000, 200_000), (500, 0)];

    #[test]
    fn every_range_of_a_block_is_what_it_was_wherever_it_is_stored() {
        let states = states();
        let (_dir, store, stored) = stored(&differences(&states));
        for (count, state) in (1..).zip(&states) {
            let all = Differences::read_all(&stored[..count], &store).unwrap();
            for (offset, length) in RANGES {
                let mut bytes = vec![7; length];
                all.read(&store, BLOCK, offset as u64, &mut bytes, None).unwrap();
                assert!(bytes == state[offset..offset + length], "{count} differences, {length} bytes at {offset}");
            }
            let behind = all.read(&store, BLOCK, BYTES as u64, &mut [0], None).unwrap_err();
            assert_eq!(behind.exit_code(), exit_code::CORRUPT, "{behind}");
        }
    }

    #[test]
    fn what_is_not_in_the_store_yet_is_asked_for() {
        let states = states();
        let differences = differences(&states);
        let (_dir, store, stored) = stored(&differences[..2]);
        let mut all = Differences::read_all(&stored, &store).unwrap();
        all.add(&differences[2].head, PageList::new()).unwrap();
        let unsealed = |range: Range<u64>, to: &mut [u8]| {
            to.copy_from_slice(&differences[2].data[range.start as usize..range.end as usize]);
            Ok(())
        };
        let mut bytes = vec![0; BYTES];
        all.read(&store, BLOCK, 0, &mut bytes, Some(&unsealed)).unwrap();
        assert!(bytes == states[2]);
    }

    #[test]
    fn differences_that_do_not_fit_together_or_to_the_regions_are_refused() {
        let (_dir, store, stored) = stored(&differences(&states()));
        let longer = StoredDifference { head_bytes: stored[0].head_bytes + 1, ..stored[0].clone() };
        let shorter = StoredDifference { head_bytes: stored[0].head_bytes - 1, ..stored[0].clone() };
        let endless = StoredDifference { head_bytes: u64::MAX, ..stored[0].clone() };
        for wrong in [&stored[1..], &[longer], &[shorter], &[endless], &[stored[0].clone(), stored[2].clone()]] {
            let error = Differences::read_all(wrong, &store).err().unwrap();
            assert_eq!(error.exit_code(), exit_code::CORRUPT, "{error}");
        }
        let all = Differences::read_all(&stored, &store).unwrap();
        let region = |address, bytes, in_differences| Region {
            address,
            bytes,
            protection: 3,
            backing: Backing::Anonymous,
            advice: Advice::default(),
            name: Vec::new(),
            pages: stored[0].pages.clone(),
            own_pages: Vec::new(),
            follows: None,
            guards: Vec::new(),
            pending: None,
            in_differences,
        };
        all.check_regions(&[region(BLOCK, BYTES as u64, true), region(1 << 30, 4096, false)]).unwrap();
        for (address, bytes) in [(BLOCK + PAGE, BYTES as u64), (BLOCK, BYTES as u64 + PAGE), (BLOCK, 1 << 40)] {
            let error = all.check_regions(&[region(address, bytes, true)]).unwrap_err();
            assert!(matches!(error, Error::Difference(merkle::Error::NoSuchRegion { .. })), "{error}");
        }
    }
}
