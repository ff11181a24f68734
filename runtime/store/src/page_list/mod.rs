//! Page lists: which page lies where in a region.
//!
//! In memory a list is a map from windows of 512 pages to leaves; what is absent is zero, so a region of 128 GiB of
//! reserved nothing is an empty map. Leaves are shared between clones until one of them changes, and remember the key
//! of their stored form: writing a list whose leaves have not changed hashes nothing.

mod leaf;
pub(crate) mod stored;

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use serde::{Deserialize, Serialize};

pub(crate) use leaf::Leaf;

use crate::{PageKey, format::node::LEAF_PAGES};

/// A sparse list of page keys by the number of the page in its region. A clone shares everything until it is changed.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct PageList {
    /// By page number / 512; no leaf is empty.
    leaves: BTreeMap<u64, Arc<Leaf>>,
}

/// A stored page list: its root. Small, for the state of a manifest.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash)]
pub struct PageListRef {
    pub(crate) root: PageKey,
    pub(crate) level: u8,
    pub(crate) pages: u64,
}

impl PageListRef {
    /// A list without pages that no attempt has written: for a record that gets its list later.
    pub const EMPTY: PageListRef = PageListRef { root: PageKey::ZERO, level: 0, pages: 0 };

    /// Pages in the list that are not zero.
    pub fn page_count(&self) -> u64 {
        self.pages
    }
}

impl PageList {
    /// A list of zeros.
    pub fn new() -> Self {
        Self::default()
    }

    /// The page at `page`.
    pub fn get(&self, page: u64) -> PageKey {
        self.leaves.get(&(page / LEAF_PAGES)).map_or(PageKey::ZERO, |leaf| leaf.get((page % LEAF_PAGES) as usize))
    }

    /// Puts a page at `page`.
    pub fn set(&mut self, page: u64, key: PageKey) {
        self.change(page / LEAF_PAGES, |leaf| leaf.set((page % LEAF_PAGES) as usize, key));
    }

    /// Puts pages one after another, from `first` on.
    pub fn set_run(&mut self, first: u64, keys: &[PageKey]) {
        let mut rest = keys;
        for (window, inside) in windows(first, keys.len() as u64) {
            let (head, tail) = rest.split_at(inside.len());
            self.change(window, |leaf| leaf.set_run(inside.start, head));
            rest = tail;
        }
    }

    /// Makes `pages` pages from `first` on zero.
    pub fn clear_run(&mut self, first: u64, pages: u64) {
        let Some(last) = pages.checked_sub(1).map(|more| first.saturating_add(more)) else { return };
        let touched: Vec<u64> =
            self.leaves.range(first / LEAF_PAGES..=last / LEAF_PAGES).map(|(window, _)| *window).collect();
        for window in touched {
            let start = first.saturating_sub(window * LEAF_PAGES) as usize;
            let end = (last - window * LEAF_PAGES).min(LEAF_PAGES - 1) as usize + 1;
            self.change(window, |leaf| leaf.clear_run(start..end));
        }
    }

