//! Copies of pages of one process: made while it runs, replaced when they have been written since, completed while it stands
//! still. Pages are counted from address 0.

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use ckpt_store::{Attempt, PAGE_BYTES, PageKey, PageList};

use crate::capture::page_set::PageSet;
use crate::capture::pages::{PageSource, Place};
use crate::error::Result;

const PAGE: u64 = PAGE_BYTES as u64;
/// Pages that are read at once: 1 MiB.
const BATCH_PAGES: u64 = 256;

/// Room for pages, and those that are in it.
pub struct Copies {
    bytes: Vec<u8>,
    /// The page in each slot.
    pages: Vec<u64>,
    /// The slot of each page.
    slots: HashMap<u64, u32>,
    /// Those that have not been written since.
    good: PageSet,
}

impl std::fmt::Debug for Copies {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Copies of {} pages, {} of them good", self.pages.len(), self.good.len())
    }
}

impl Copies {
    /// Room for so many pages. It takes memory only as it fills.
    pub fn with_room(pages: u64) -> Copies {
        let bytes = vec![0; (pages * PAGE) as usize];
        Copies { bytes, pages: Vec::new(), slots: HashMap::new(), good: PageSet::default() }
    }

    /// The pages of `set` have been written: what was copied of them is of no use.
    pub fn forget(&mut self, set: &PageSet) {
        self.good = self.good.difference(set);
    }

    /// The pages of `set` of which there is no good copy.
    pub fn missing(&self, set: &PageSet) -> PageSet {
        set.difference(&self.good)
    }

    /// Whether so many more pages surely find room.
    pub fn have_room_for(&self, pages: u64) -> bool {
        self.pages.len() as u64 + pages <= self.bytes.len() as u64 / PAGE
    }

    /// Copies pages of a process that runs; those that it does not have any more are left out. They must find room. How long it
    /// took to read them.
    pub fn add_of_running(&mut self, source: &PageSource, set: &PageSet) -> Duration {
        let mut batch = vec![0; (BATCH_PAGES * PAGE) as usize];
        let (mut took, mut copied) = (Duration::ZERO, PageSet::default());
        for pages in batches(set) {
            let ranges: Vec<_> = pages.ranges().map(|run| run.start * PAGE..run.end * PAGE).collect();
            let bytes = &mut batch[..(pages.len() * PAGE) as usize];
            let begun = Instant::now();
            let read = source.read_ranges(&ranges, bytes);
            took += begun.elapsed();
            if read.is_ok() {
                self.put(&pages, bytes);
                pages.ranges().for_each(|run| copied.push(run));
            }
        }
        self.good = self.good.union(&copied);
        took
    }

    /// Copies pages of a region that stands still, which are at `place`.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn add(&mut self, source: &PageSource, place: &Place, set: &PageSet) -> Result<()> {
        let first = place.address / PAGE;
        let bytes = source.read_set(place, &set.part(&(first..u64::MAX)))?;
        self.put(set, &bytes);
        self.good = self.good.union(set);
        Ok(())
    }

    fn put(&mut self, set: &PageSet, bytes: &[u8]) {
        for (page, content) in set.ranges().flatten().zip(bytes.chunks_exact(PAGE_BYTES)) {
            let next = self.pages.len() as u32;
            let slot = *self.slots.entry(page).or_insert(next);
            if slot == next {
                self.pages.push(page);
            }
            let at = slot as usize * PAGE_BYTES;
            self.bytes[at..at + PAGE_BYTES].copy_from_slice(content);
        }
    }

    /// Writes those that are in `wanted`, and gives the keys of all of these. `written` is told the bytes of each call.
    ///
    /// # Errors
    /// The store's.
    pub fn store(&self, wanted: &PageSet, attempt: &mut Attempt, written: &mut dyn FnMut(u64)) -> Result<Keys<'_>> {
        let mut is_wanted = vec![false; self.pages.len()];
        for slot in wanted.ranges().flatten().filter_map(|page| self.slots.get(&page)) {
            is_wanted[*slot as usize] = true;
        }
        let most = (attempt.best_call_bytes() / PAGE_BYTES).max(1);
        let mut keys = Vec::with_capacity(self.pages.len());
        for run in is_wanted.chunk_by(|one, next| one == next) {
            if !run[0] {
                keys.resize(keys.len() + run.len(), PageKey::ZERO);
                continue;
            }
            for piece in run.chunks(most) {
                let bytes = &self.bytes[keys.len() * PAGE_BYTES..(keys.len() + piece.len()) * PAGE_BYTES];
                keys.extend(attempt.write_pages(bytes)?);
                written(bytes.len() as u64);
            }
        }
        Ok(Keys { keys, slots: &self.slots })
    }
}

/// The keys of pages that were copied.
pub struct Keys<'a> {
    keys: Vec<PageKey>,
    slots: &'a HashMap<u64, u32>,
}

impl Keys<'_> {
    /// Adds the pages of `set`, which counts from page `first` on as `list` does, to `list`.
    pub fn add_to(&self, list: &mut PageList, first: u64, set: &PageSet) {
        for run in set.ranges() {
            let slots = run.clone().map(|page| self.slots.get(&(first + page)));
            let keys: Vec<_> = slots.map(|slot| slot.map_or(PageKey::ZERO, |slot| self.keys[*slot as usize])).collect();
            list.set_run(run.start, &keys);
        }
    }
}

/// `set` in pieces of a batch.
fn batches(set: &PageSet) -> Vec<PageSet> {
    let mut batches = Vec::new();
    let mut batch = PageSet::default();
    let mut room = BATCH_PAGES;
    for Range { mut start, end } in set.ranges() {
        while start < end {
            let taken = (end - start).min(room);
            batch.push(start..start + taken);
            (start, room) = (start + taken, room - taken);
            if room == 0 {
                batches.push(std::mem::take(&mut batch));
                room = BATCH_PAGES;
            }
        }
    }
    batches.extend((!batch.is_empty()).then_some(batch));
    batches
}
