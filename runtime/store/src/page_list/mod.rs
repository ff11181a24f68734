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

    pub(crate) fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        self.leaves.values().map(Arc::as_ref)
    }

    /// Changes the leaf of a window, which is made when it is not there, and dropped when it is empty afterwards.
    fn change(&mut self, window: u64, change: impl FnOnce(&mut Leaf)) {
        let leaf = self.leaves.entry(window).or_default();
        change(Arc::make_mut(leaf));
        if leaf.page_count() == 0 {
            self.leaves.remove(&window);
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

    fn key(n: u64) -> PageKey {
        PageKey::of_bytes(&n.to_le_bytes())
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
