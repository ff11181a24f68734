//! A leaf: up to 512 keys, kept without those that are zero.

use std::{
    ops::Range,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    Digest, PageKey,
    format::node::{self, LEAF_PAGES},
};

const PAGES: usize = LEAF_PAGES as usize;

/// The keys of one window of 512 pages.
#[derive(Clone, Default, Debug)]
pub(crate) struct Leaf {
    present: [u64; PAGES / 64],
    keys: Vec<PageKey>,
    /// The key of the stored form, and what it was made with; unset again by every change.
    node_key: OnceLock<(Digest, PageKey)>,
    known: KnownIn,
}

/// The generation of the index in which every page of the leaf was found; 0 is none.
#[derive(Default, Debug)]
struct KnownIn(AtomicU64);

impl Clone for KnownIn {
    /// A clone is made to be changed.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Leaf {
    fn eq(&self, other: &Self) -> bool {
        self.present == other.present && self.keys == other.keys
    }
}

impl Eq for Leaf {}

impl Leaf {
    /// The leaf of a stored node whose key by `digest` is `node_key`; positions are in order and keys not zero.
    pub fn of_children(children: &[(u16, PageKey)], digest: Digest, node_key: PageKey) -> Self {
        let mut leaf = Self { node_key: (digest, node_key).into(), ..Self::default() };
        for (page, key) in children {
            leaf.present[usize::from(*page) / 64] |= 1 << (page % 64);
            leaf.keys.push(*key);
        }
        leaf
    }

    fn has(&self, page: usize) -> bool {
        self.present[page / 64] >> (page % 64) & 1 == 1
    }

    /// Whether [`Leaf::note_known`] was called with this generation since the last change.
    pub fn is_known_in(&self, generation: u64) -> bool {
        self.known.0.load(Relaxed) == generation
    }

    /// Remembers that every page is in the store, for as long as the index stays in this generation.
    pub fn note_known(&self, generation: u64) {
        self.known.0.store(generation, Relaxed);
    }

    /// Undoes what is remembered of the leaf as it was.
    fn changed(&mut self) {
        self.node_key.take();
        self.known = KnownIn::default();
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
        self.changed();
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
        self.changed();
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

    /// The key of the stored form in a store of this digest. It is remembered for one digest: a list goes to one store.
    pub fn node_key(&self, digest: Digest) -> PageKey {
        let key = || digest.key_of_bytes(&self.encode());
        match self.node_key.get_or_init(|| (digest, key())) {
            (made_with, remembered) if *made_with == digest => *remembered,
            _ => key(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remembered_key_is_never_given_out_for_the_other_digest() {
        let mut leaf = Leaf::default();
        leaf.set(3, PageKey::from_bytes([5; 28]));
        let fresh = |digest: Digest| digest.key_of_bytes(&leaf.encode());
        for (first, second) in [(Digest::Sha1, Digest::Blake3), (Digest::Blake3, Digest::Sha1)] {
            let mut asked = leaf.clone();
            asked.node_key.take();
            assert_eq!([first, second, first].map(|digest| asked.node_key(digest)), [first, second, first].map(fresh));
        }
        let read = Leaf::of_children(&[(3, PageKey::from_bytes([5; 28]))], Digest::Blake3, fresh(Digest::Blake3));
        assert_eq!(read.node_key(Digest::Sha1), fresh(Digest::Sha1));
    }
}
