//! Copies of pages of one process: made while it runs, replaced when they have been written since, completed while it stands
//! still. Pages are counted from address 0.

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use ckpt_store::{Attempt, PAGE_BYTES, PageKey, PageList};

use crate::capture::pages::{self, PageSource, Place};
use crate::error::Result;
use crate::page_set::PageSet;

const PAGE: u64 = PAGE_BYTES as u64;

/// Room for pages, those that are in it, and those that have been in it and are in the store.
pub struct Copies {
    /// How many find room.
    room_pages: u64,
    /// What is in each slot.
    bytes: Vec<u8>,
    /// The page in each slot.
    pages: Vec<u64>,
    /// The slot of each page.
    slots: HashMap<u64, u32>,
    /// Those that were written to the store, to make room.
    stored: HashMap<u64, PageKey>,
    /// Those, of both kinds, that the program has not written since.
    good: PageSet,
}

impl std::fmt::Debug for Copies {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Copies of {} pages, {} of them good", self.pages.len(), self.good.len())
    }
}

impl Copies {
    /// Room for so many pages. It takes memory only as it fills.
    pub fn with_room(room_pages: u64) -> Copies {
        let (slots, stored) = (HashMap::new(), HashMap::new());
        Copies { room_pages, bytes: Vec::new(), pages: Vec::new(), slots, stored, good: PageSet::default() }
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
        self.pages.len() as u64 + pages <= self.room_pages
    }

    /// [`Copies::add_of_running`] for pages that find no room together: when there is none left, all are written to the store. What
    /// the program changes of these before it stops has been written in vain.
    ///
    /// # Errors
    /// The store's.
    pub fn add_and_store(&mut self, source: &PageSource, set: &PageSet, attempt: &mut Attempt) -> Result<()> {
        let mut reader = Reader::new(source);
        for runs in pages::batches(set) {
            if !self.have_room_for((pages::bytes_of(&runs) / PAGE_BYTES) as u64) {
                self.add_good(&mut reader);
                self.store_all(attempt)?;
            }
            reader.read(&runs, self);
        }
        self.add_good(&mut reader);
        self.store_all(attempt)
    }

    fn store_all(&mut self, attempt: &mut Attempt) -> Result<()> {
        let keys = self.write_slots(&self.good, attempt, &mut |_| {})?;
        let stored = self.pages.drain(..).zip(keys).filter(|(page, _)| self.good.contains(*page));
        self.stored.extend(stored);
        self.slots.clear();
        self.bytes.clear();
        Ok(())
    }

    /// Copies pages of a process that runs; those that it does not have any more are left out. They must find room. How long it
    /// took to read them.
    pub fn add_of_running(&mut self, source: &PageSource, set: &PageSet) -> Duration {
        let mut reader = Reader::new(source);
        pages::batches(set).iter().for_each(|runs| reader.read(runs, self));
        self.add_good(&mut reader);
        reader.took
    }

    /// What was read is good from now on.
    fn add_good(&mut self, reader: &mut Reader<'_>) {
        self.good = self.good.union(&std::mem::take(&mut reader.copied));
    }

    /// Copies pages of a region that stands still, which are at `place`.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn add(&mut self, source: &PageSource, place: &Place, set: &PageSet) -> Result<()> {
        let first = place.address / PAGE;
        let bytes = source.read_set(place, &set.part(&(first..u64::MAX)))?;
        self.put(set.ranges(), &bytes);
        self.good = self.good.union(set);
        Ok(())
    }

    fn put(&mut self, runs: impl Iterator<Item = Range<u64>>, bytes: &[u8]) {
        for (page, content) in runs.flatten().zip(bytes.chunks_exact(PAGE_BYTES)) {
            let next = self.pages.len() as u32;
            let slot = *self.slots.entry(page).or_insert(next);
            if slot == next {
                self.pages.push(page);
                self.bytes.extend_from_slice(content);
            } else {
                let at = slot as usize * PAGE_BYTES;
                self.bytes[at..at + PAGE_BYTES].copy_from_slice(content);
            }
        }
    }

    /// Writes those that are in `wanted`, and gives the keys of all of these. `written` is told the bytes of each call.
    ///
    /// # Errors
    /// The store's.
    pub fn store(&self, wanted: &PageSet, attempt: &mut Attempt, written: &mut dyn FnMut(u64)) -> Result<Keys<'_>> {
        Ok(Keys { keys: self.write_slots(wanted, attempt, written)?, copies: self })
    }

    /// The keys of all slots; those without a wanted page are zero.
    fn write_slots(
        &self,
        wanted: &PageSet,
        attempt: &mut Attempt,
        written: &mut dyn FnMut(u64),
    ) -> Result<Vec<PageKey>> {
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
        Ok(keys)
    }
}

/// The keys of pages that were copied.
pub struct Keys<'a> {
    /// By slot.
    keys: Vec<PageKey>,
    copies: &'a Copies,
}

impl Keys<'_> {
    /// Adds the pages of `set`, which counts from page `first` on as `list` does, to `list`.
    pub fn add_to(&self, list: &mut PageList, first: u64, set: &PageSet) {
        for run in set.ranges() {
            let keys: Vec<_> = run.clone().map(|page| self.key_of(first + page)).collect();
            list.set_run(run.start, &keys);
        }
    }

    /// One that was copied again is newer than what is in the store.
    fn key_of(&self, page: u64) -> PageKey {
        match self.copies.slots.get(&page) {
            Some(slot) => self.keys[*slot as usize],
            None => self.copies.stored.get(&page).copied().unwrap_or(PageKey::ZERO),
        }
    }
}

