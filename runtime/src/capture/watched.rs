//! Which pages are there, of anonymous memory whose changes the kernel notes: what the last look at it has found.
//!
//! A page that has not changed since then is there if it was there. So only the changed ones need to be asked for, which is
//! several times as fast as to ask for all.

use std::collections::BTreeMap;
use std::ops::Range;

use super::page_set::PageSet;

/// Mappings, by their first page, with the page behind their last one and the pages that are there, counted from the first.
#[derive(Default)]
pub struct Watched(BTreeMap<u64, (u64, PageSet)>);

impl Watched {
    /// What is there of a mapping of just these pages.
    pub fn present(&self, pages: &Range<u64>) -> Option<&PageSet> {
        self.0.get(&pages.start).filter(|(end, _)| *end == pages.end).map(|(_, present)| present)
    }

    /// These pages, which are a mapping now, have been looked at.
    pub fn set(&mut self, pages: &Range<u64>, present: PageSet) {
        let touching = self.0.range(..pages.end).rev().take_while(|(_, (end, _))| *end > pages.start);
        let starts: Vec<u64> = touching.map(|(start, _)| *start).collect();
        starts.iter().for_each(|start| drop(self.0.remove(start)));
        self.0.insert(pages.start, (pages.end, present));
    }

    /// Nothing is known any more.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_known_as_long_as_no_other_lies_where_it_was() {
        let mut watched = Watched::default();
        watched.set(&(10..20), PageSet::of(0..3));
        watched.set(&(20..30), PageSet::of(1..2));
        assert_eq!(watched.present(&(10..20)), Some(&PageSet::of(0..3)));
        assert_eq!(watched.present(&(10..15)), None, "it has become shorter");
        assert_eq!(watched.present(&(5..20)), None);
        watched.set(&(15..22), PageSet::default());
        assert_eq!((watched.present(&(10..20)), watched.present(&(20..30))), (None, None));
        assert_eq!(watched.present(&(15..22)), Some(&PageSet::default()));
        watched.set(&(15..22), PageSet::of(0..7));
        assert_eq!(watched.present(&(15..22)), Some(&PageSet::of(0..7)));
        watched.forget();
        assert_eq!(watched.present(&(15..22)), None);
    }
}
