//! Writing pages: hash, look up, gather what is new into runs, compress what pays, append.
//!
//! In batches, so that memory stays bounded however much is given at once. While one batch is looked up, compressed and
//! written, the next one is hashed on the other cores.

use std::{borrow::Cow, collections::HashSet};

use rayon::prelude::*;

use super::Attempt;
use crate::{
    Compression, PAGE_BYTES, PageKey, Result, StoreError,
    codec::{self, Codec},
    format::pack::RUN_PAGES_MAX,
    index::{Index, Shareable},
    key_table::{KeyTable, Place},
    pace::{Pace, Speeds},
    pack::{page_item, writer::PackWriter},
    store::Shared,
};

/// The first batch of a call is hashed while nothing is written, so there should be some more.
const BATCHES_OF_A_CALL: usize = 8;
/// Each so many runs one is encoded to see how fast that is.
const PROBE_RUNS: usize = 16;

impl Attempt {
    /// Writes pages (any number of whole ones) and returns their keys. A page that is in the store is not written again,
    /// unless [`Attempt::share`] has said so; a page of zeros is never written.
    pub fn write_pages(&mut self, pages: &[u8]) -> Result<Vec<PageKey>> {
        self.check_usable()?;
        if !pages.len().is_multiple_of(PAGE_BYTES) {
            let found = pages.len() as u64;
            return Err(StoreError::WrongLength { what: "the pages to write", expected: PAGE_BYTES as u64, found });
        }
        self.shared.refresh()?;
        let pool = self.pool()?;
        let written = pool.install(|| self.write_batches(pages));
        self.guard(written)
    }

    /// How many bytes of pages a call of [`Attempt::write_pages`] is best given: enough that one part is hashed while
    /// another is written.
    pub fn best_call_bytes(&self) -> usize {
        BATCHES_OF_A_CALL * self.shared.options.batch_bytes()
    }

    /// The keys that neither the store nor this attempt has, each once.
    pub(crate) fn missing_pages(&self, keys: &[PageKey]) -> Result<Vec<PageKey>> {
        self.shared.refresh()?;
        let index = self.shared.index();
        let mut seen = HashSet::new();
        let mut missing = Vec::new();
        for (key, is_shared) in keys.iter().zip(self.shares(&index, keys)) {
            if !is_shared && !key.is_zero() && self.pages.get(key).is_none() && seen.insert(*key) {
                missing.push(*key);
            }
        }
        Ok(missing)
    }

    fn write_batches(&mut self, pages: &[u8]) -> Result<Vec<PageKey>> {
        let digest = self.shared.header.digest;
        let mut all = Vec::with_capacity(pages.len() / PAGE_BYTES);
        let mut batches = pages.chunks(self.shared.options.batch_bytes());
        let mut batch = batches.next().unwrap_or_default();
        let mut keys = digest.keys_of(batch);
        while !batch.is_empty() {
            let next = batches.next().unwrap_or_default();
            let (stored, next_keys) = if next.is_empty() {
                (self.write_batch(batch, &keys), Vec::new())
            } else {
                rayon::join(|| self.write_batch(batch, &keys), || digest.keys_of(next))
            };
            stored?;
            all.append(&mut keys);
            (batch, keys) = (next, next_keys);
        }
        Ok(all)
    }

    fn write_batch(&mut self, batch: &[u8], keys: &[PageKey]) -> Result<()> {
        let new = self.take_new(keys)?;
        if new.is_empty() {
            return Ok(());
        }
        let encoder = Encoder::new(&self.shared);
        // By its number in the attempt, so that the same pages are tried each time.
        let first = self.writer.as_ref().map_or(0, PackWriter::run_count);
        let runs: Vec<_> = (new.par_chunks(RUN_PAGES_MAX).enumerate())
            .map(|(at, numbers)| EncodedRun::new(&encoder, first + at, batch, numbers))
            .collect();
        self.check_room_for(runs.iter().map(|run| run.stored.len()).sum())?;
        let mut counts = self.counts;
        let writer = self.writer()?;
        for (run, numbers) in runs.iter().zip(new.chunks(RUN_PAGES_MAX)) {
            counts.new_bytes += (numbers.len() * PAGE_BYTES) as u64;
            counts.compressed_bytes += run.stored.len() as u64;
            writer.append_run(run.codec, numbers.iter().map(|number| keys[*number]), run.crc, &run.stored)?;
        }
        self.counts = counts;
        Ok(())
    }

