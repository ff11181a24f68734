//! Which pages are there, of anonymous memory whose changes the kernel notes: what the last look at it has found.
//!
//! A page that has not changed since then is there if it was there. So only the changed ones need to be asked for, which is
//! several times as fast as to ask for all.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::page_set::PageSet;

/// What is in a mapping, by the numbers of its pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct There {
    /// Pages.
    pub present: PageSet,
    /// Guards.
    pub guards: PageSet,
}

/// Mappings, by their first page, with the page behind their last one and what is there, counted from the first.
#[derive(Default)]
pub struct Watched(BTreeMap<u64, (u64, There)>);

impl Watched {
    /// What is there of a mapping of just these pages.
    pub fn there(&self, pages: &Range<u64>) -> Option<&There> {
        self.0.get(&pages.start).filter(|(end, _)| *end == pages.end).map(|(_, there)| there)
    }

    /// These pages, which are a mapping now, have been looked at.
    pub fn set(&mut self, pages: &Range<u64>, there: There) {
        let touching = self.0.range(..pages.end).rev().take_while(|(_, (end, _))| *end > pages.start);
        let starts: Vec<u64> = touching.map(|(start, _)| *start).collect();
        starts.iter().for_each(|start| drop(self.0.remove(start)));
        self.0.insert(pages.start, (pages.end, there));
    }

    /// Nothing is known any more.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(present: Range<u64>) -> There {
        There { present: PageSet::of(present), guards: PageSet::of(4..5) }
    }

    #[test]
    fn a_mapping_is_known_as_long_as_no_other_lies_where_it_was() {
        let mut watched = Watched::default();
        watched.set(&(10..20), of(0..3));
        watched.set(&(20..30), of(1..2));
        assert_eq!(watched.there(&(10..20)), Some(&of(0..3)));
        assert_eq!(watched.there(&(10..15)), None, "it has become shorter");
        assert_eq!(watched.there(&(5..20)), None);
        watched.set(&(15..22), There::default());
        assert_eq!((watched.there(&(10..20)), watched.there(&(20..30))), (None, None));
        assert_eq!(watched.there(&(15..22)), Some(&There::default()));
        watched.set(&(15..22), of(0..7));
        assert_eq!(watched.there(&(15..22)), Some(&of(0..7)));
        watched.forget();
        assert_eq!(watched.there(&(15..22)), None);
    }
}
