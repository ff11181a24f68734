//! Matching the regions of two images, and counting what became of their pages.
//!
//! Every page of either image is counted once, whatever the kernel or the program has done to the mappings: what
//! both cover is compared at equal addresses, what one alone covers was added or is gone. A region of A that does not
//! lie where one of B does is accounted for in the first of B that it touches.

use std::ops::Range;

use ckpt_store::{PAGE_BYTES, PageKey, PageList, PageListRef};
use serde::Serialize;

use crate::commands::show::view::{kind, protection};
use crate::error::Result;
use crate::image::Region;

/// Reads a page list from the store.
pub type ReadList<'a> = dyn Fn(&PageListRef) -> Result<PageList> + 'a;

/// A region of B with what it covers of A, or a region of A where B has nothing.
#[derive(Debug)]
pub struct RegionDiff<'a> {
    /// The regions of A that touch it, ascending.
    pub before: &'a [Region],
    /// The region of B.
    pub after: Option<&'a Region>,
    /// What became of the pages.
    pub pages: Pages,
    /// False where content is in differences, which are not looked into: then no pages are counted.
    pub is_compared: bool,
}

/// What became of pages, in numbers of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Other content.
    pub changed: u64,
    /// Content where all was zero, or nothing was mapped.
    pub added: u64,
    /// Zero, or not mapped, where there was content.
    pub gone: u64,
}

/// What became of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Same,
    Changed,
    NotCompared,
    Resized,
    OnlyInA,
    OnlyInB,
}

impl Pages {
    fn count(&mut self, before: PageKey, after: PageKey) {
        match (before.is_zero(), after.is_zero()) {
            (true, _) => self.added += 1,
            (_, true) => self.gone += 1,
            _ => self.changed += 1,
        }
    }
}

impl RegionDiff<'_> {
    /// The first address, in B or, failing that, in A.
    pub fn address(&self) -> u64 {
        self.after.or(self.before.first()).map_or(0, |region| region.address)
    }

    /// What became of it.
    pub fn state(&self) -> State {
        match (self.before, self.after) {
            (_, None) => State::OnlyInA,
            ([], Some(_)) => State::OnlyInB,
            ([before], Some(after)) if range(before) == range(after) => {
                let is_same = self.pages == Pages::default() && looks_of(before) == looks_of(after);
                match is_same {
                    true if self.is_compared => State::Same,
                    true => State::NotCompared,
                    false => State::Changed,
                }
            }
            _ => State::Resized,
        }
    }
}

/// Compares the regions of image A with those of image B; both ascend. The result does, too. Regions in differences are the
/// same only where both images have the same ones.
pub fn compare<'a>(
    a: &'a [Region],
    b: &'a [Region],
    same_differences: bool,
    read: &ReadList<'_>,
) -> Result<Vec<RegionDiff<'a>>> {
    // How many pages of each region of A lie where B has a region.
    let mut covered = vec![0; a.len()];
    let mut diffs = Vec::with_capacity(b.len());
    for after in b {
        let touching = touching(a, after);
        let before = &a[touching.clone()];
        let is_finer = after.in_differences || before.iter().any(|region| region.in_differences);
        let pages = match is_finer {
            true => {
                covered[touching].iter_mut().zip(before).for_each(|(covered, it)| *covered = it.pages.page_count());
                Pages::default()
            }
            false => compare_region(before, after, &mut covered[touching], read)?,
        };
        diffs.push(RegionDiff { before, after: Some(after), pages, is_compared: !is_finer || same_differences });
    }
    for (index, before) in a.iter().enumerate() {
        let gone = before.pages.page_count().saturating_sub(covered[index]);
        match diffs.get_mut(touching(b, before).start).filter(|_| !touching(b, before).is_empty()) {
            Some(first) => first.pages.gone += gone,
            None => {
                let pages = Pages { gone, ..Pages::default() };
                diffs.push(RegionDiff { before: &a[index..=index], after: None, pages, is_compared: true });
            }
        }
    }
    diffs.sort_by_key(RegionDiff::address);
    Ok(diffs)
}

