//! Differences of the allocations in memory of the host, found on the CPU.
//!
//! An allocation is a region of the engine by its number, which stays with it when it is resized or moved. Chunks are as
//! short as their digests find room for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use ckpt_kernels::merkle::{Engine, Live, Memory, Method, RegionShape};
use ckpt_store::{Attempt, Store};

use super::extent::Extent;
use super::frozen::Frozen;
use super::parts::Part;
use super::seen_pages::SeenPages;
use crate::capture::chunk_bytes::chunk_bytes;
use crate::capture::stored_series::{Mismatch, PageSink, StoredSeries};
use crate::capture::tree::Options as TreeOptions;
use crate::error::Result;
use crate::image::StoredDifference;
use crate::page_set::PageSet;

/// The longest chunk.
const CHUNK_BYTES_MAX: u32 = 4096;
/// What is copied while the program stands still; for more it is cloned, which takes longer than to copy this much.
const COPY_BYTES_MAX: u64 = 32 << 20;

/// What is remembered from one checkpoint of data to the next.
#[derive(Default)]
pub struct Host {
    series: Option<StoredSeries<Engine>>,
    /// First addresses of the allocations at the last sealed checkpoint, by number.
    addresses: BTreeMap<u64, u64>,
    /// Pages that were there, counted from address 0.
    present: PageSet,
    /// Allocations that a clone has turned out not to have, by number.
    pub kept_from_clones: BTreeSet<u64>,
}

impl Host {
    /// Notes where parts may have changed since the last sealed checkpoint, as far as that is known.
    pub fn note_changes(&self, parts: &mut [Part], look: &SeenPages) {
        for part in parts.iter_mut().filter(|part| self.addresses.get(&part.id) == Some(&part.address)) {
            part.changed = part.changes(look, &self.present);
        }
    }

    /// What will be read of each part, if that is little enough to be copied while the program stands still.
    pub fn to_copy(&self, parts: &[Part], options: &TreeOptions) -> Option<Vec<Vec<Range<u64>>>> {
        let bytes = parts.iter().map(|part| part.bytes).sum();
        let series = self.series.as_ref().filter(|series| goes_on(series, bytes) && !options.verify_all)?;
        let shapes: Option<Vec<_>> = parts
            .iter()
            .map(|part| Some((RegionShape { id: part.id, bytes: part.bytes }, part.changed.as_deref()?)))
            .collect();
        let wanted = series.engine.would_read(Method::Tree, &shapes?)?;
        let copied: u64 = wanted.iter().flatten().map(|range| range.end - range.start).sum();
        (copied <= COPY_BYTES_MAX).then_some(wanted)
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
        let is_read = frozen.parts.iter().any(|part| part.copied.is_none());
        let source = if is_read { frozen.still.source()? } else { None };
        let extent = |source, part: &Part| Extent { address: part.address, bytes: part.bytes, source, read_bytes };
        let extents: Vec<_> = frozen.parts.iter().map(|part| source.as_ref().map(|it| extent(it, part))).collect();
        let live: Vec<_> = extents.iter().zip(&frozen.parts).filter_map(|(extent, part)| live(part, extent)).collect();
        let copied = frozen.parts.iter().filter_map(|part| part.copied.as_ref());
        read_bytes.fetch_add(copied.map(|copied| copied.content.len() as u64).sum(), Ordering::Relaxed);
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
        let series = match self.series.take().filter(|series| goes_on(series, bytes)) {
            Some(series) => series,
            None => {
                let chunk_bytes = chunk_bytes(bytes, options.chunk_bytes..=CHUNK_BYTES_MAX, options.digest_bytes);
                StoredSeries::new(Engine::new(chunk_bytes, Some(options.digest_bytes))?, options.verify_all)
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

/// An allocation as the engine reads it: what was copied of it, or where it lies.
fn live<'a>(part: &'a Part, extent: &'a Option<Extent<'a>>) -> Option<Live<'a>> {
    let copied = part.copied.as_ref().map(|copied| copied as &dyn Memory);
    let memory = copied.or_else(|| extent.as_ref().map(|extent| extent as &dyn Memory))?;
    Some(Live { id: part.id, memory, changed: part.changed.as_deref() })
}

/// Whether the next difference of so much memory belongs to the series.
fn goes_on(series: &StoredSeries<Engine>, bytes: u64) -> bool {
    !series.is_unsealed() && !series.is_long(bytes)
}
