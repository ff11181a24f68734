//! Which memory comes later.

use std::collections::HashMap;
use std::ops::Range as Span;

use ckpt_store::{PAGE_BYTES, PageKey, PageList, Store};

use super::needed::needed;
use crate::error::Result;
use crate::image::{Backing, JobImage, Region};

const PAGE: u64 = PAGE_BYTES as u64;
/// Less is read at once as fast as it is registered.
const RANGE_PAGES_MIN: usize = 256;
/// So many pages of zeros between two others do not end a range. A new range is a mapping more while pages are missing.
const GAP_PAGES_MAX: u64 = 64;
/// A process may have 65,530 mappings, and has some already.
const RANGES_MAX: usize = 4096;

/// Pages of a region that are to be there before the program runs, by their numbers.
pub type Rest = Vec<(u64, PageKey)>;

/// Consecutive pages of a region that come later.
#[derive(Debug)]
pub struct Range {
    /// The process, by its number in the job.
    pub process: usize,
    region: usize,
    /// First address.
    pub address: u64,
    /// What there is of the region, and which pages of that these are.
    list: PageList,
    span: Span<u64>,
}

impl Range {
    /// Its length in pages.
    pub fn pages(&self) -> usize {
        (self.span.end - self.span.start) as usize
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.pages() as u64 * PAGE
    }

    /// What is in these pages, counted from its first one.
    pub fn keys(&self, pages: Span<usize>) -> Vec<PageKey> {
        self.list.keys_of(self.span.start + pages.start as u64..self.span.start + pages.end as u64)
    }
}

/// What comes later, and what has to be there first of the same regions.
#[derive(Debug, Default)]
pub struct Plan {
    /// What comes later.
    pub ranges: Vec<Range>,
    /// By process and region: what comes first.
    pub rests: HashMap<(usize, usize), Rest>,
}

impl Plan {
    /// Decides for all memory of `job`.
    pub fn of(job: &JobImage, store: &Store) -> Result<Plan> {
        let mut plan = Plan::default();
        let mut found: Vec<Range> = Vec::new();
        for (process, image) in job.processes.iter().enumerate() {
            let needed = needed(image, store)?;
            for (number, region) in image.regions.iter().enumerate().filter(|(_, region)| may_come_later(region)) {
                let list = store.page_list(&region.pages)?;
                let first = region.address / PAGE;
                let is_needed =
                    |pages: Span<u64>| needed.range(first + pages.start..first + pages.end).next().is_some();
                let all = list.iter().map(|(page, _)| page).take_while(|page| *page < region.bytes / PAGE);
                let (at_once, pages): (Vec<u64>, Vec<u64>) = all.partition(|page| is_needed(*page..page + 1));
                let mut rest: Rest = at_once.into_iter().flat_map(|page| not_zero(&list, page..page + 1)).collect();
                for run in pages.chunk_by(|page, next| next - page <= GAP_PAGES_MAX && !is_needed(*page..*next)) {
                    let span = run[0]..run[run.len() - 1] + 1;
                    if run.len() < RANGE_PAGES_MIN {
                        rest.extend(not_zero(&list, span));
                        continue;
                    }
                    let address = region.address + span.start * PAGE;
                    found.push(Range { process, region: number, address, list: list.clone(), span });
                }
                plan.rests.insert((process, number), rest);
            }
        }
        found.sort_by_key(|range| std::cmp::Reverse(range.pages()));
        for range in found.split_off(found.len().min(RANGES_MAX)) {
            let rest = plan.rests.entry((range.process, range.region)).or_default();
            rest.extend(not_zero(&range.list, range.span));
        }
        plan.ranges = found;
        Ok(plan)
    }
}

/// The pages of `list` within `span` that are not zero.
fn not_zero(list: &PageList, span: Span<u64>) -> impl Iterator<Item = (u64, PageKey)> {
    (span.start..).zip(list.keys_of(span)).filter(|(_, key)| !key.is_zero())
}

/// What the kernel brings or takes by itself cannot: memory that is locked, that grows, that children find empty. Nor can huge pages,
/// which come whole.
fn may_come_later(region: &Region) -> bool {
    let advice = &region.advice;
    region.backing == Backing::Anonymous
        && !region.in_differences
        && advice.huge_page_bytes == 0
        && region.bytes >= RANGE_PAGES_MIN as u64 * PAGE
        && !(advice.locked || advice.grows_down || advice.wipe_on_fork || advice.droppable)
}