/// Reads pages of a process that runs.
struct Reader<'a> {
    source: &'a PageSource,
    /// Room for a batch.
    batch: Vec<u8>,
    /// What was read, and is not counted as good yet.
    copied: PageSet,
    /// How long it took.
    took: Duration,
}

impl<'a> Reader<'a> {
    fn new(source: &'a PageSource) -> Reader<'a> {
        Reader { source, batch: Vec::new(), copied: PageSet::default(), took: Duration::ZERO }
    }

    /// Puts the pages of a batch into `copies`, unless the process does not have one of them any more.
    fn read(&mut self, runs: &[Range<u64>], copies: &mut Copies) {
        let ranges: Vec<_> = runs.iter().map(|run| run.start * PAGE..run.end * PAGE).collect();
        self.batch.resize(pages::bytes_of(runs), 0);
        let begun = Instant::now();
        let read = self.source.read_ranges(&ranges, &mut self.batch);
        self.took += begun.elapsed();
        if read.is_ok() {
            copies.put(runs.iter().cloned(), &self.batch);
            runs.iter().for_each(|run| self.copied.push(run.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use ckpt_store::{AttemptStart, Store};

    use super::*;

    const ROOM: u64 = 300;
    const ALL: u64 = 1000;

    /// Pages of our own: each has its number and a version in its first bytes.
    struct Memory(Vec<[u64; PAGE_BYTES / 8]>);

    impl Memory {
        fn new() -> Memory {
            // One more, since they begin somewhere in a page.
            let mut memory = Memory(vec![[0; PAGE_BYTES / 8]; ALL as usize + 1]);
            (0..ALL).for_each(|page| memory.write(page, 1));
            memory
        }

        fn first(&self) -> u64 {
            (self.0.as_ptr() as u64).div_ceil(PAGE)
        }

        fn write(&mut self, page: u64, version: u64) {
            let at = ((self.first() + page) * PAGE - self.0.as_ptr() as u64) as usize / 8;
            let words = self.0.as_flattened_mut();
            (words[at], words[at + 1]) = (page, version);
        }

        fn set(&self, pages: Range<u64>) -> PageSet {
            PageSet::of(self.first() + pages.start..self.first() + pages.end)
        }
    }

    fn store(directory: &std::path::Path) -> (Store, Attempt) {
        let store = Store::create_or_open(directory).unwrap();
        let start = AttemptStart { job: "job".into(), processes: 1, ..AttemptStart::default() };
        let attempt = store.begin(start).unwrap();
        (store, attempt)
    }

    #[test]
    fn what_found_no_room_is_stored_and_what_changed_since_is_newer() {
        let directory = tempfile::tempdir().unwrap();
        let (store, mut attempt) = store(&directory.path().join("store"));
        let source = PageSource::open(std::process::id() as i32).unwrap();
        let mut memory = Memory::new();
        let mut copies = Copies::with_room(ROOM);
        copies.add_and_store(&source, &memory.set(0..ALL), &mut attempt).unwrap();
        assert!(!copies.stored.is_empty() && copies.pages.len() as u64 <= ROOM);
        let changed = [0..3, 500..510, ALL - 1..ALL];
        for page in changed.iter().cloned().flatten() {
            memory.write(page, 2);
        }
        let mut set = PageSet::default();
        changed
            .iter()
            .flat_map(|run| memory.set(run.clone()).ranges().collect::<Vec<_>>())
            .for_each(|run| set.push(run));
        copies.forget(&set);
        assert_eq!(copies.missing(&memory.set(0..ALL)), set);
        copies.add_of_running(&source, &set);
        assert!(copies.missing(&memory.set(0..ALL)).is_empty());

        let keys = copies.store(&memory.set(0..ALL), &mut attempt, &mut |_| {}).unwrap();
        let mut list = PageList::new();
        keys.add_to(&mut list, memory.first(), &PageSet::of(0..ALL));
        attempt.write_page_list(&list).unwrap();
        attempt.seal(ckpt_store::AttemptEnd::default(), b"").unwrap();
        for page in 0..ALL {
            let mut content = vec![0; PAGE_BYTES];
            store.read_pages(&[list.get(page)], &mut content).unwrap();
            let word = |at: usize| u64::from_ne_bytes(content[at..at + 8].try_into().unwrap());
            let version = if changed.iter().any(|run| run.contains(&page)) { 2 } else { 1 };
            assert_eq!((word(0), word(8)), (page, version));
        }
    }

    #[test]
    fn pages_that_are_gone_are_left_out() {
        let source = PageSource::open(std::process::id() as i32).unwrap();
        let memory = Memory::new();
        let mut copies = Copies::with_room(ROOM);
        let (there, nowhere) = (memory.set(0..10), PageSet::of(1..3));
        copies.add_of_running(&source, &there);
        copies.add_of_running(&source, &nowhere);
        assert!(copies.missing(&there).is_empty());
        assert_eq!(copies.missing(&nowhere), nowhere);
        assert!(copies.have_room_for(ROOM - 10) && !copies.have_room_for(ROOM - 9));
    }
}
