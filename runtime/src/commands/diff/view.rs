//! Two checkpoints as `ckpt diff` presents them: the same fields in JSON and for people.
//!
//! Scripts depend on the names. `a` and `b` are the checkpoints in the order of the command line.

use ckpt_store::{AttemptRow, Depth};
use serde::Serialize;

use super::allocations::AllocationDiff;
use super::regions::{RegionDiff, State};
use crate::commands::show::allocations::code_of;
use crate::commands::show::call_site::{CallSite, CallSites};
use crate::commands::show::view::{DescriptorView, ThreadView, descriptors, kind, lossy, protection, threads};
use crate::image::{Allocation, Image, Region};

/// Everything that differs.
#[derive(Serialize)]
pub struct DiffView {
    pub a: CheckpointView,
    pub b: CheckpointView,
    /// Whether both are of one job.
    pub same_job: bool,
    /// Ascending by address; those that are the same only where they were asked for.
    pub regions: Vec<RegionView>,
    pub totals: Totals,
    /// By number; those that are the same only where they were asked for. None for checkpoints of two jobs.
    pub allocations: Vec<AllocationView>,
    /// Threads by their tid.
    pub threads_only_in_a: Vec<ThreadView>,
    pub threads_only_in_b: Vec<ThreadView>,
    /// Descriptors by number, kind and target; one that leads elsewhere is in both lists.
    pub descriptors_only_in_a: Vec<DescriptorView>,
    pub descriptors_only_in_b: Vec<DescriptorView>,
}

/// Which checkpoint.
#[derive(Serialize)]
pub struct CheckpointView {
    pub id: u64,
    pub job: String,
    pub name: String,
    pub sealed_unix_s: Option<u64>,
    /// full, or data.
    pub depth: Depth,
}

/// A region. What belongs to one checkpoint is null where it has nothing there.
#[derive(Serialize)]
pub struct RegionView {
    /// Hexadecimal, with 0x: in b or, failing that, in a.
    pub address: String,
    /// Bytes of all regions of a that lie where the one of b does.
    pub bytes_a: Option<u64>,
    pub bytes_b: Option<u64>,
    /// As `ckpt show` has it, of b or, failing that, of a.
    pub kind: &'static str,
    pub name: String,
    /// As in /proc/PID/maps: `rw-p`; of the first region where there are several.
    pub protection_a: Option<String>,
    pub protection_b: Option<String>,
    /// same, changed, not_compared, resized, only_in_a or only_in_b.
    pub state: State,
    /// Pages with other content.
    pub pages_changed: u64,
    /// Pages with content that were zero or not mapped.
    pub pages_added: u64,
    /// Pages that had content and are zero or not mapped.
    pub pages_gone: u64,
}

/// An allocation. What belongs to one checkpoint is null where it has none of the number.
#[derive(Serialize)]
pub struct AllocationView {
    /// Its number.
    pub id: u64,
    /// Hexadecimal, with 0x.
    pub address_a: Option<String>,
    pub address_b: Option<String>,
    pub bytes_a: Option<u64>,
    pub bytes_b: Option<u64>,
    /// same, changed, not_compared, resized, only_in_a or only_in_b.
    pub state: State,
    /// Bytes that differ, of those that both have.
    pub bytes_changed: u64,
    /// What asked for it, as `ckpt show` has it.
    pub call_site: CallSite,
}

/// Sums over all regions, shown or not.
#[derive(Default, Serialize)]
pub struct Totals {
    pub regions_same: u64,
    pub regions_changed: u64,
    pub regions_not_compared: u64,
    pub regions_resized: u64,
    pub regions_only_in_a: u64,
    pub regions_only_in_b: u64,
    pub pages_changed: u64,
    pub pages_added: u64,
    pub pages_gone: u64,
}

