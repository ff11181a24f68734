//! A leaf: up to 512 keys, kept without those that are zero.
//!
//! The key of a page that has become zero keeps its place for a while: a page that was written to is taken out of a list
//! before its new key comes, and to move the keys behind it twice for each page would take longer than to hash the page.

use std::{
    ops::Range,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use crate::{
    Digest, PageKey,
    format::node::{self, LEAF_PAGES},
};

const PAGES: usize = LEAF_PAGES as usize;

/// One bit for each page.
type Bits = [u64; PAGES / 64];

/// The keys of one window of 512 pages.
#[derive(Clone, Default, Debug)]
pub(crate) struct Leaf {
    /// Which pages are not zero.
    present: Bits,
    /// Which pages have a place in `keys`: those, and some whose key there means nothing.
    placed: Bits,
    keys: Vec<PageKey>,
    /// The key of the stored form, and what it was made with; unset again by every change.
    node_key: OnceLock<(Digest, PageKey)>,
    known: Known,
}

/// Which pages of the leaf have been found in the store.
#[derive(Default, Debug)]
struct Known(Mutex<Found>);

#[derive(Clone, Copy, Default, Debug)]
struct Found {
    /// The generation of the index in which they were; 0 is none.
    generation: u64,
    pages: Bits,
}

impl Known {
    fn lock(&self) -> MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clone for Known {
    fn clone(&self) -> Self {
        Self(Mutex::new(*self.lock()))
    }
}

impl PartialEq for Leaf {
    fn eq(&self, other: &Self) -> bool {
        self.present == other.present && self.iter().eq(other.iter())
    }
}

impl Eq for Leaf {}

impl Leaf {
    /// The leaf of a stored node whose key by `digest` is `node_key`; positions are in order and keys not zero.
    pub fn of_children(children: &[(u16, PageKey)], digest: Digest, node_key: PageKey) -> Self {
        let keys = Vec::with_capacity(children.len());
        let mut leaf = Self { keys, node_key: (digest, node_key).into(), ..Self::default() };
        for (page, key) in children {
            put(&mut leaf.present, usize::from(*page));
            leaf.keys.push(*key);
        }
        leaf.placed = leaf.present;
        leaf
    }

    /// The pages that are not known to be in the store in this generation of the index, and their keys.
    pub fn unknown_in(&self, generation: u64) -> Vec<(usize, PageKey)> {
        let found = *self.known.lock();
        let known = if found.generation == generation { found.pages } else { Default::default() };
        if (0..PAGES / 64).all(|word| self.present[word] & !known[word] == 0) {
            return Vec::new();
        }
        self.iter().filter(|(page, _)| !is_in(&known, *page)).collect()
    }

    /// Remembers that these pages are in the store, for as long as the index stays in this generation.
    pub fn note_known(&self, generation: u64, pages: impl IntoIterator<Item = usize>) {
        let mut found = self.known.lock();
        if found.generation != generation {
            *found = Found { generation, ..Found::default() };
        }
        pages.into_iter().for_each(|page| put(&mut found.pages, page));
    }

    /// Undoes what is remembered of these pages, and of the leaf as it was.
    fn changed(&mut self, pages: Range<usize>) {
        self.node_key.take();
        let found = self.known.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        pages.for_each(|page| take(&mut found.pages, page));
    }

    /// How many keys come before that of `page`.
    fn rank(&self, page: usize) -> usize {
        let whole: u32 = self.placed[..page / 64].iter().map(|word| word.count_ones()).sum();
        let below = (1u64 << (page % 64)) - 1;
        (whole + (self.placed[page / 64] & below).count_ones()) as usize
    }

    pub fn get(&self, page: usize) -> PageKey {
        if is_in(&self.present, page) { self.keys[self.rank(page)] } else { PageKey::ZERO }
    }

    pub fn set(&mut self, page: usize, key: PageKey) {
        self.set_run(page, &[key]);
    }

    pub fn set_run(&mut self, first: usize, keys: &[PageKey]) {
        let run = first..first + keys.len();
        let placed = run.clone().filter(|page| is_in(&self.placed, *page)).count();
        let at = self.rank(first);
        if placed == keys.len() {
            self.keys[at..at + placed].copy_from_slice(keys);
        } else {
            self.keys.splice(at..at + placed, keys.iter().copied());
            run.clone().for_each(|page| put(&mut self.placed, page));
        }
        for (page, key) in run.clone().zip(keys) {
            if key.is_zero() { take(&mut self.present, page) } else { put(&mut self.present, page) }
        }
        self.changed(run);
    }

    pub fn clear_run(&mut self, pages: Range<usize>) {
        pages.clone().for_each(|page| take(&mut self.present, page));
        self.changed(pages);
    }

    /// Gives back the places of keys that mean nothing, when they are many.
    pub fn shrink(&mut self) {
        if self.keys.len() > self.page_count() * 3 / 2 {
            let keys: Vec<PageKey> = self.iter().map(|(_, key)| key).collect();
            (self.keys, self.placed) = (keys, self.present);
        }
    }

    pub fn page_count(&self) -> usize {
        self.present.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, PageKey)> {
        let placed = (0..PAGES).filter(|page| is_in(&self.placed, *page));
        placed.zip(self.keys.iter().copied()).filter(|(page, _)| is_in(&self.present, *page))
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

fn is_in(bits: &Bits, page: usize) -> bool {
    bits[page / 64] >> (page % 64) & 1 == 1
}

fn put(bits: &mut Bits, page: usize) {
    bits[page / 64] |= 1 << (page % 64);
}

fn take(bits: &mut Bits, page: usize) {
    bits[page / 64] &= !(1 << (page % 64));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_a_page_is_forgotten_when_it_changes_or_the_index_does() {
        let key = |n: u8| PageKey::from_bytes([n; 28]);
        let mut leaf = Leaf::default();
        leaf.set_run(60, &[key(1), PageKey::ZERO, key(2), key(3), key(4), key(5)]);
        let unknown =
            |leaf: &Leaf, generation| leaf.unknown_in(generation).iter().map(|(page, _)| *page).collect::<Vec<_>>();
        assert_eq!(unknown(&leaf, 7), [60, 62, 63, 64, 65]);
        leaf.note_known(7, [60, 62, 64, 65]);
        assert_eq!(leaf.unknown_in(7), [(63, key(3))]);
        assert_eq!(unknown(&leaf, 8), [60, 62, 63, 64, 65], "nothing is known in another generation");
        let mut other = leaf.clone();
        other.set(65, key(9));
        other.set_run(61, &[key(8), key(2)]);
        assert_eq!(unknown(&other, 7), [61, 62, 63, 65], "a page that is put again counts as new");
        assert_eq!(unknown(&leaf, 7), [63], "the leaf that it was cloned from stays as it was");
        other.note_known(8, [61]);
        assert_eq!(unknown(&other, 8), [60, 62, 63, 64, 65], "a new generation begins with nothing");
        other.clear_run(60..66);
        other.set(60, key(1));
        assert_eq!(unknown(&other, 8), [60]);
    }

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
