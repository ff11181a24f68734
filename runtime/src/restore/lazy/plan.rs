//! Which memory comes later.

use std::collections::HashMap;

use ckpt_store::{PAGE_BYTES, PageKey, Store};

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
    /// What is there, page by page.
    pub keys: Vec<PageKey>,
}

impl Range {
    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.keys.len() as u64 * PAGE
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
        let mut found: Vec<(Range, u64)> = Vec::new();
        for (process, image) in job.processes.iter().enumerate() {
            for (number, region) in image.regions.iter().enumerate().filter(|(_, region)| may_come_later(region)) {
                let list = store.page_list(&region.pages)?;
                let pages = list.iter().take_while(|(page, _)| *page < region.bytes / PAGE);
                let pages: Vec<_> = pages.filter(|(_, key)| !key.is_zero()).collect();
                let mut rest = Rest::new();
                for run in pages.chunk_by(|(page, _), (next, _)| next - page <= GAP_PAGES_MAX) {
                    if run.len() < RANGE_PAGES_MIN {
                        rest.extend(run);
                        continue;
                    }
                    let (first, last) = (run[0].0, run[run.len() - 1].0);
                    let mut keys = vec![PageKey::ZERO; (last - first + 1) as usize];
                    run.iter().for_each(|(page, key)| keys[(page - first) as usize] = *key);
                    let address = region.address + first * PAGE;
                    found.push((Range { process, region: number, address, keys }, first));
                }
                plan.rests.insert((process, number), rest);
            }
        }
        found.sort_by_key(|(range, _)| std::cmp::Reverse(range.keys.len()));
        for (range, first) in found.split_off(found.len().min(RANGES_MAX)) {
            let rest = plan.rests.entry((range.process, range.region)).or_default();
            rest.extend((first..).zip(range.keys).filter(|(_, key)| !key.is_zero()));
        }
        plan.ranges = found.into_iter().map(|(range, _)| range).collect();
        Ok(plan)
    }
}

/// What the kernel brings or takes by itself cannot: memory that is locked, that grows, that children find empty.
fn may_come_later(region: &Region) -> bool {
    let advice = &region.advice;
    region.backing == Backing::Anonymous
        && !region.in_differences
        && region.bytes >= RANGE_PAGES_MIN as u64 * PAGE
        && !(advice.locked || advice.grows_down || advice.wipe_on_fork || advice.droppable)
}
