//! Which parts of a slab are taken: one bit for each 512 bytes, the alignment of all that is allocated.

use super::support::SLAB_BYTES;

/// Bytes of a unit.
pub const UNIT_BYTES: usize = 512;
const UNITS: usize = SLAB_BYTES / UNIT_BYTES;
const WORDS: usize = UNITS / 64;

/// The units of a slab.
#[derive(Clone, Copy)]
pub struct Places {
    taken: [u64; WORDS],
    free: usize,
    /// No gap has more units: found out when one was looked for in vain.
    longest: usize,
}

impl Places {
    /// All free.
    pub const fn new() -> Self {
        Self { taken: [0; WORDS], free: UNITS, longest: UNITS }
    }

    /// Whether no more than `units` are taken.
    pub fn has_only(&self, units: usize) -> bool {
        self.free + units >= UNITS
    }

    /// Takes `units` that follow one another: the first gap that is long enough. Gives the number of the first.
    pub fn take(&mut self, units: usize) -> Option<usize> {
        if units > self.longest.min(self.free) {
            return None;
        }
        let Some(first) = self.first_gap(units) else {
            self.longest = units - 1;
            return None;
        };
        self.set(first, units, true);
        self.free -= units;
        Some(first)
    }

    /// Gives units back that were taken.
    pub fn give_back(&mut self, first: usize, units: usize) {
        self.set(first, units, false);
        self.free += units;
        self.longest = UNITS;
    }

    fn first_gap(&self, units: usize) -> Option<usize> {
        let mut first = 0;
        while first + units <= UNITS {
            let taken = self.next(first, true);
            if taken - first >= units {
                return Some(first);
            }
            first = self.next(taken, false);
        }
        None
    }

    /// The first unit from `from` on that is taken, or free; the number of units if there is none.
    fn next(&self, from: usize, is_taken: bool) -> usize {
        let mut at = from;
        while let Some(&word) = self.taken.get(at / 64) {
            let wanted = (if is_taken { word } else { !word }) >> (at % 64);
            if wanted != 0 {
                return at + wanted.trailing_zeros() as usize;
            }
            at = (at / 64 + 1) * 64;
        }
        UNITS
    }

    fn set(&mut self, first: usize, units: usize, is_taken: bool) {
        for unit in first..first + units {
            let Some(word) = self.taken.get_mut(unit / 64) else { return };
            let bit = 1 << (unit % 64);
            *word = if is_taken { *word | bit } else { *word & !bit };
        }
    }
}
