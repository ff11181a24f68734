//! Marks on places in packs: a bit for each page or node, so that the pages of a terabyte take 32 MiB.
//!
//! The packs of an index keep their positions, so a mark stays true while the index learns more.

use std::collections::HashMap;

use crate::key_table::Place;

/// A set of places, of pages or of nodes.
#[derive(Default)]
pub(crate) struct Marks(HashMap<u32, Vec<u64>>);

impl Marks {
    pub fn contains(&self, place: Place) -> bool {
        let (word, bit) = word_and_bit(place.item);
        let bits = self.0.get(&place.pack).and_then(|words| words.get(word));
        bits.is_some_and(|bits| bits & bit != 0)
    }

    pub fn insert(&mut self, place: Place) {
        let (word, bit) = word_and_bit(place.item);
        let words = self.0.entry(place.pack).or_default();
        words.resize(words.len().max(word + 1), 0);
        words[word] |= bit;
    }

    /// How many places in a pack are marked.
    pub fn count(&self, pack: u32) -> usize {
        self.0.get(&pack).map_or(0, |words| words.iter().map(|bits| bits.count_ones() as usize).sum())
    }

    /// Takes the marks of a pack away.
    pub fn clear(&mut self, pack: u32) {
        self.0.remove(&pack);
    }
}

fn word_and_bit(item: u32) -> (usize, u64) {
    (item as usize / 64, 1 << (item % 64))
}