    /// Of each key whether the page need not be written, because another attempt has it.
    fn shares<'a>(&self, index: &'a Index, keys: &'a [PageKey]) -> impl Iterator<Item = bool> + use<'a> {
        let finds_pages = self.sharing.finds_pages();
        let found = index.shareable_pages(keys, self.row.id);
        found.map(move |found| finds_pages && matches!(found, Shareable::Yes | Shareable::ThisTime))
    }

    /// The numbers of the pages to be written, as what is shared with this attempt is not; they are in its table now: the
    /// n-th of them will be page n % 64 of the n / 64-th run from here.
    fn take_new(&mut self, keys: &[PageKey]) -> Result<Vec<usize>> {
        let (sequence, first_run) = self.next_run()?;
        let index = self.shared.index();
        let mut new = Vec::new();
        self.pages.touch(keys);
        for (number, (key, is_shared)) in keys.iter().zip(self.shares(&index, keys)).enumerate() {
            let item = page_item(first_run + new.len() / RUN_PAGES_MAX, new.len() % RUN_PAGES_MAX);
            let place = Place { pack: sequence, item };
            if key.is_zero() {
                self.counts.zero_bytes += PAGE_BYTES as u64;
            } else if !self.sharing.finds_own_pages() {
                add_copy(&mut self.pages, *key, place);
                new.push(number);
            } else if is_shared || !self.pages.insert(*key, place) {
                self.counts.duplicate_bytes += PAGE_BYTES as u64;
            } else {
                new.push(number);
            }
        }
        Ok(new)
    }
}

/// Adds the place of a page that is to be written.
fn add_copy(pages: &mut KeyTable, key: PageKey, place: Place) {
    // As in the index: of several places, the first one in the last pack.
    pages.insert_or(key, place, |old| if place.pack > old.pack { place } else { old });
}

/// How runs are encoded.
struct Encoder<'a> {
    compression: Compression,
    pace: &'a Pace,
    speeds: Speeds,
    /// What is encrypted is authenticated then, and needs no checksum.
    is_encrypted: bool,
}

impl<'a> Encoder<'a> {
    fn new(shared: &'a Shared) -> Self {
        // One thread has enough to do with reading and hashing.
        let speeds = shared.pace.speeds(rayon::current_num_threads() - 1);
        Self {
            compression: shared.options.compression,
            pace: &shared.pace,
            speeds,
            is_encrypted: shared.store_key.is_some(),
        }
    }

    fn encode(&self, number: usize, run: &[u8]) -> Option<(Codec, Vec<u8>)> {
        match self.compression {
            Compression::Auto => codec::encode_by_pace(&self.speeds, self.pace, number.is_multiple_of(PROBE_RUNS), run),
            fixed => codec::encode(fixed, run),
        }
    }
}

struct EncodedRun<'a> {
    codec: Codec,
    stored: Cow<'a, [u8]>,
    crc: u32,
}

impl<'a> EncodedRun<'a> {
    /// Encodes the pages of `batch` with these numbers; a raw run of neighbours is not even copied.
    fn new(encoder: &Encoder<'_>, number: usize, batch: &'a [u8], numbers: &[usize]) -> Self {
        let neighbours = numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        let page = |number: usize| &batch[number * PAGE_BYTES..(number + 1) * PAGE_BYTES];
        let raw = if neighbours {
            let start = numbers[0] * PAGE_BYTES;
            Cow::Borrowed(&batch[start..start + numbers.len() * PAGE_BYTES])
        } else {
            Cow::Owned(numbers.iter().map(|number| page(*number)).collect::<Vec<_>>().concat())
        };
        let (codec, stored) = match encoder.encode(number, &raw) {
            Some((codec, encoded)) => (codec, encoded.into()),
            None => (Codec::Raw, raw),
        };
        let crc = if encoder.is_encrypted { 0 } else { crc32fast::hash(&stored) };
        Self { codec, crc, stored }
    }
}
