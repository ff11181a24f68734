//! How much of a difference is in which tile, and the windows in which it leaves the device.

use std::ops::Range;

use super::layout::{Amount, FIRST_BYTES, SHIFT_BYTES};

/// For each tile what all tiles before it have; the last entry is what all have.
pub struct Amounts(Vec<Amount>);

/// Tiles whose entries fit into a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entries {
    pub tiles: Range<u32>,
    pub before: Amount,
    pub firsts: u32,
    pub shifts: u32,
}

/// A slot full of data, and the tiles that have some of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Data {
    pub tiles: Range<u32>,
    pub bytes: Range<u64>,
}

impl Entries {
    pub fn bytes(&self) -> u64 {
        u64::from(self.firsts) * FIRST_BYTES + u64::from(self.shifts) * SHIFT_BYTES
    }
}

impl Amounts {
    /// From how much each tile has.
    pub fn new(mut of_tiles: Vec<Amount>) -> Self {
        of_tiles.push(Amount::default());
        let mut before = Amount::default();
        for amount in &mut of_tiles {
            let of_tile = std::mem::replace(amount, before);
            before.bytes += of_tile.bytes;
            before.firsts += of_tile.firsts;
            before.shifts += of_tile.shifts;
        }
        Self(of_tiles)
    }

    /// What is before each tile.
    pub fn of_tiles(&self) -> &[Amount] {
        self.0.split_last().map_or(&[], |(_, of_tiles)| of_tiles)
    }

    pub fn total(&self) -> Amount {
        self.0.last().copied().unwrap_or_default()
    }

    fn tiles(&self) -> u32 {
        self.0.len() as u32 - 1
    }

    /// The windows of all entries. A slot must have room for those of any tile.
    pub fn entries(&self, slot_bytes: usize) -> impl Iterator<Item = Entries> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let from = next;
            let of = |to: u32| {
                let (before, behind) = (self.0[from as usize], self.0[to as usize]);
                let (firsts, shifts) = (behind.firsts - before.firsts, behind.shifts - before.shifts);
                Entries { tiles: from..to, before, firsts, shifts }
            };
            while next < self.tiles() && of(next + 1).bytes() <= slot_bytes as u64 {
                next += 1;
            }
            assert!(from < next || next == self.tiles(), "a slot has no room for a tile's entries");
            (from < next).then(|| of(next))
        })
        .filter(|entries| entries.bytes() > 0)
    }

    /// The windows of all data.
    pub fn data(&self, slot_bytes: usize) -> impl Iterator<Item = Data> {
        let total = self.total().bytes;
        (0..total).step_by(slot_bytes).map(move |from| {
            let to = (from + slot_bytes as u64).min(total);
            let first = self.of_tiles().partition_point(|before| before.bytes <= from) - 1;
            let end = self.of_tiles().partition_point(|before| before.bytes < to);
            Data { tiles: first as u32..end as u32, bytes: from..to }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(of_tiles: &[(u64, u32, u32)]) -> Amounts {
        let amount = |&(bytes, firsts, shifts): &(u64, u32, u32)| Amount { bytes, firsts, shifts };
        Amounts::new(of_tiles.iter().map(amount).collect())
    }

    #[test]
    fn windows_of_data_have_all_bytes_once_and_the_tiles_that_they_are_in() {
        let amounts = amounts(&[(0, 0, 0), (10, 1, 0), (0, 0, 0), (40, 1, 0), (14, 2, 1), (0, 0, 0)]);
        let windows: Vec<_> = amounts.data(32).collect();
        assert_eq!(windows, [Data { tiles: 1..4, bytes: 0..32 }, Data { tiles: 3..5, bytes: 32..64 }]);
    }

    #[test]
    fn windows_of_entries_have_whole_tiles_that_fit_into_a_slot() {
        let amounts = amounts(&[(0, 0, 0), (1, 2, 1), (1, 0, 1), (0, 0, 0), (1, 5, 0)]);
        let windows: Vec<_> =
            amounts.entries(32).map(|entries| (entries.tiles, entries.firsts, entries.shifts)).collect();
        assert_eq!(windows, [(0..4, 2, 2), (4..5, 5, 0)]);
        assert_eq!(amounts.total(), Amount { bytes: 3, firsts: 7, shifts: 2 });
    }
}
