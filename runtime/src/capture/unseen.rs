//! Which written pages the next checkpoint of each depth has not seen.
//!
//! A look at what has been written begins a new time of watching, for whoever looks next. Checkpoints of both depths look at
//! the same mappings: what one of them finds is kept here for the other.

use std::ops::Range;

use ckpt_store::{Depth, PAGE_BYTES};

use super::page_set::PageSet;
use super::tracking::{Census, Scanner, Tracker};
use crate::error::Result;
use crate::proc::maps::Mapping;

/// Numbers of pages, counted from address 0. Nothing is kept for a depth that has never looked: it knows of no page yet.
#[derive(Default)]
pub struct Unseen {
    by_full: Option<PageSet>,
    by_data: Option<PageSet>,
}

impl Unseen {
    /// What `mapping` holds, and which of its pages were written since the last look of this depth; `None` where that is not
    /// known, as of a mapping that has not been watched. From now on it is, where the kernel can.
    ///
    /// # Errors
    /// When the process cannot be looked at.
    pub fn look(&mut self, depth: Depth, scanner: &Scanner, tracker: &Tracker, mapping: &Mapping) -> Result<Census> {
        let census = match scanner.take_census(mapping)? {
            Some(census) => census,
            None => {
                if tracker.register(mapping) {
                    scanner.protect(mapping)?;
                }
                scanner.census(mapping)?
            }
        };
        let all = mapping.start / PAGE_BYTES as u64..mapping.end / PAGE_BYTES as u64;
        Ok(Census { written: self.seen(depth, &all, census.written), ..census })
    }

    /// The same, told what the look has found among the pages `all`.
    fn seen(&mut self, depth: Depth, all: &Range<u64>, written: Option<PageSet>) -> Option<PageSet> {
        let whole = || PageSet::of(0..all.end - all.start);
        let (own, other) = match depth {
            Depth::Full => (&mut self.by_full, &mut self.by_data),
            Depth::Data => (&mut self.by_data, &mut self.by_full),
        };
        if let Some(other) = other {
            *other = other.union(&written.clone().unwrap_or_else(whole).shifted(all.start));
        }
        let own = own.get_or_insert_default();
        let kept = own.part(all);
        if !kept.is_empty() {
            *own = own.difference(&PageSet::of(all.clone()));
        }
        written.map(|written| written.union(&kept))
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a set of one run")]
mod tests {
    use super::*;

    fn set(runs: &[Range<u64>]) -> PageSet {
        let mut set = PageSet::default();
        runs.iter().for_each(|run| set.push(run.clone()));
        set
    }

    #[test]
    fn what_one_depth_has_found_is_there_for_the_other_once() {
        let mut unseen = Unseen::default();
        let all = 100..110;
        assert_eq!(unseen.seen(Depth::Full, &all, Some(set(&[]))), Some(set(&[])));
        assert_eq!(unseen.seen(Depth::Data, &all, Some(set(&[1..2]))), Some(set(&[1..2])));
        assert_eq!(unseen.seen(Depth::Data, &all, Some(set(&[3..4]))), Some(set(&[3..4])));
        assert_eq!(unseen.seen(Depth::Full, &all, Some(set(&[5..6]))), Some(set(&[1..2, 3..4, 5..6])));
        assert_eq!(unseen.seen(Depth::Full, &all, Some(set(&[]))), Some(set(&[])));
        assert_eq!(unseen.seen(Depth::Data, &all, Some(set(&[9..10]))), Some(set(&[5..6, 9..10])));
    }

    #[test]
    fn nothing_is_kept_for_a_depth_that_has_never_looked() {
        let mut unseen = Unseen::default();
        unseen.seen(Depth::Full, &(100..110), Some(set(&[1..2])));
        assert!(unseen.by_data.is_none());
        assert_eq!(unseen.seen(Depth::Data, &(100..110), Some(set(&[]))), Some(set(&[])));
    }

    #[test]
    fn a_mapping_that_was_not_watched_has_changed_everywhere_for_both() {
        let mut unseen = Unseen::default();
        let all = 100..110;
        assert_eq!(unseen.seen(Depth::Full, &(0..1), None), None);
        assert_eq!(unseen.seen(Depth::Data, &all, None), None);
        assert_eq!(unseen.seen(Depth::Full, &all, Some(set(&[]))), Some(set(&[0..10])));
        assert_eq!(unseen.seen(Depth::Data, &all, Some(set(&[]))), Some(set(&[])));
    }

    #[test]
    fn a_look_at_one_mapping_leaves_what_is_kept_of_others() {
        let mut unseen = Unseen::default();
        unseen.seen(Depth::Full, &(0..1), None);
        unseen.seen(Depth::Data, &(100..110), Some(set(&[0..10])));
        unseen.seen(Depth::Data, &(200..210), Some(set(&[0..1])));
        assert_eq!(unseen.seen(Depth::Full, &(105..107), Some(set(&[]))), Some(set(&[0..2])));
        assert_eq!(unseen.seen(Depth::Full, &(100..110), Some(set(&[]))), Some(set(&[0..5, 7..10])));
        assert_eq!(unseen.seen(Depth::Full, &(200..210), Some(set(&[]))), Some(set(&[0..1])));
    }
}
