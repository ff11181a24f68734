//! What became of each allocation: matched by its number, wherever it lies, and compared byte by byte.
//!
//! A number means one allocation in all checkpoints of a job, and nothing in those of another. Pages that both
//! checkpoints name alike are not read; what has moved, and what `--method tree` has stored, is.

use std::collections::BTreeMap;

use ckpt_store::PAGE_BYTES;

use super::regions::State;
use crate::differences::WINDOW_BYTES;
use crate::error::Result;
use crate::image::{Allocation, AllocationKind};
use crate::stored_memory::StoredMemory;

const PAGE: u64 = PAGE_BYTES as u64;

/// An allocation in one checkpoint or both.
#[derive(Debug)]
pub struct AllocationDiff<'a> {
    /// In A.
    pub before: Option<&'a Allocation>,
    /// In B.
    pub after: Option<&'a Allocation>,
    /// Bytes that differ, of those that both have; none where it is not compared.
    pub bytes_changed: u64,
    /// Whether its content is in both checkpoints, where both have it.
    pub is_compared: bool,
}

impl AllocationDiff<'_> {
    /// Its number.
    pub fn id(&self) -> u64 {
        self.after.or(self.before).map_or(0, |allocation| allocation.id)
    }

    /// What became of it.
    pub fn state(&self) -> State {
        match (self.before, self.after) {
            (Some(before), Some(after)) if before.bytes != after.bytes => State::Resized,
            (Some(_), Some(_)) if !self.is_compared => State::NotCompared,
            (Some(_), Some(_)) if self.bytes_changed == 0 => State::Same,
            (Some(_), Some(_)) => State::Changed,
            (Some(_), None) => State::OnlyInA,
            (None, _) => State::OnlyInB,
        }
    }
}

/// One checkpoint's allocations, and its memory.
pub type Side<'a> = (&'a [Allocation], &'a StoredMemory<'a>);

/// Compares the allocations of two checkpoints of one job, by number.
pub fn compare<'a>(a: Side<'a>, b: Side<'a>) -> Result<Vec<AllocationDiff<'a>>> {
    let mut pairs: BTreeMap<u64, (Option<&Allocation>, Option<&Allocation>)> = BTreeMap::new();
    a.0.iter().for_each(|allocation| pairs.entry(allocation.id).or_default().0 = Some(allocation));
    b.0.iter().for_each(|allocation| pairs.entry(allocation.id).or_default().1 = Some(allocation));
    let compared = pairs.into_values().map(|(before, after)| {
        let (Some(of_a), Some(of_b)) = (before, after) else {
            return Ok(AllocationDiff { before, after, bytes_changed: 0, is_compared: true });
        };
        let is_compared = is_stored(of_a, a.1) && is_stored(of_b, b.1);
        let bytes_changed = if is_compared { bytes_changed((of_a, a.1), (of_b, b.1))? } else { 0 };
        Ok(AllocationDiff { before, after, bytes_changed, is_compared })
    });
    compared.collect()
}

/// Whether the content of an allocation is part of the checkpoint.
fn is_stored(allocation: &Allocation, memory: &StoredMemory<'_>) -> bool {
    let end = allocation.address.saturating_add(allocation.bytes);
    allocation.kind == AllocationKind::Heap && memory.covers(allocation.address..end)
}

/// How many bytes differ, of those that both have.
fn bytes_changed(
    (of_a, a): (&Allocation, &StoredMemory<'_>),
    (of_b, b): (&Allocation, &StoredMemory<'_>),
) -> Result<u64> {
    let bytes = of_a.bytes.min(of_b.bytes);
    let mut windows = [Vec::new(), Vec::new()];
    let mut changed = 0;
    let mut done = 0;
    while done < bytes {
        let length = (bytes - done).min(WINDOW_BYTES as u64);
        let starts = [of_a.address + done, of_b.address + done];
        for part in parts_to_read(a, b, starts, length)? {
            let length = (part.end - part.start) as usize;
            let [old, new] = &mut windows;
            old.resize(length, 0);
            new.resize(length, 0);
            a.read(starts[0] + part.start, old)?;
            b.read(starts[1] + part.start, new)?;
            changed += old.iter().zip(&*new).filter(|(old, new)| old != new).count() as u64;
        }
        done += length;
    }
    Ok(changed)
}

/// The parts of two ranges of `length` bytes that may differ, counted from where they start.
fn parts_to_read(
    a: &StoredMemory<'_>,
    b: &StoredMemory<'_>,
    starts: [u64; 2],
    length: u64,
) -> Result<Vec<std::ops::Range<u64>>> {
    let [of_a, of_b] = starts;
    let all = std::iter::once(0..length);
    if of_a % PAGE != of_b % PAGE {
        return Ok(all.collect());
    }
    let (Some(old), Some(new)) = (a.keys(of_a..of_a + length)?, b.keys(of_b..of_b + length)?) else {
        return Ok(all.collect());
    };
    let first = of_a / PAGE * PAGE;
    let differing = (0..).zip(old.iter().zip(&new)).filter(|(_, (old, new))| old != new).map(|(page, _)| page);
    let part = |page: u64| {
        let start = (first + page * PAGE).saturating_sub(of_a);
        start..(first + (page + 1) * PAGE - of_a).min(length)
    };
    Ok(differing.map(part).collect())
}
