//! What became of each allocation: matched by its number, wherever it lies, and compared byte by byte.
//!
//! A number means one allocation in all checkpoints of a job, and nothing in those of another. Pages that both
//! checkpoints name alike are not read; what has moved, and what `--method tree` has stored, is.

use std::collections::BTreeMap;
use std::ops::Range;

use ckpt_store::PAGE_BYTES;

use super::regions::State;
use crate::differences::WINDOW_BYTES;
use crate::error::Result;
use crate::image::Allocation;
use crate::stored_content::StoredContent;

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

/// One checkpoint's allocations, and their content.
pub type Side<'a> = (&'a [Allocation], &'a StoredContent<'a>);

/// Compares the allocations of two checkpoints of one job, by number.
pub fn compare<'a>(a: Side<'a>, b: Side<'a>) -> Result<Vec<AllocationDiff<'a>>> {
    let mut pairs: BTreeMap<u64, (Option<&Allocation>, Option<&Allocation>)> = BTreeMap::new();
    a.0.iter().for_each(|allocation| pairs.entry(allocation.id).or_default().0 = Some(allocation));
    b.0.iter().for_each(|allocation| pairs.entry(allocation.id).or_default().1 = Some(allocation));
    let compared = pairs.into_values().map(|(before, after)| {
        let (Some(of_a), Some(of_b)) = (before, after) else {
            return Ok(AllocationDiff { before, after, bytes_changed: 0, is_compared: true });
        };
        let is_compared = a.1.why_missing(of_a).is_none() && b.1.why_missing(of_b).is_none();
        let bytes_changed = if is_compared { bytes_changed((of_a, a.1), (of_b, b.1))? } else { 0 };
        Ok(AllocationDiff { before, after, bytes_changed, is_compared })
    });
    compared.collect()
}

/// How many bytes differ, of those that both have.
fn bytes_changed(
    (of_a, a): (&Allocation, &StoredContent<'_>),
    (of_b, b): (&Allocation, &StoredContent<'_>),
) -> Result<u64> {
    let bytes = of_a.bytes.min(of_b.bytes);
    let mut windows = [Vec::new(), Vec::new()];
    let mut changed = 0;
    for start in (0..bytes).step_by(WINDOW_BYTES) {
        let window = start..bytes.min(start + WINDOW_BYTES as u64);
        for part in parts_to_read((of_a, a), (of_b, b), window)? {
            let length = (part.end - part.start) as usize;
            let [old, new] = &mut windows;
            old.resize(length, 0);
            new.resize(length, 0);
            a.read(of_a, part.start, old)?;
            b.read(of_b, part.start, new)?;
            changed += old.iter().zip(&*new).filter(|(old, new)| old != new).count() as u64;
        }
    }
    Ok(changed)
}

/// The parts of a window that may differ.
fn parts_to_read(
    (of_a, a): (&Allocation, &StoredContent<'_>),
    (of_b, b): (&Allocation, &StoredContent<'_>),
    window: Range<u64>,
) -> Result<Vec<Range<u64>>> {
    let all = std::iter::once(window.clone());
    if of_a.address % PAGE != of_b.address % PAGE {
        return Ok(all.collect());
    }
    let (Some(old), Some(new)) = (a.keys(of_a, window.clone())?, b.keys(of_b, window.clone())?) else {
        return Ok(all.collect());
    };
    // Where the first of the pages begins, which may be in front of the allocation.
    let first = (of_a.address + window.start) / PAGE * PAGE;
    let differing = (0..).zip(old.iter().zip(&new)).filter(|(_, (old, new))| old != new).map(|(page, _)| page);
    let part = |page: u64| {
        let start = (first + page * PAGE).saturating_sub(of_a.address);
        start.max(window.start)..(first + (page + 1) * PAGE - of_a.address).min(window.end)
    };
    Ok(differing.map(part).collect())
}
