//! Large private memory stored finer than a page: `--method tree`.
//!
//! What one checkpoint adds to the ones before it is a *difference* of the Merkle engine. A *series* is the differences from
//! one that stores everything on. Its engine remembers digests only of what a sealed checkpoint has; after an attempt
//! that was not sealed a new series begins, and so does one when the old one has become long: a restart reads all of it.
//!
//! A difference goes to the store as pages, so all that the store promises of pages it promises of differences. Whatever
//! finds no room here (see [`Chooser`]) is stored as pages as well: nothing depends on this way of storing.

mod block;

use std::collections::BTreeMap;

use ckpt_kernels::merkle::{Engine, Live, Method};
use ckpt_store::{Attempt, PAGE_BYTES, Store};

use super::pages::PageSource;
use super::regions::Draft;
use super::stored_series::{Mismatch, PageSink, StoredSeries};
use super::tracking::Census;
use crate::error::Result;
use crate::image::{Backing, StoredDifference, blocks};
use crate::page_set::PageSet;
use block::{Block, BlockMemory};

/// Bytes of a chunk's digest.
const DIGEST_BYTES: u64 = 16;
/// Chunks that an engine can surely number, with the nodes above them.
const CHUNKS_MAX: u64 = 1 << 30;

/// What the user wants of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Smaller mappings are stored as pages.
    pub min_bytes: u64,
    /// What digests may take from one checkpoint to the next; a third of it comes to that while a difference is found.
    pub digest_bytes: u64,
    /// Compare every byte of large memory with what would be restored: digests that somebody has made collide change nothing.
    pub verify_memory: bool,
    /// Let nothing else depend on digests either: neither data alone nor what is on devices.
    pub verify_all: bool,
}

/// The differences of one program.
pub struct Series {
    options: Options,
    series: StoredSeries<Engine>,
    /// Pages that the blocks had at the last sealed checkpoint, by their addresses. A block that is not here may have
    /// changed anywhere.
    present: BTreeMap<u64, PageSet>,
    /// The same for the attempt that is going on: what it begins with, and what it leaves.
    present_before: BTreeMap<u64, PageSet>,
    present_next: BTreeMap<u64, PageSet>,
}

/// Decides which mappings are stored as differences.
pub struct Chooser {
    options: Options,
    /// Digests that still find room.
    room_bytes: u64,
}

impl Chooser {
    /// Whether this mapping is. It must be large, private memory that a clone freezes and that a restart can write; at
    /// least half of it must be there, since the chunks of what is not there need digests as well; and these must find room.
    pub fn takes(&mut self, draft: &Draft, census: &Census) -> bool {
        const RIGHTS: i32 = libc::PROT_READ | libc::PROT_WRITE;
        let (bytes, advice) = (draft.mapping.bytes(), &draft.advice);
        let is_usual = !(advice.dont_fork || advice.wipe_on_fork || advice.droppable || advice.grows_down);
        let is_private = draft.backing == Backing::Anonymous && draft.mapping.protection & RIGHTS == RIGHTS;
        let is_dense = census.present.len() * PAGE_BYTES as u64 * 2 >= bytes;
        if !is_private || !is_usual || bytes < self.options.min_bytes || !is_dense {
            return false;
        }
        let needed = bytes.div_ceil(self.options.chunk_bytes.into()) * DIGEST_BYTES;
        match self.room_bytes.checked_sub(needed) {
            Some(rest) => {
                self.room_bytes = rest;
                true
            }
            None => {
                let start = draft.mapping.start;
                log::warn!(
                    "the mapping at {start:#x} is stored as pages: its digests need {needed} bytes, {} are left; \
                     allow more (CKPT_MEMORY) or use longer chunks (CKPT_CHUNK)",
                    self.room_bytes
                );
                false
            }
        }
    }
}

impl Series {
    /// Nothing yet.
    ///
    /// # Errors
    /// For a length of chunks that no engine takes.
    pub fn new(options: Options) -> Result<Series> {
        let engine = Engine::new(options.chunk_bytes, Some(options.digest_bytes))?;
        Ok(Series {
            series: StoredSeries::new(engine, options.verify_memory),
            options,
            present: BTreeMap::new(),
            present_before: BTreeMap::new(),
            present_next: BTreeMap::new(),
        })
    }

    /// An attempt is about to ask which pages have been written. What the one before has not sealed is forgotten.
    ///
    /// # Errors
    /// None that [`Series::new`] has not had.
    pub fn begin(&mut self) -> Result<Chooser> {
        // What the kernel says now holds from the last checkpoint to this attempt, and for no later one.
        self.present_before = std::mem::take(&mut self.present);
        if self.series.is_unsealed() {
            self.start_anew()?;
        }
        let room_bytes = self.options.digest_bytes.min(CHUNKS_MAX * DIGEST_BYTES);
        Ok(Chooser { options: self.options.clone(), room_bytes })
    }

    /// The attempt has become a checkpoint.
    pub fn sealed(&mut self) {
        self.series.sealed();
        self.present = std::mem::take(&mut self.present_next);
    }

