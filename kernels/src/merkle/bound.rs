//! How much an engine may hold between checkpoints, and what it does without when that is too little.
//!
//! It holds the digests of all chunks, and a history that grows with everything new. A method is used only if all that it
//! could add fits, so the bound is never passed; else one that adds less is: Tree, then List, then Basic, which adds nothing
//! to the history. When the digests of the chunks find no room beside the history, the history is forgotten: without it
//! chunks are stored that were stored before, but without digests everything is, and with every checkpoint.

use super::{
    Method,
    forest::{Forest, Tree},
    found::Previous,
    history::History,
};

/// Why a checkpoint was not taken by the method asked for, or without the history.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{asked:?} could need {needed} bytes for digests, and {allowed} are allowed; allow more, or use longer chunks \
     ({forgotten} digests of before were forgotten)"
)]
pub struct Shortage {
    /// The method asked for.
    pub asked: Method,
    /// Bytes that it could need.
    pub needed: u64,
    /// Bytes that may be held.
    pub allowed: u64,
    /// How many digests of earlier checkpoints were forgotten to make room. What they are of may be stored again.
    pub forgotten: usize,
}

/// What the methods need, and how much there is.
pub(super) struct Room<'a> {
    /// The method asked for.
    pub asked: Method,
    pub allowed: u64,
    pub forest: &'a Forest,
    /// Digests in the history.
    pub seen: usize,
}

impl Room<'_> {
    /// The best method, up to the one asked for, that is sure to find room when so many chunks are not as they were.
    pub fn best(&self, found: usize) -> Method {
        let better_first = Method::EVERY.into_iter().rev().filter(|method| *method <= self.asked);
        better_first.into_iter().find(|method| self.holds(*method, found)).unwrap_or(Method::Full)
    }

    /// Whether the digests of the chunks would find room, were it not for the history.
    pub fn is_taken_by_history(&self) -> bool {
        self.best(0) == Method::Full && Self { seen: 0, ..*self }.best(0) != Method::Full
    }

    /// What is to be said when the method is not the one asked for, or the history was forgotten.
    pub fn shortage(&self, found: usize, forgotten: usize) -> Option<Shortage> {
        let is_short = self.best(found) != self.asked || forgotten > 0;
        let needed = Self { seen: self.seen + forgotten, ..*self }.bytes(self.asked, found);
        is_short.then_some(Shortage { asked: self.asked, needed, allowed: self.allowed, forgotten })
    }

    /// Whether there is room for all that a method could add when so many chunks are not as they were.
    pub fn holds(&self, method: Method, found: usize) -> bool {
        self.bytes(method, found) <= self.allowed
    }

    /// Bytes held afterwards, at most.
    fn bytes(&self, method: Method, found: usize) -> u64 {
        let entries = match method {
            Method::Full | Method::Basic => 0,
            Method::List => found,
            // Over n nodes side by side are at most n others, and on each level one that is over a single one.
            Method::Tree => 2 * found + self.forest.trees.iter().map(Tree::level_count).sum::<usize>(),
        };
        let digests = if method == Method::Full { 0 } else { Previous::bytes_of(self.forest.chunks()) };
        digests + History::bytes_at_most(self.seen + entries)
    }
}