/// Compares what `after` covers, and says for each of `before` how many of its pages that were.
fn compare_region(before: &[Region], after: &Region, covered: &mut [u64], read: &ReadList<'_>) -> Result<Pages> {
    let mut pages = Pages::default();
    match before {
        [] => {
            pages.added = after.pages.page_count();
            return Ok(pages);
        }
        [only] if range(only) == range(after) && only.pages == after.pages => {
            covered[0] = only.pages.page_count();
            return Ok(pages);
        }
        _ => {}
    }
    let new = read(&after.pages)?;
    pages.added = new.page_count();
    for (before, covered) in before.iter().zip(covered) {
        let shared = range(before).start.max(range(after).start)..range(before).end.min(range(after).end);
        let new = part(&new, after, &shared);
        let old = part(&read(&before.pages)?, before, &shared);
        *covered += old.page_count();
        // Counted one by one now, where something was there before.
        pages.added -= new.page_count();
        new.changed_from(&old).for_each(|(_, old, new)| pages.count(old, new));
    }
    Ok(pages)
}

/// The pages of `region`'s list in a range of addresses.
fn part(list: &PageList, region: &Region, addresses: &Range<u64>) -> PageList {
    const PAGE: u64 = PAGE_BYTES as u64;
    list.slice((addresses.start - region.address) / PAGE, addresses.end.saturating_sub(addresses.start) / PAGE)
}

fn range(region: &Region) -> Range<u64> {
    region.address..region.address.saturating_add(region.bytes)
}

/// Which of `regions` have addresses in common with `with`.
fn touching(regions: &[Region], with: &Region) -> Range<usize> {
    let first = regions.partition_point(|region| range(region).end <= with.address);
    let end = regions.partition_point(|region| region.address < range(with).end);
    first..end.max(first)
}

/// What `ckpt show` says of a region besides its place.
fn looks_of(region: &Region) -> (&'static str, &[u8], String) {
    (kind(region), &region.name, protection(region))
}

#[cfg(test)]
mod tests {
    use ckpt_store::{Attempt, AttemptStart, Store};

    use super::*;
    use crate::image::{Advice, Backing};

    const PAGE: u64 = PAGE_BYTES as u64;

    /// A store, and the attempt that regions are written in.
    struct Lab {
        _dir: tempfile::TempDir,
        store: Store,
        attempt: Attempt,
    }

    impl Lab {
        fn new() -> Lab {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::create_or_open(dir.path()).unwrap();
            let (job, name, trigger) = ("job".into(), "lab".into(), "command".into());
            let start = AttemptStart { job, name, trigger, processes: 1, ..Default::default() };
            let attempt = store.begin(start).unwrap();
            Lab { _dir: dir, store, attempt }
        }

        /// A region at page `first` of the address space; each fill is a page, 0 one of zeros.
        fn region(&mut self, first: u64, fills: &[u8]) -> Region {
            let bytes: Vec<u8> = fills.iter().flat_map(|fill| [*fill; PAGE_BYTES]).collect();
            let mut list = PageList::new();
            list.set_run(0, &self.attempt.write_pages(&bytes).unwrap());
            Region {
                address: first * PAGE,
                bytes: fills.len() as u64 * PAGE,
                protection: libc::PROT_READ,
                backing: Backing::Anonymous,
                advice: Advice::default(),
                name: Vec::new(),
                pages: self.attempt.write_page_list(&list).unwrap(),
                own_pages: Vec::new(),
                follows: None,
                guards: Vec::new(),
                pending: None,
                in_differences: false,
            }
        }