    fn start_anew(&mut self) -> Result<()> {
        *self = Series::new(self.options.clone())?;
        Ok(())
    }

    /// Stores the mappings in `attempt`, and returns all differences that a restart needs. `source` holds still. `written` is
    /// told the bytes of the new difference that are written, and of how many.
    ///
    /// # Errors
    /// When the mappings cannot be read or the store refuses. What has been written then comes to nothing.
    pub fn store(
        &mut self,
        mappings: &[(&Draft, &Census)],
        source: &PageSource,
        store: &Store,
        attempt: &mut Attempt,
        written: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<StoredDifference>> {
        let before = std::mem::take(&mut self.present_before);
        if mappings.is_empty() {
            self.start_anew()?;
            return Ok(Vec::new());
        }
        let bytes = mappings.iter().map(|(draft, _)| draft.mapping.bytes()).sum();
        if self.series.is_long(bytes) {
            self.start_anew()?;
        }
        self.series.begin();
        let found: Vec<Block> = mappings.iter().flat_map(|(draft, census)| blocks_of(draft, census, &before)).collect();
        let memories: Vec<_> = found.iter().map(|block| BlockMemory { block, source }).collect();
        let live: Vec<Live<'_>> = memories.iter().map(BlockMemory::live).collect();
        self.take(&live, attempt, written)?;
        if let Some(Mismatch { region, offset }) = self.series.mismatch(&live, store)? {
            log::warn!("the chunk at {:#x} has the digest of another; all memory is stored again", region + offset);
            self.start_anew()?;
            self.series.begin();
            self.take(&live, attempt, written)?;
        }
        self.present_next = found.into_iter().map(|block| (block.addresses.start, block.present)).collect();
        self.series.write_lists(attempt)
    }

    /// Finds the next difference and writes its pages.
    fn take(&mut self, live: &[Live<'_>], attempt: &mut Attempt, written: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let find = |engine: &mut Engine, number, sink: &mut PageSink<'_>| {
            engine.difference_of(number, Method::Tree, live, sink)
        };
        self.series.take(attempt, written, find).map(drop)
    }
}

/// The blocks of a mapping, and where each may have changed since `before`.
fn blocks_of(draft: &Draft, census: &Census, before: &BTreeMap<u64, PageSet>) -> Vec<Block> {
    const PAGE: u64 = PAGE_BYTES as u64;
    let start = draft.mapping.start;
    let all = blocks(start, draft.mapping.bytes());
    let block = |addresses: std::ops::Range<u64>| {
        let pages = (addresses.start - start) / PAGE..(addresses.end - start) / PAGE;
        let present = census.present.part(&pages);
        let written = census.written.as_ref().map(|written| written.part(&pages));
        // A page that is gone is zero, and no scan says so.
        let changed =
            written.zip(before.get(&addresses.start)).map(|(written, was)| written.union(&was.difference(&present)));
        Block::new(addresses, present, changed)
    };
    all.map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differences::Differences;
    use crate::image::Advice;
    use crate::proc::maps::Mapping;

    const PAGE: u64 = PAGE_BYTES as u64;

    fn options() -> Options {
        Options {
            chunk_bytes: 128,
            min_bytes: 8 * PAGE,
            digest_bytes: 3 * 4096,
            verify_memory: false,
            verify_all: false,
        }
    }

    fn draft(pages: u64) -> Draft {
        let (start, end) = (64 * PAGE, (64 + pages) * PAGE);
        let mapping = Mapping { start, end, protection: libc::PROT_READ | libc::PROT_WRITE, ..Mapping::default() };
        Draft::new(mapping, Backing::Anonymous)
    }

    fn census(present: u64, written: Option<PageSet>) -> Census {
        Census { present: PageSet::of(0..present), own: PageSet::of(0..present), written, ..Census::default() }
    }

    #[test]
    fn large_dense_private_memory_is_taken_until_its_digests_find_no_room() {
        let chooser = || Series::new(options()).unwrap().begin().unwrap();
        let takes = |draft: &Draft, present| chooser().takes(draft, &census(present, None));
        assert!(takes(&draft(8), 8) && takes(&draft(8), 4));
        assert!(!takes(&draft(7), 7), "small");
        assert!(!takes(&draft(8), 3), "mostly a reservation");
        let read_only = Draft { mapping: Mapping { protection: 1, ..draft(8).mapping }, ..draft(8) };
        let on_the_stack = Draft { advice: Advice { grows_down: true, ..Advice::default() }, ..draft(8) };
        let not_cloned = Draft { advice: Advice { dont_fork: true, ..Advice::default() }, ..draft(8) };
        let shared = Draft { backing: Backing::SharedObject { object: 0, offset: 0 }, ..draft(8) };
        assert!([read_only, on_the_stack, not_cloned, shared].iter().all(|draft| !takes(draft, 8)));
        // A page has 32 chunks, and so digests of 512 bytes: 24 pages find room.
        let mut chooser = chooser();
        let mut next = |pages| chooser.takes(&draft(pages), &census(pages, None));
        assert_eq!([next(16), next(9), next(8), next(8)], [true, false, true, false]);
    }

    /// Memory of this process that is stored as a program's would be.
    struct Lab {
        _dir: tempfile::TempDir,
        store: Store,
        series: Series,
        memory: Vec<u8>,
    }

    impl Lab {
        fn new(verify_matches: bool) -> Lab {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::create_or_open(&dir.path().join("store")).unwrap();
            let series =
                Series::new(Options { verify_memory: verify_matches, digest_bytes: 1 << 20, ..options() }).unwrap();
            let memory = (0..33 * PAGE as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            Lab { _dir: dir, store, series, memory }
        }

        /// 32 whole pages of it.
        fn pages(&mut self) -> &mut [u8] {
            let skipped = self.memory.as_ptr().align_offset(PAGE_BYTES);
            &mut self.memory[skipped..][..32 * PAGE_BYTES]
        }

        /// Takes a checkpoint after a byte of this page has changed, which becomes one or fails.
        fn take(&mut self, page: u64, seals: bool) -> Vec<StoredDifference> {
            self.pages()[page as usize * PAGE_BYTES + 77] ^= 1;
            let mut draft = draft(32);
            draft.mapping.start = self.pages().as_ptr() as u64;
            draft.mapping.end = draft.mapping.start + 32 * PAGE;
            let census = census(32, Some(PageSet::of(page..page + 1)));
            let (job, name, trigger) = ("job".into(), "lab".into(), "command".into());
            let start = ckpt_store::AttemptStart { job, name, trigger, processes: 1, ..Default::default() };
            let mut attempt = self.store.begin(start).unwrap();
            let source = PageSource::open(std::process::id() as i32).unwrap();
            self.series.begin().unwrap();
            let mappings = [(&draft, &census)];
            let stored =
                self.series.store(&mappings, &source, &self.store, &mut attempt, &mut |done, of| assert!(done <= of));
            let end = ckpt_store::AttemptEnd { processes: 1, ..Default::default() };
            match seals {
                true => {
                    attempt.seal(end, b"").unwrap();
                    self.series.sealed();
                }
                false => attempt.fail("a test", 0.0).unwrap(),
            }
            stored.unwrap()
        }

        fn check(&mut self, stored: &[StoredDifference]) {
            let all = Differences::read_all(stored, &self.store).unwrap();
            let (mut address, mut bytes) = (self.pages().as_ptr() as u64, vec![0; 32 * PAGE_BYTES]);
            let end = address + bytes.len() as u64;
            for block in blocks(address, end - address) {
                let to = &mut bytes[(block.start - (end - 32 * PAGE)) as usize..][..(block.end - block.start) as usize];
                all.read(&self.store, block.start, 0, to, None).unwrap();
                address = block.end;
            }
            assert!(address == end && bytes == self.pages());
        }
    }

    #[test]
    fn a_difference_that_was_not_sealed_is_not_built_upon() {
        for verify_matches in [false, true] {
            let mut lab = Lab::new(verify_matches);
            for (page, seals, needed) in [(1, true, 1), (2, true, 2), (3, false, 3), (4, true, 1), (5, true, 2)] {
                let stored = lab.take(page, seals);
                assert_eq!(stored.len(), needed, "page {page}");
                if seals {
                    lab.check(&stored);
                }
            }
        }
    }

    #[test]
    fn a_series_has_at_most_64_differences() {
        let mut lab = Lab::new(false);
        let counts: Vec<usize> = (0..66).map(|n| lab.take(n % 32, true).len()).collect();
        assert_eq!(counts[..64], (1..=64).collect::<Vec<_>>());
        assert_eq!(counts[64..], [1, 2]);
    }

    #[test]
    fn what_was_scanned_for_an_attempt_that_failed_is_not_known_to_the_next_one() {
        let mut series = Series::new(options()).unwrap();
        series.present.insert(0, PageSet::of(0..1));
        series.begin().unwrap();
        assert_eq!(series.present_before.len(), 1);
        series.begin().unwrap();
        assert!(series.present_before.is_empty() && series.present.is_empty());
    }

    #[test]
    fn what_was_written_or_is_gone_may_have_changed_if_it_was_known() {
        let before = BTreeMap::from([(64 * PAGE, PageSet::of(0..6))]);
        let changed = |written, before: &BTreeMap<u64, PageSet>| {
            let blocks = blocks_of(&draft(8), &census(4, written), before);
            let [block] = &blocks[..] else { panic!("8 pages are one block") };
            block.changed().map(<[_]>::to_vec)
        };
        let written = || Some(PageSet::of(1..2));
        assert_eq!(changed(written(), &before), Some(vec![PAGE..2 * PAGE, 4 * PAGE..6 * PAGE]));
        assert_eq!(changed(written(), &BTreeMap::new()), None, "nothing is known of it");
        assert_eq!(changed(None, &before), None, "nobody has watched it");
    }
}