    /// The pages that are not zero, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, PageKey)> {
        let leaves = self.leaves.iter();
        leaves.flat_map(|(window, leaf)| leaf.iter().map(move |(page, key)| (window * LEAF_PAGES + page as u64, key)))
    }

    /// The pages from `first` on, zeros among them.
    pub fn keys_of(&self, pages: Range<u64>) -> Vec<PageKey> {
        let mut keys = vec![PageKey::ZERO; (pages.end - pages.start) as usize];
        for (window, leaf) in self.leaves.range(pages.start / LEAF_PAGES..pages.end.div_ceil(LEAF_PAGES)) {
            let here = leaf.iter().map(|(page, key)| (window * LEAF_PAGES + page as u64, key));
            here.filter(|(page, _)| pages.contains(page)).for_each(|(page, key)| {
                keys[(page - pages.start) as usize] = key;
            });
        }
        keys
    }

    /// How many pages are not zero.
    pub fn page_count(&self) -> u64 {
        self.leaves.values().map(|leaf| leaf.page_count() as u64).sum()
    }

    /// The `pages` pages from `first` on as a list of their own, which begins at 0. Whole windows stay shared when
    /// `first` is a multiple of 512.
    pub fn slice(&self, first: u64, pages: u64) -> PageList {
        let mut slice = PageList::new();
        let Some(last) = pages.checked_sub(1).map(|more| first.saturating_add(more)) else { return slice };
        let found = self.leaves.range(first / LEAF_PAGES..=last / LEAF_PAGES);
        if first.is_multiple_of(LEAF_PAGES) {
            slice.leaves = found.map(|(window, leaf)| (window - first / LEAF_PAGES, leaf.clone())).collect();
            slice.clear_run(pages, u64::MAX);
            return slice;
        }
        for (window, leaf) in found {
            let here = leaf.iter().map(|(page, key)| (window * LEAF_PAGES + page as u64, key));
            for (page, key) in here.filter(|(page, _)| (first..=last).contains(page)) {
                slice.set(page - first, key);
            }
        }
        slice
    }

    /// The pages that are others than in `before`, in order: number, key in `before`, key here. Leaves that are known to
    /// be equal, because the two lists share them or were read from equal nodes, are passed by without a look inside.
    pub fn changed_from<'a>(&'a self, before: &'a PageList) -> impl Iterator<Item = (u64, PageKey, PageKey)> + 'a {
        let (mut before, mut after) = (before.leaves.iter().peekable(), self.leaves.iter().peekable());
        let windows = std::iter::from_fn(move || {
            let next = [before.peek(), after.peek()].into_iter().flatten().map(|(window, _)| **window).min()?;
            let old = before.next_if(|(window, _)| **window == next).map(|(_, leaf)| leaf);
            let new = after.next_if(|(window, _)| **window == next).map(|(_, leaf)| leaf);
            Some((next, old, new))
        });
        let may_differ = |old: Option<&Arc<Leaf>>, new: Option<&Arc<Leaf>>| {
            !old.zip(new).is_some_and(|(old, new)| Arc::ptr_eq(old, new) || old.is_known_to_equal(new))
        };
        windows.filter(move |(_, old, new)| may_differ(*old, *new)).flat_map(|(window, old, new)| {
            let key = |leaf: Option<&'a Arc<Leaf>>, page| leaf.map_or(PageKey::ZERO, |leaf| leaf.get(page));
            let pages = (0..LEAF_PAGES as usize).map(move |page| (page, key(old, page), key(new, page)));
            let changed = pages.filter(|(_, old, new)| old != new);
            changed.map(move |(page, old, new)| (window * LEAF_PAGES + page as u64, old, new))
        })
    }

    pub(crate) fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        self.leaves.values().map(Arc::as_ref)
    }

    /// Changes the leaf of a window, which is made when it is not there, and dropped when it is empty afterwards.
    fn change(&mut self, window: u64, change: impl FnOnce(&mut Leaf)) {
        let leaf = self.leaves.entry(window).or_default();
        let changed = Arc::make_mut(leaf);
        change(changed);
        if changed.page_count() == 0 {
            self.leaves.remove(&window);
        } else {
            changed.shrink();
        }
    }
}

