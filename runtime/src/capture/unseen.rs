//! Which written pages the next checkpoint of each depth has not seen.
//!
//! A look at what has been written begins a new time of watching, for whoever looks next. Checkpoints of both depths look at
//! the same mappings: what one of them finds is kept here for the other.

use std::ops::Range;

use ckpt_store::{Depth, PAGE_BYTES};

use super::tracking::{Census, Scanner, Stuck, Tracker};
use super::watched::{There, Watched};
use crate::error::Result;
use crate::page_set::PageSet;
use crate::proc::maps::Mapping;

/// The page behind all that there can be.
const END: u64 = u64::MAX / PAGE_BYTES as u64;

/// What a look at a mapping has found.
pub struct Look {
    /// What it holds, and which of its pages were written since the last look of this depth; `None` where that is not known, as
    /// of a mapping that has not been watched.
    pub census: Census,
    /// Those that were written since the last look of any kind, counted from address 0; all where that is not known.
    pub latest: PageSet,
}

impl Look {
    /// What has been found since the last look of any kind.
    fn of(mapping: &Mapping, census: Census) -> Look {
        let latest = match &census.written {
            Some(written) => written.clone().shifted(mapping.pages().start),
            None => PageSet::of(mapping.pages()),
        };
        Look { census, latest }
    }
}

/// Numbers of pages, counted from address 0. Nothing is kept for a depth that has never looked: it knows of no page yet.
#[derive(Default)]
pub struct Unseen {
    by_full: Option<PageSet>,
    by_data: Option<PageSet>,
    watched: Watched,
    /// Written by whom no protection keeps from it: never known to be as they were.
    by_devices: PageSet,
    /// The same of the time before.
    by_devices_before: PageSet,
    /// The kernel is not to be believed: everything counts as written.
    is_stuck: bool,
}

impl Unseen {
    /// From now on devices may write to these pages at any time, and to no others. What they have written to others until now is
    /// told by the looks until this is said again.
    pub fn devices_write_to(&mut self, pages: PageSet) {
        self.by_devices_before = std::mem::replace(&mut self.by_devices, pages);
    }

    /// Looks at `mapping` for a checkpoint of this depth. From now on it is watched, where the kernel can.
    ///
    /// # Errors
    /// When the process cannot be looked at.
    pub fn look(&mut self, depth: Depth, scanner: &Scanner, tracker: &Tracker, mapping: &Mapping) -> Result<Look> {
        let mut look = Look::of(mapping, self.take_census(scanner, tracker, mapping)?);
        look.census.written = self.seen(depth, &mapping.pages(), look.census.written.take());
        Ok(look)
    }

    /// Looks at mappings ahead of a checkpoint, for which all that is found is kept, and gives what each holds and which of its pages
    /// were written since the last look of any kind. The program may run meanwhile, and change its mappings: whatever is in the
    /// place of one of them now is not known to be unchanged until it is looked at while the program stands still.
    ///
    /// # Errors
    /// When the process cannot be looked at.
    pub fn look_ahead(&mut self, scanner: &Scanner, tracker: &Tracker, mappings: &[Mapping]) -> Result<Vec<Look>> {
        let look = |mapping: &Mapping| Ok(Look::of(mapping, self.take_census(scanner, tracker, mapping)?));
        let looks: Result<Vec<Look>> = mappings.iter().map(look).collect();
        let mut written = PageSet::default();
        match &looks {
            Ok(looks) => looks.iter().flat_map(|look| look.latest.ranges()).for_each(|run| written.push(run)),
            Err(_) => written = PageSet::of(0..END),
        }
        self.keep(&written);
        looks
    }

    /// The pages of `pages` that the next full checkpoint is going to be told of, as far as that is known now. None are known
    /// before the first one.
    pub fn kept_for_full(&self, pages: &Range<u64>) -> Option<PageSet> {
        let kept = self.by_full.as_ref()?;
        Some(kept.part(pages).shifted(pages.start))
    }

    fn take_census(&mut self, scanner: &Scanner, tracker: &Tracker, mapping: &Mapping) -> Result<Census> {
        let mut taken = self.try_to_take_census(scanner, tracker, mapping);
        match &mut taken {
            Ok(census) => self.add_written_by_devices(mapping, census),
            Err(_) => {
                // Some of its pages may be protected again, and nobody has been told that they were written.
                self.keep(&PageSet::of(0..END));
                self.watched.forget();
            }
        }
        taken
    }