impl DiffView {
    /// The view of two checkpoints and the comparison of their regions; `all` keeps the regions that are the same.
    pub fn new(
        (a_row, a): (&AttemptRow, &Image),
        (b_row, b): (&AttemptRow, &Image),
        regions: &[RegionDiff<'_>],
        allocations: &[AllocationDiff<'_>],
        all: bool,
    ) -> DiffView {
        let mut sites = [CallSites::new(code_of(a)), CallSites::new(code_of(b))];
        // A checkpoint of data says nothing of threads and descriptors: then there is nothing to compare.
        let both = match (a, b) {
            (Image::Job(a), Image::Job(b)) => Some((a, b)),
            _ => None,
        };
        let threads = both.map_or_else(Default::default, |(a, b)| (threads(a), threads(b)));
        let descriptors = both.map_or_else(Default::default, |(a, b)| (descriptors(a), descriptors(b)));
        let allocations = allocations.iter().filter(|diff| all || diff.state() != State::Same);
        let shown = regions.iter().filter(|diff| all || diff.state() != State::Same);
        DiffView {
            a: CheckpointView::of(a_row),
            b: CheckpointView::of(b_row),
            same_job: a_row.job == b_row.job,
            regions: shown.map(RegionView::of).collect(),
            totals: Totals::of(regions),
            allocations: allocations.map(|diff| AllocationView::of(diff, &mut sites)).collect(),
            threads_only_in_a: only_in(&threads.0, &threads.1, |thread| thread.tid),
            threads_only_in_b: only_in(&threads.1, &threads.0, |thread| thread.tid),
            descriptors_only_in_a: only_in(&descriptors.0, &descriptors.1, identity),
            descriptors_only_in_b: only_in(&descriptors.1, &descriptors.0, identity),
        }
    }
}

impl CheckpointView {
    fn of(row: &AttemptRow) -> CheckpointView {
        CheckpointView {
            id: row.id,
            job: row.job.clone(),
            name: row.name.clone(),
            sealed_unix_s: row.sealed_unix_s,
            depth: row.depth,
        }
    }
}

impl RegionView {
    fn of(diff: &RegionDiff<'_>) -> RegionView {
        let first = diff.before.first();
        let shown = diff.after.or(first);
        RegionView {
            address: format!("{:#x}", diff.address()),
            bytes_a: first.map(|_| diff.before.iter().map(|region| region.bytes).sum()),
            bytes_b: diff.after.map(|region| region.bytes),
            kind: shown.map_or("", kind),
            name: shown.map(|region: &Region| lossy(&region.name)).unwrap_or_default(),
            protection_a: first.map(protection),
            protection_b: diff.after.map(protection),
            state: diff.state(),
            pages_changed: diff.pages.changed,
            pages_added: diff.pages.added,
            pages_gone: diff.pages.gone,
        }
    }
}

impl AllocationView {
    fn of(diff: &AllocationDiff<'_>, [of_a, of_b]: &mut [CallSites; 2]) -> AllocationView {
        let address = |allocation: &Allocation| format!("{:#x}", allocation.address);
        let call_site = match (diff.before, diff.after) {
            (_, Some(after)) => of_b.name(after.call_site),
            (before, None) => of_a.name(before.map_or(0, |before| before.call_site)),
        };
        AllocationView {
            id: diff.id(),
            address_a: diff.before.map(address),
            address_b: diff.after.map(address),
            bytes_a: diff.before.map(|allocation| allocation.bytes),
            bytes_b: diff.after.map(|allocation| allocation.bytes),
            state: diff.state(),
            bytes_changed: diff.bytes_changed,
            call_site,
        }
    }
}

impl Totals {
    fn of(regions: &[RegionDiff<'_>]) -> Totals {
        let mut totals = Totals::default();
        for diff in regions {
            *match diff.state() {
                State::Same => &mut totals.regions_same,
                State::Changed => &mut totals.regions_changed,
                State::NotCompared => &mut totals.regions_not_compared,
                State::Resized => &mut totals.regions_resized,
                State::OnlyInA => &mut totals.regions_only_in_a,
                State::OnlyInB => &mut totals.regions_only_in_b,
            } += 1;
            totals.pages_changed += diff.pages.changed;
            totals.pages_added += diff.pages.added;
            totals.pages_gone += diff.pages.gone;
        }
        totals
    }
}

/// The descriptors' identity: what must be equal for one to be the same.
fn identity(descriptor: &DescriptorView) -> (i32, &'static str, String) {
    (descriptor.number, descriptor.kind, descriptor.target.clone())
}

/// What `these` have and `those` do not, by `identity`.
fn only_in<T: Clone, I: Ord>(these: &[T], those: &[T], identity: impl Fn(&T) -> I) -> Vec<T> {
    let there: std::collections::BTreeSet<I> = those.iter().map(&identity).collect();
    these.iter().filter(|one| !there.contains(&identity(one))).cloned().collect()
}