/// The windows that `pages` pages from `first` on touch, and which of their pages.
fn windows(first: u64, pages: u64) -> impl Iterator<Item = (u64, Range<usize>)> {
    let (mut page, mut left) = (first, pages);
    std::iter::from_fn(move || {
        let start = page % LEAF_PAGES;
        let count = left.min(LEAF_PAGES - start);
        let window = (count > 0).then_some((page / LEAF_PAGES, start as usize..(start + count) as usize));
        page = page.wrapping_add(count);
        left -= count;
        window
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Digest;

    fn key(n: u64) -> PageKey {
        Digest::Sha1.key_of_bytes(&n.to_le_bytes())
    }

    #[test]
    fn a_slice_begins_at_zero_wherever_it_is_cut() {
        let mut list = PageList::new();
        for page in [0, 511, 512, 1000, 5000, 1 << 40] {
            list.set(page, key(page));
        }
        for (first, pages) in [(0, 512), (512, 600), (511, 2), (600, 1 << 41), (512, 0), (1 << 40, 1)] {
            let slice = list.slice(first, pages);
            let expected: Vec<_> = list
                .iter()
                .filter(|(page, _)| (first..first + pages).contains(page))
                .map(|(page, key)| (page - first, key))
                .collect();
            assert_eq!(slice.iter().collect::<Vec<_>>(), expected, "{first} {pages}");
        }
    }

    /// What `changed_from` must give, from plain maps.
    fn changes(before: &PageList, after: &PageList) -> Vec<(u64, PageKey, PageKey)> {
        let (old, new): (BTreeMap<_, _>, BTreeMap<_, _>) = (before.iter().collect(), after.iter().collect());
        let pages: std::collections::BTreeSet<u64> = old.keys().chain(new.keys()).copied().collect();
        let key = |map: &BTreeMap<u64, PageKey>, page: &u64| map.get(page).copied().unwrap_or(PageKey::ZERO);
        let all = pages.into_iter().map(|page| (page, key(&old, &page), key(&new, &page)));
        all.filter(|(_, old, new)| old != new).collect()
    }

    #[test]
    fn the_changes_are_those_of_two_plain_maps() {
        let mut before = PageList::new();
        before.set_run(0, &[key(1); 2000]);
        before.set_run(5000, &[key(2); 10]);
        before.set(1 << 30, key(3));
        let mut after = before.clone();
        after.set(700, key(9));
        after.clear_run(1023, 2);
        after.set(9999, key(4));
        after.clear_run(1 << 30, 1);
        after.set(u64::MAX, key(5));
        // Written anew with what was there: another leaf, the same pages.
        after.set(5000, key(6));
        after.set(5000, key(2));
        let found: Vec<_> = after.changed_from(&before).collect();
        assert_eq!(found, changes(&before, &after));
        assert_eq!(found.len(), 6);
        assert_eq!(found[0], (700, key(1), key(9)));
        assert_eq!(before.changed_from(&after).collect::<Vec<_>>(), changes(&after, &before), "the way back");
        let nothing = PageList::new();
        assert_eq!(before.changed_from(&nothing).count(), 2011);
        assert_eq!(nothing.changed_from(&before).count(), 2011);
        assert_eq!(before.changed_from(&before).count(), 0);
    }

    #[test]
    fn leaves_that_are_shared_or_of_equal_nodes_are_not_looked_into() {
        // Leaves that lie about their nodes: whoever looks inside finds a difference.
        let leaf = |fill, node_key| Arc::new(Leaf::of_children(&[(7, key(fill))], Digest::Sha1, node_key));
        let list = |leaf: &Arc<Leaf>| PageList { leaves: BTreeMap::from([(3, leaf.clone())]) };
        let (one, twin, other) = (leaf(1, key(100)), leaf(2, key(100)), leaf(2, key(200)));
        assert_eq!(list(&one).changed_from(&list(&twin)).count(), 0);
        let found: Vec<_> = list(&other).changed_from(&list(&one)).collect();
        assert_eq!(found, [(3 * LEAF_PAGES + 7, key(1), key(2))]);
    }

    #[test]
    fn the_keys_of_a_range_have_zeros_between_them() {
        let mut list = PageList::new();
        list.set_run(510, &[key(1), key(2), key(3)]);
        list.set(1500, key(4));
        for range in [0..2000, 510..513, 511..512, 513..1500, 600..700, 1024..1501, 5..5] {
            let each: Vec<PageKey> = range.clone().map(|page| list.get(page)).collect();
            assert_eq!(list.keys_of(range.clone()), each, "{range:?}");
        }
    }

    #[test]
    fn the_last_page_number_of_all_is_a_page_like_others() {
        let mut list = PageList::new();
        list.set(u64::MAX, key(1));
        assert_eq!(list.get(u64::MAX), key(1));
        list.clear_run(u64::MAX, 1);
        assert_eq!(list, PageList::new());
    }

    #[test]
    fn a_clone_does_not_see_later_changes() {
        let mut list = PageList::new();
        list.set_run(500, &[key(1); 100]);
        let before = list.clone();
        list.clear_run(0, 550);
        assert_eq!((before.page_count(), list.page_count()), (100, 50));
        assert_eq!((before.get(520), list.get(520), list.get(550)), (key(1), PageKey::ZERO, key(1)));
    }
}
