//! What is not as it was, in regions that are read in pieces.
//!
//! Of a region that is known, the chunks that may have changed are read and their digests compared: what is found is a
//! list, and how long it may become is bounded. A region that is new, or of which too much has changed for the list, is
//! *stored whole*: its digests are computed, and nothing is listed. That also keeps its bytes in their order and in one
//! piece, so a store that knows pages finds there what it has.

use std::{io, ops::Range};

use rayon::prelude::*;

use super::{
    Error, Result, Source,
    forest::{Forest, Tree},
    found::{Found, Previous},
    joined::Written,
    memory::{Live, Memory},
};
use crate::murmur3::{Digest, murmur3_chunks};

/// Bytes that a thread reads at a time.
const BATCH_BYTES: u32 = 1 << 20;
/// Batches between two looks at how long the list has become.
const GROUP_BATCHES: usize = 64;
/// What a chunk in the list takes until the difference has been handed over, in this list and those made from it.
pub(super) const LISTED_BYTES: usize = 2 * size_of::<Found>() + size_of::<Written>() + size_of::<usize>();

/// What has been found.
#[derive(Default)]
pub(super) struct Survey {
    /// Regions that are stored whole: positions of their trees, and the digests of their chunks.
    pub whole: Vec<(usize, Vec<Digest>)>,
    /// Chunks of the other regions that are not as they were.
    pub found: Vec<Found>,
}

/// Looks at regions.
pub(super) struct Surveyor<'a> {
    pub checkpoint: u32,
    pub chunk_bytes: u32,
    pub forest: &'a Forest,
    pub regions: &'a [Live<'a>],
    /// Bytes that the list of what is found may take, with what is made from it.
    pub list_bytes: u64,
}

