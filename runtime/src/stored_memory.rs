//! The memory of a checkpoint's program, by its addresses, however the store has it: as pages, or in differences.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use ckpt_store::{PAGE_BYTES, PageKey, PageList, Store};

use crate::differences::Differences;
use crate::error::{Error, Result};
use crate::image::{ProcessImage, Region};

/// Pages asked of the store at a time: 8 MiB.
const BATCH_PAGES: u64 = 2048;
const PAGE: u64 = PAGE_BYTES as u64;

/// Memory that can be read.
pub struct StoredMemory<'a> {
    store: &'a Store,
    regions: &'a [Region],
    differences: Differences,
    /// Page lists that have been read, by the index of their region.
    lists: RefCell<HashMap<usize, Rc<PageList>>>,
}

impl<'a> StoredMemory<'a> {
    /// That of an image, in its store.
    ///
    /// # Errors
    /// The store's, and what [`Differences::of`] finds.
    pub fn of(image: &'a ProcessImage, store: &'a Store) -> Result<StoredMemory<'a>> {
        let differences = Differences::of(image, store)?;
        Ok(StoredMemory { store, regions: &image.regions, differences, lists: RefCell::default() })
    }

    /// Whether all of these addresses were mapped.
    pub fn covers(&self, addresses: Range<u64>) -> bool {
        let pieces = self.pieces(addresses.clone());
        pieces.map(|(_, piece)| piece.end - piece.start).sum::<u64>() == addresses.end.saturating_sub(addresses.start)
    }

    /// Fills `to` with the memory at `address`.
    ///
    /// # Errors
    /// The store's; when not all of it was mapped.
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<()> {
        let addresses = address..address.saturating_add(to.len() as u64);
        if !self.covers(addresses.clone()) {
            return Err(Error::environment(
                format!("reading {} bytes at {address:#x}", to.len()),
                "they were not all mapped at the checkpoint",
                "ckpt show lists what was",
            ));
        }
        for (index, piece) in self.pieces(addresses) {
            let part = &mut to[(piece.start - address) as usize..(piece.end - address) as usize];
            let region = &self.regions[index];
            if region.in_differences {
                self.read_finer(region, piece.start, part)?;
            } else {
                self.read_pages(index, piece.start - region.address, part)?;
            }
        }
        Ok(())
    }

    /// The keys of the pages that these addresses lie on, for a range in one region that is stored as pages; otherwise
    /// nothing. Two pages with one key are the same.
    pub fn keys(&self, addresses: Range<u64>) -> Result<Option<Vec<PageKey>>> {
        let pieces: Vec<_> = self.pieces(addresses.clone()).collect();
        let [(index, piece)] = &pieces[..] else { return Ok(None) };
        let region = &self.regions[*index];
        if *piece != addresses || region.in_differences {
            return Ok(None);
        }
        let list = self.list(*index)?;
        let pages = (piece.start - region.address) / PAGE..(piece.end - region.address).div_ceil(PAGE);
        Ok(Some(pages.map(|page| list.get(page)).collect()))
    }

    /// The regions that these addresses lie in, and which addresses in each.
    fn pieces(&self, addresses: Range<u64>) -> impl Iterator<Item = (usize, Range<u64>)> {
        let end_of = |region: &Region| region.address.saturating_add(region.bytes);
        let first = self.regions.partition_point(|region| end_of(region) <= addresses.start);
        let touching = self.regions[first..].iter().take_while(move |region| region.address < addresses.end);
        touching.enumerate().map(move |(at, region)| {
            (first + at, region.address.max(addresses.start)..end_of(region).min(addresses.end))
        })
    }

    fn read_finer(&self, region: &Region, start: u64, to: &mut [u8]) -> Result<()> {
        let end = start + to.len() as u64;
        for block in region.blocks().filter(|block| block.start < end && start < block.end) {
            let part = block.start.max(start)..block.end.min(end);
            let to = &mut to[(part.start - start) as usize..(part.end - start) as usize];
            self.differences.read(self.store, block.start, part.start - block.start, to, None)?;
        }
        Ok(())
    }

    /// Fills `to` with what begins `offset` bytes into the region.
    fn read_pages(&self, index: usize, offset: u64, to: &mut [u8]) -> Result<()> {
        let list = self.list(index)?;
        let end = offset + to.len() as u64;
        let mut page = offset / PAGE;
        let mut buffer = Vec::new();
        while page * PAGE < end {
            let behind = (page + BATCH_PAGES).min(end.div_ceil(PAGE));
            let keys: Vec<PageKey> = (page..behind).map(|page| list.get(page)).collect();
            buffer.resize(keys.len() * PAGE_BYTES, 0);
            self.store.read_pages(&keys, &mut buffer)?;
            let part = offset.max(page * PAGE)..end.min(behind * PAGE);
            let from = &buffer[(part.start - page * PAGE) as usize..(part.end - page * PAGE) as usize];
            to[(part.start - offset) as usize..(part.end - offset) as usize].copy_from_slice(from);
            page = behind;
        }
        Ok(())
    }

    fn list(&self, index: usize) -> Result<Rc<PageList>> {
        if let Some(list) = self.lists.borrow().get(&index) {
            return Ok(list.clone());
        }
        let list = Rc::new(self.store.page_list(&self.regions[index].pages)?);
        self.lists.borrow_mut().insert(index, list.clone());
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use ckpt_store::{AttemptEnd, AttemptStart};

    use super::*;
    use crate::image::{Advice, Backing};

    /// Three regions as pages, the second right behind the first, the third further up.
    fn lab() -> (tempfile::TempDir, Store, Vec<Region>, Vec<Vec<u8>>) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::create_or_open(&dir.path().join("store")).unwrap();
        let (job, name, trigger) = ("job".into(), "lab".into(), "command".into());
        let start = AttemptStart { job, name, trigger, processes: 1, ..Default::default() };
        let mut attempt = store.begin(start).unwrap();
        let mut regions = Vec::new();
        let mut contents = Vec::new();
        for (first, pages) in [(16, 3), (19, 2), (40, 4)] {
            let content: Vec<u8> =
                (0..pages * PAGE as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> (first % 7 + 20)) as u8).collect();
            let mut list = PageList::new();
            list.set_run(0, &attempt.write_pages(&content).unwrap());
            regions.push(Region {
                address: first * PAGE,
                bytes: u64::from(pages) * PAGE,
                protection: 3,
                backing: Backing::Anonymous,
                advice: Advice::default(),
                name: Vec::new(),
                pages: attempt.write_page_list(&list).unwrap(),
                own_pages: Vec::new(),
                follows: None,
                guards: Vec::new(),
                pending: None,
                in_differences: false,
            });
            contents.push(content);
        }
        attempt.seal(AttemptEnd { processes: 1, ..AttemptEnd::default() }, b"").unwrap();
        (dir, store, regions, contents)
    }

    #[test]
    fn any_range_of_mapped_memory_is_read_and_no_other() {
        let (_dir, store, regions, contents) = lab();
        let differences = Differences::default();
        let memory = StoredMemory { store: &store, regions: &regions, differences, lists: RefCell::default() };
        let joined = [&contents[0][..], &contents[1]].concat();
        let mut ranges =
            vec![(0, 5 * PAGE), (1, 1), (PAGE - 1, 2), (2 * PAGE + 7, 2 * PAGE), (5 * PAGE - 3, 3), (7, 0)];
        ranges.extend((0..50).map(|n| (n * 397, 5 * PAGE - n * 397 - n * 11)));
        for (offset, bytes) in ranges {
            let mut to = vec![0x55; bytes as usize];
            memory.read(16 * PAGE + offset, &mut to).unwrap();
            assert!(to == joined[offset as usize..(offset + bytes) as usize], "{bytes} bytes at {offset}");
        }
        for (address, bytes) in [(15 * PAGE, 8), (16 * PAGE - 1, 2), (21 * PAGE - 1, 2), (16 * PAGE, 25 * PAGE)] {
            assert!(memory.read(address, &mut vec![0; bytes as usize]).is_err(), "{bytes} bytes at {address:#x}");
        }
        let keys = |range| memory.keys(range).unwrap().map(|keys| keys.len());
        assert_eq!(keys(16 * PAGE + 5..18 * PAGE + 5), Some(3));
        assert_eq!(keys(18 * PAGE..20 * PAGE), None, "two regions");
    }
}
