//! Differences of the allocations in memory of the host, found on the CPU.
//!
//! An allocation is a region of the engine by its number, which stays with it when it is resized or moved. Chunks are as
//! short as their digests find room for.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use ckpt_kernels::merkle::{Engine, Live, Memory, Method};
use ckpt_store::{Attempt, Store};

use super::chunk_bytes;
use super::extent::Extent;
use super::freeze::Frozen;
use super::look::Look;
use super::parts::Part;
use crate::capture::TreeOptions;
use crate::capture::page_set::PageSet;
use crate::capture::pages::PageSource;
use crate::capture::stored_series::{Mismatch, PageSink, StoredSeries};
use crate::error::Result;
use crate::image::StoredDifference;

/// The longest chunk.
const CHUNK_BYTES_MAX: u32 = 4096;

/// What is remembered from one checkpoint of data to the next.
#[derive(Default)]
pub struct Host {
    series: Option<StoredSeries<Engine>>,
    /// First addresses of the allocations at the last sealed checkpoint, by number.
    addresses: BTreeMap<u64, u64>,
    /// Pages that were there, counted from address 0.
    present: PageSet,
}

impl Host {
    /// Notes where parts may have changed since the last sealed checkpoint, as far as that is known.
    pub fn note_changes(&self, parts: &mut [Part], look: &Look) {
        for part in parts.iter_mut().filter(|part| self.addresses.get(&part.id) == Some(&part.address)) {
            part.changed = part.changes(look, &self.present);
        }
    }

    /// Finds what the frozen allocations add to the checkpoints before, writes it, and returns all differences that are
    /// needed. `read_bytes` counts what is read for that. `written` is told the bytes of the new one that are written, and of how many.
    ///
    /// # Errors
    /// When memory cannot be read or the store refuses.
    pub fn store(
        &mut self,
        frozen: &Frozen,
        read_bytes: &AtomicU64,
        options: &TreeOptions,
        store: &Store,
        attempt: &mut Attempt,
        written: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<StoredDifference>> {
        let bytes = frozen.parts.iter().map(|part| part.bytes).sum();
        if frozen.parts.is_empty() {
            self.series = None;
            return Ok(Vec::new());
        }
        let source = PageSource::open(frozen.still.holder())?;
        let extent = |part: &Part| Extent { address: part.address, bytes: part.bytes, source: &source, read_bytes };
        let extents: Vec<_> = frozen.parts.iter().map(extent).collect();
        let copies: Vec<_> = frozen.parts.iter().map(|part| part.copied.as_deref()).collect();
        let memory = |at: usize| copies[at].as_ref().map_or(&extents[at] as &dyn Memory, |copy| copy);
        let live: Vec<_> = (0..)
            .zip(&frozen.parts)
            .map(|(at, part)| Live { id: part.id, memory: memory(at), changed: part.changed.as_deref() })
            .collect();
        let find = |engine: &mut Engine, number, sink: &mut PageSink<'_>| {
            engine.difference_of(number, Method::Tree, &live, sink)
        };
        let series = self.begin(bytes, options)?;
        series.take(attempt, written, find)?;
        if let Some(Mismatch { region, offset }) = series.mismatch(&live, store)? {
            log::warn!(
                "{offset} bytes into allocation {region} a chunk has the digest of another; all is stored again"
            );
            self.series = None;
            let series = self.begin(bytes, options)?;
            series.take(attempt, written, find)?;
            return series.write_lists(attempt);
        }
        series.write_lists(attempt)
    }

    /// The series that the next difference belongs to.
    fn begin(&mut self, bytes: u64, options: &TreeOptions) -> Result<&mut StoredSeries<Engine>> {
        let goes_on = |series: &StoredSeries<Engine>| !series.is_unsealed() && !series.is_long(bytes);
        let series = match self.series.take().filter(goes_on) {
            Some(series) => series,
            None => {
                let chunk_bytes = chunk_bytes(bytes, options.chunk_bytes..=CHUNK_BYTES_MAX, options.digest_bytes);
                StoredSeries::new(Engine::new(chunk_bytes, Some(options.digest_bytes))?, options.verify_matches)
            }
        };
        let series = self.series.insert(series);
        series.begin();
        Ok(series)
    }

    /// The attempt has become a checkpoint.
    pub fn sealed(&mut self, frozen: &Frozen) {
        if let Some(series) = &mut self.series {
            series.sealed();
        }
        self.addresses = frozen.parts.iter().map(|part| (part.id, part.address)).collect();
        self.present = frozen.present.clone();
    }

    /// It has not: what has been looked at is not known to be as it was.
    pub fn failed(&mut self) {
        *self = Host::default();
    }
}