impl Surveyor<'_> {
    /// Looks at all regions. Of those that become whole, `previous` forgets what they were.
    ///
    /// # Errors
    /// [`Error::Unreadable`].
    pub fn survey(&self, mut previous: Option<&mut Previous>) -> Result<Survey> {
        let mut survey = Survey::default();
        for (at, (live, tree)) in self.regions.iter().zip(&self.forest.trees).enumerate() {
            let unreadable = |source| Error::Unreadable { region: live.id, source };
            let known = previous.as_ref().and_then(|previous| previous.of(live.id));
            let listed = match known {
                Some(known) => self.changed(live, tree, known, survey.found.len()).map_err(unreadable)?,
                None => None,
            };
            match listed {
                Some(mut found) => survey.found.append(&mut found),
                None => {
                    previous.iter_mut().for_each(|previous| previous.forget(live.id));
                    survey.whole.push((at, self.digests(live.memory, tree).map_err(unreadable)?));
                }
            }
        }
        Ok(survey)
    }

    /// The chunks of a region that are not as `known` has them; `None` when they are too many beside those listed already.
    fn changed(&self, live: &Live<'_>, tree: &Tree, known: &[Digest], listed: usize) -> io::Result<Option<Vec<Found>>> {
        let most = usize::try_from(self.list_bytes).unwrap_or(usize::MAX) / LISTED_BYTES;
        let mut found = Vec::new();
        let batches = self.batches(&may_have_changed(tree, live.changed, known.len()));
        for group in batches.chunks(GROUP_BATCHES) {
            let lists: io::Result<Vec<_>> = group
                .par_iter()
                .map_init(Vec::new, |buffer, batch| self.changed_of(live.memory, tree, known, batch, buffer))
                .collect();
            found.extend(lists?.into_iter().flatten());
            if listed + found.len() > most {
                return Ok(None);
            }
        }
        Ok(Some(found))
    }

    /// The same of the chunks of a batch.
    fn changed_of(
        &self,
        memory: &dyn Memory,
        tree: &Tree,
        known: &[Digest],
        batch: &[Range<u32>],
        buffer: &mut Vec<u8>,
    ) -> io::Result<Vec<Found>> {
        let chunks = batch.iter().cloned().flatten();
        let mut digests = vec![Digest::default(); batch.iter().map(|run| run.len()).sum()];
        self.hash(memory, tree, batch, buffer, &mut digests)?;
        let first = tree.chunk_nodes().start;
        let others = chunks.zip(digests).filter(|(chunk, digest)| known.get(*chunk as usize) != Some(digest));
        let found = |(chunk, digest)| {
            let node = first + chunk;
            Found { node, source: Source { checkpoint: self.checkpoint, node }, digest }
        };
        Ok(others.map(found).collect())
    }

    /// The digests of all chunks of a region.
    fn digests(&self, memory: &dyn Memory, tree: &Tree) -> io::Result<Vec<Digest>> {
        let mut digests = vec![Digest::default(); tree.chunks() as usize];
        let each = self.batch_chunks() as usize;
        digests.par_chunks_mut(each).enumerate().try_for_each_init(Vec::new, |buffer, (number, digests)| {
            let first = (number * each) as u32;
            let run = first..first + digests.len() as u32;
            self.hash(memory, tree, std::slice::from_ref(&run), buffer, digests)
        })?;
        Ok(digests)
    }

    /// Digests of runs of chunks. Only the last chunk of a region may be shorter, and nothing follows it.
    fn hash(
        &self,
        memory: &dyn Memory,
        tree: &Tree,
        runs: &[Range<u32>],
        buffer: &mut Vec<u8>,
        digests: &mut [Digest],
    ) -> io::Result<()> {
        let ranges: Vec<_> = runs.iter().map(|run| tree.bytes_of_chunks(run.clone())).collect();
        buffer.clear();
        memory.read(&ranges, buffer)?;
        murmur3_chunks(buffer, self.chunk_bytes as usize, 0, digests);
        Ok(())
    }

    fn batch_chunks(&self) -> u32 {
        BATCH_BYTES / self.chunk_bytes
    }

    /// Runs of chunks, put together and cut into batches.
    fn batches(&self, runs: &[Range<u32>]) -> Vec<Vec<Range<u32>>> {
        let (mut batches, mut batch, mut room) = (Vec::new(), Vec::new(), self.batch_chunks());
        for mut run in runs.iter().cloned() {
            while !run.is_empty() {
                let taken = run.start..run.end.min(run.start + room);
                (run.start, room) = (taken.end, room - taken.len() as u32);
                batch.push(taken);
                if room == 0 {
                    batches.push(std::mem::take(&mut batch));
                    room = self.batch_chunks();
                }
            }
        }
        batches.extend((!batch.is_empty()).then_some(batch));
        batches
    }
}

/// The chunks with bytes that may have changed, when so many were known. The last one that was known may have become longer
/// or shorter.
pub(super) fn may_have_changed(tree: &Tree, changed: Option<&[Range<u64>]>, known: usize) -> Vec<Range<u32>> {
    let chunks = tree.chunks();
    let Some(changed) = changed else { return std::iter::once(0..chunks).collect() };
    let old = u32::try_from(known).unwrap_or(u32::MAX);
    let last = old.min(chunks).saturating_sub(1);
    let end = if old < chunks { chunks } else { chunks.min(last + 1) };
    let inside = changed.iter().map(|bytes| bytes.start..bytes.end.min(tree.region.bytes));
    let touched = inside.filter(|bytes| !bytes.is_empty()).map(|bytes| tree.chunks_with(bytes));
    let mut runs: Vec<Range<u32>> = touched.chain(std::iter::once(last..end)).collect();
    runs.sort_unstable_by_key(|run| run.start);
    merged(runs)
}

/// Runs in the order of their beginnings, none of which touches the next one.
fn merged(runs: Vec<Range<u32>>) -> Vec<Range<u32>> {
    let mut merged: Vec<Range<u32>> = Vec::with_capacity(runs.len());
    for run in runs {
        match merged.last_mut() {
            Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
            _ => merged.push(run),
        }
    }
    merged
}