    fn add_written_by_devices(&self, mapping: &Mapping, census: &mut Census) {
        let pages = mapping.pages();
        let by_devices = self.by_devices.part(&pages).union(&self.by_devices_before.part(&pages));
        let by_devices = by_devices.intersection(&census.present);
        if let Some(written) = census.written.as_mut().filter(|_| !by_devices.is_empty()) {
            *written = written.union(&by_devices);
        }
    }

    fn try_to_take_census(&mut self, scanner: &Scanner, tracker: &Tracker, mapping: &Mapping) -> Result<Census> {
        if self.is_stuck {
            return scanner.census(mapping);
        }
        let pages = mapping.pages();
        let is_anonymous = !mapping.shared && mapping.inode == 0;
        if let Some(then) = self.watched.there(&pages).filter(|_| is_anonymous)
            && let Some(census) = scanner.take_changes(mapping, then)?
        {
            self.watched.set(&pages, there(&census));
            return Ok(census);
        }
        let census = match scanner.take_census(mapping)? {
            Some(census) => census,
            None => {
                if tracker.watch(scanner, mapping)? == Err(Stuck) {
                    log::warn!("the kernel does not tell what is written any more: every checkpoint reads all memory");
                    self.is_stuck = true;
                }
                scanner.census(mapping)?
            }
        };
        if is_anonymous {
            self.watched.set(&pages, there(&census));
        }
        Ok(census)
    }

    /// Keeps these pages, counted from address 0, for every depth.
    fn keep(&mut self, pages: &PageSet) {
        for kept in [&mut self.by_full, &mut self.by_data].into_iter().flatten() {
            *kept = kept.union(pages);
        }
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
        let kept = own.take_part(all);
        written.map(|written| written.union(&kept))
    }
}

fn there(census: &Census) -> There {
    There { present: census.present.clone(), guards: census.guards.clone() }
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
    fn what_devices_write_to_is_written_at_every_look_as_far_as_it_is_there() {
        let mut unseen = Unseen::default();
        unseen.devices_write_to(set(&[90..103, 108..200]));
        let mapping = Mapping { start: 100 * PAGE_BYTES as u64, end: 110 * PAGE_BYTES as u64, ..Mapping::default() };
        let census = || Census { present: set(&[1..9]), written: Some(set(&[5..6])), ..Census::default() };
        for _ in 0..2 {
            let mut census = census();
            unseen.add_written_by_devices(&mapping, &mut census);
            assert_eq!(census.written, Some(set(&[1..3, 5..6, 8..9])));
        }
        unseen.devices_write_to(PageSet::default());
        let mut behind = census();
        unseen.add_written_by_devices(&mapping, &mut behind);
        assert_eq!(behind.written, Some(set(&[1..3, 5..6, 8..9])), "until a moment ago");
        unseen.devices_write_to(PageSet::default());
        let mut later = census();
        unseen.add_written_by_devices(&mapping, &mut later);
        assert_eq!(later.written, Some(set(&[5..6])));
        let mut unwatched = Census { written: None, ..census() };
        unseen.add_written_by_devices(&mapping, &mut unwatched);
        assert_eq!(unwatched.written, None, "all of it counts as written");
    }

    #[test]
    fn what_is_found_ahead_is_there_for_each_depth_that_has_looked() {
        let mut unseen = Unseen::default();
        unseen.keep(&set(&[100..101]));
        assert_eq!(unseen.kept_for_full(&(100..110)), None);
        unseen.seen(Depth::Full, &(100..110), None);
        unseen.keep(&set(&[103..105]));
        unseen.keep(&set(&[104..106, 200..201]));
        assert_eq!(unseen.kept_for_full(&(100..105)), Some(set(&[103..105])));
        assert_eq!(unseen.seen(Depth::Full, &(100..110), Some(set(&[9..10]))), Some(set(&[3..6, 9..10])));
        assert_eq!(unseen.kept_for_full(&(100..300)), Some(set(&[200..201])));
        assert!(unseen.by_data.is_none());
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
