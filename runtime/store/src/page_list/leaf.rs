//! A leaf: up to 512 keys, kept without those that are zero.

use std::{ops::Range, sync::OnceLock};

use crate::{
    PageKey,
    format::node::{self, LEAF_PAGES},
};

const PAGES: usize = LEAF_PAGES as usize;

/// The keys of one window of 512 pages.
#[derive(Clone, Default, Debug)]
pub(crate) struct Leaf {
    present: [u64; PAGES / 64],
    keys: Vec<PageKey>,
    /// The key of the stored form; unset again by every change.
    node_key: OnceLock<PageKey>,
}

impl PartialEq for Leaf {
    fn eq(&self, other: &Self) -> bool {
        self.present == other.present && self.keys == other.keys
    }
}

impl Eq for Leaf {}

impl Leaf {
    /// The leaf of a stored node whose key is `node_key`; positions are in order and keys not zero.
    pub fn of_children(children: &[(u16, PageKey)], node_key: PageKey) -> Self {
        let mut leaf = Self { node_key: node_key.into(), ..Self::default() };
        for (page, key) in children {
            leaf.present[usize::from(*page) / 64] |= 1 << (page % 64);
            leaf.keys.push(*key);
        }
        leaf
    }

    fn has(&self, page: usize) -> bool {
        self.present[page / 64] >> (page % 64) & 1 == 1
    }

    /// How many keys come before that of `page`.
    fn rank(&self, page: usize) -> usize {
        let whole: u32 = self.present[..page / 64].iter().map(|word| word.count_ones()).sum();
        let below = (1u64 << (page % 64)) - 1;
        (whole + (self.present[page / 64] & below).count_ones()) as usize
    }

    pub fn get(&self, page: usize) -> PageKey {
        if self.has(page) { self.keys[self.rank(page)] } else { PageKey::ZERO }
    }

    pub fn set(&mut self, page: usize, key: PageKey) {
        let rank = self.rank(page);
        match (self.has(page), key.is_zero()) {
            (true, false) => self.keys[rank] = key,
            (false, false) => self.keys.insert(rank, key),
            (true, true) => drop(self.keys.remove(rank)),
            (false, true) => return,
        }
        let bit = 1 << (page % 64);
        if key.is_zero() {
            self.present[page / 64] &= !bit;
        } else {
            self.present[page / 64] |= bit;
        }
        self.node_key.take();
    }

    pub fn set_run(&mut self, first: usize, keys: &[PageKey]) {
        self.clear_run(first..first + keys.len());
        let at = self.rank(first);
        self.keys.splice(at..at, keys.iter().copied().filter(|key| !key.is_zero()));
        for (page, _) in (first..).zip(keys).filter(|(_, key)| !key.is_zero()) {
            self.present[page / 64] |= 1 << (page % 64);
        }
    }

    pub fn clear_run(&mut self, pages: Range<usize>) {
        let end = if pages.end == PAGES { self.keys.len() } else { self.rank(pages.end) };
        self.keys.drain(self.rank(pages.start)..end);
        for page in pages {
            self.present[page / 64] &= !(1 << (page % 64));
        }
        self.node_key.take();
    }

    pub fn page_count(&self) -> usize {
        self.keys.len()
    }

    pub fn keys(&self) -> &[PageKey] {
        &self.keys
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, PageKey)> {
        (0..PAGES).filter(|page| self.has(*page)).zip(self.keys.iter().copied())
    }

    /// The stored form.
    pub fn encode(&self) -> Vec<u8> {
        node::encode(0, self.iter().map(|(page, key)| (page as u16, key)))
    }

    /// Whether both remember the same stored form. Two that are equal and do not remember may say no.
    pub fn is_known_to_equal(&self, other: &Self) -> bool {
        self.node_key.get().is_some() && self.node_key.get() == other.node_key.get()
    }

    /// The key of the stored form.
    pub fn node_key(&self) -> PageKey {
        *self.node_key.get_or_init(|| PageKey::of_bytes(&self.encode()))
    }
}
