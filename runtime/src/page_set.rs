//! Sorted sets of pages as half-open ranges, with the few operations that capture needs.

use std::ops::Range;

/// A set of page numbers: ascending, disjoint, not touching, no empty range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSet(Vec<Range<u64>>);

impl PageSet {
    /// The set of `range`.
    pub fn of(range: Range<u64>) -> PageSet {
        PageSet(if range.is_empty() { Vec::new() } else { vec![range] })
    }

    /// Adds `range`, which must not start before the last one added.
    pub fn push(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        match self.0.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => self.0.push(range),
        }
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().cloned()
    }

    /// Whether `page` is in it.
    pub fn contains(&self, page: u64) -> bool {
        self.0.get(self.0.partition_point(|run| run.end <= page)).is_some_and(|run| run.start <= page)
    }

    /// The runs of pages within `range`.
    pub fn runs_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.0.partition_point(|run| run.end <= range.start);
        let touching = self.0[first..].iter().take_while(move |run| run.start < range.end);
        let inside = touching.map(move |run| run.start.max(range.start)..run.end.min(range.end));
        inside.filter(|run| !run.is_empty())
    }

    /// The pages within `range`, counted from its start.
    pub fn part(&self, range: &Range<u64>) -> PageSet {
        PageSet(self.runs_in(range.clone()).map(|run| run.start - range.start..run.end - range.start).collect())
    }

    /// Removes the pages within `range`, and gives them, counted from its start.
    pub fn take_part(&mut self, range: &Range<u64>) -> PageSet {
        let part = self.part(range);
        if !part.is_empty() {
            let first = self.0.partition_point(|run| run.end <= range.start);
            let end = self.0.partition_point(|run| run.start < range.end);
            let before = self.0[first].start..range.start;
            let behind = range.end..self.0[end - 1].end;
            let rest = [before, behind].into_iter().filter(|run| !run.is_empty());
            self.0.splice(first..end, rest);
        }
        part
    }

    /// The set of the pages `by` further on.
    pub fn shifted(mut self, by: u64) -> PageSet {
        self.0.iter_mut().for_each(|run| *run = run.start + by..run.end + by);
        self
    }

    /// Number of pages.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Pages in either set.
    pub fn union(&self, other: &PageSet) -> PageSet {
        let mut union = PageSet(Vec::with_capacity(self.0.len() + other.0.len()));
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        loop {
            let next = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) if a.start <= b.start => left.next(),
                (_, Some(_)) => right.next(),
                (_, None) => left.next(),
            };
            match next {
                Some(range) => union.push(range.clone()),
                None => return union,
            }
        }
    }

    /// Pages in both sets.
    pub fn intersection(&self, other: &PageSet) -> PageSet {
        let mut both = PageSet::default();
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            both.push(a.start.max(b.start)..a.end.min(b.end).max(a.start.max(b.start)));
            if a.end <= b.end {
                left.next();
            } else {
                right.next();
            }
        }
        both
    }

    /// Pages in this set and not in `other`.
    pub fn difference(&self, other: &PageSet) -> PageSet {
        let mut rest = PageSet::default();
        let mut holes = other.0.iter().peekable();
        for range in &self.0 {
            let mut start = range.start;
            while holes.next_if(|hole| hole.end <= start).is_some() {}
            for hole in holes.clone().take_while(|hole| hole.start < range.end) {
                rest.push(start..hole.start.max(start));
                start = start.max(hole.end);
            }
            rest.push(start..range.end.max(start));
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn set(pages: &BTreeSet<u64>) -> PageSet {
        let mut set = PageSet::default();
        for &page in pages {
            set.push(page..page + 1);
        }
        set
    }

    #[test]
    fn the_operations_agree_with_sets_of_single_pages() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..500 {
            let a: BTreeSet<u64> = (0..random(30)).map(|_| random(40)).collect();
            let b: BTreeSet<u64> = (0..random(30)).map(|_| random(40)).collect();
            assert_eq!(set(&a).union(&set(&b)), set(&(&a | &b)));
            assert_eq!(set(&a).intersection(&set(&b)), set(&(&a & &b)));
            assert_eq!(set(&a).difference(&set(&b)), set(&(&a - &b)));
            assert_eq!(set(&a).len(), a.len() as u64);
            assert!((0..42).all(|page| set(&a).contains(page) == a.contains(&page)));
            assert_eq!(set(&a).shifted(7), set(&a.iter().map(|page| page + 7).collect()));
            let range = random(20)..random(40);
            let within: BTreeSet<u64> =
                a.iter().filter(|page| range.contains(page)).map(|page| page - range.start).collect();
            assert_eq!(set(&a).part(&range), set(&within), "{range:?} of {a:?}");
            let without: BTreeSet<u64> = a.iter().copied().filter(|page| !range.contains(page)).collect();
            let mut rest = set(&a);
            assert_eq!((rest.take_part(&range), rest), (set(&within), set(&without)), "{range:?} of {a:?}");
        }
    }
}