        /// Address in pages, state, and pages changed, added and gone of each region.
        fn compare(self, a: &[Region], b: &[Region]) -> Vec<(u64, State, [u64; 3])> {
            let end = ckpt_store::AttemptEnd { processes: 1, ..Default::default() };
            self.attempt.seal(end, b"").unwrap();
            let diffs = compare(a, b, false, &|list| Ok(self.store.page_list(list)?)).unwrap();
            let row = |diff: &RegionDiff<'_>| {
                let Pages { changed, added, gone } = diff.pages;
                (diff.address() / PAGE, diff.state(), [changed, added, gone])
            };
            diffs.iter().map(row).collect()
        }
    }

    #[test]
    fn pages_of_regions_in_place_are_changed_added_or_gone() {
        let mut lab = Lab::new();
        let a = [lab.region(1, &[1, 2, 0, 4, 5]), lab.region(10, &[7, 8])];
        let b = [lab.region(1, &[1, 9, 3, 0, 6]), lab.region(10, &[7, 8])];
        assert_eq!(lab.compare(&a, &b), [(1, State::Changed, [2, 1, 1]), (10, State::Same, [0, 0, 0])]);
    }

    #[test]
    fn a_region_of_one_checkpoint_alone_counts_with_all_that_is_not_zero() {
        let mut lab = Lab::new();
        let (a, b) = ([lab.region(1, &[1, 0, 2])], [lab.region(4, &[0, 3])]);
        assert_eq!(lab.compare(&a, &b), [(1, State::OnlyInA, [0, 0, 2]), (4, State::OnlyInB, [0, 1, 0])]);
    }

    #[test]
    fn a_region_that_grew_or_shrank_at_either_end_is_compared_at_equal_addresses() {
        let mut lab = Lab::new();
        let a = [lab.region(1, &[1, 2]), lab.region(20, &[5, 6, 7, 8])];
        let b = [lab.region(1, &[1, 3, 4]), lab.region(18, &[9, 0, 5, 6, 1])];
        assert_eq!(lab.compare(&a, &b), [(1, State::Resized, [1, 1, 0]), (18, State::Resized, [1, 1, 1])]);
    }

    #[test]
    fn regions_that_were_split_or_joined_lose_no_page_and_count_none_twice() {
        let mut lab = Lab::new();
        let a = [lab.region(1, &[1, 2, 3, 4]), lab.region(10, &[5]), lab.region(11, &[6])];
        let b = [lab.region(1, &[1]), lab.region(3, &[3, 9]), lab.region(10, &[5, 7])];
        let expected =
            [(1, State::Resized, [0, 0, 1]), (3, State::Resized, [1, 0, 0]), (10, State::Resized, [1, 0, 0])];
        assert_eq!(lab.compare(&a, &b), expected);
    }

    #[test]
    fn another_protection_or_another_mapping_is_a_change_without_pages() {
        let mut lab = Lab::new();
        let a = [lab.region(1, &[1]), lab.region(3, &[2])];
        let mut b = a.clone();
        b[0].protection |= libc::PROT_WRITE;
        b[1].name = b"[heap]".to_vec();
        assert_eq!(lab.compare(&a, &b), [(1, State::Changed, [0; 3]), (3, State::Changed, [0; 3])]);
    }

    #[test]
    fn regions_in_differences_are_the_same_only_with_the_same_differences() {
        let mut lab = Lab::new();
        let finer = |mut region: Region| {
            region.in_differences = true;
            region
        };
        let (pages, empty) = (lab.region(1, &[1, 2]), lab.region(1, &[0, 0]));
        let read = |_: &PageListRef| panic!("it was read");
        for (before, after, same_differences, expected) in [
            (finer(empty.clone()), finer(empty.clone()), true, State::Same),
            (finer(empty.clone()), finer(empty.clone()), false, State::NotCompared),
            (pages, finer(empty), false, State::NotCompared),
        ] {
            let (a, b) = ([before], [after]);
            let diffs = compare(&a, &b, same_differences, &read).unwrap();
            assert_eq!((diffs[0].state(), diffs[0].pages), (expected, Pages::default()));
        }
    }

    #[test]
    fn lists_with_the_same_root_are_not_read() {
        let mut lab = Lab::new();
        let (a, b) = ([lab.region(1, &[1, 2])], [lab.region(1, &[1, 2])]);
        let diffs = compare(&a, &b, false, &|_| panic!("it was read")).unwrap();
        assert_eq!(diffs[0].state(), State::Same);
    }
}
