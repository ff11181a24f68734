//! What a difference says, from what the kernels wrote.

use super::layout::{Amount, FIRST_BYTES, Region, SHIFT_BYTES, TILE_WORDS};
use crate::merkle::{Body, Shift, Source};

/// Entries as they come, a window after the other.
pub struct Collected {
    firsts: Vec<u32>,
    shifts: Vec<Shift>,
}

impl Collected {
    /// For so many.
    pub fn new(total: Amount) -> Self {
        Self { firsts: Vec::with_capacity(total.firsts as usize), shifts: Vec::with_capacity(total.shifts as usize) }
    }

    /// Takes what is in a slot: so many first occurrences, then shifted duplicates.
    pub fn add(&mut self, firsts: u32, slot: &[u8]) {
        let (firsts, shifts) = slot.split_at(firsts as usize * FIRST_BYTES as usize);
        self.firsts.extend(words(firsts));
        self.shifts.extend(shifts.chunks_exact(SHIFT_BYTES as usize).map(|shift| {
            let mut words = words(shift);
            let mut next = || words.next().unwrap_or_default();
            let (node, source_node, checkpoint) = (next(), next(), next());
            Shift { node, source: Source { checkpoint, node: source_node } }
        }));
    }

    pub fn into_body(mut self) -> Body {
        self.shifts.sort_by_key(|shift| shift.source.checkpoint);
        Body::Nodes { firsts: self.firsts, shifts: self.shifts }
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word))
}

/// The bits of chunks, counted through all regions, from those of tiles.
pub fn changed(regions: &[Region], of_tiles: &[u32]) -> Body {
    let (mut bits, mut count) = (Vec::new(), 0_usize);
    for region in regions {
        let first = region.first_tile as usize * TILE_WORDS as usize;
        let words = &of_tiles[first..first + region.chunks.div_ceil(32) as usize];
        for (at, word) in words.iter().enumerate() {
            let there = (region.chunks as usize - at * 32).min(32);
            bits.resize((count + there).div_ceil(64), 0);
            let shifted = u128::from(*word) << (count % 64);
            bits[count / 64] |= shifted as u64;
            if shifted >> 64 != 0 {
                bits[count / 64 + 1] |= (shifted >> 64) as u64;
            }
            count += there;
        }
    }
    Body::Changed(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_regions_follow_one_another_without_gaps() {
        let region = |chunks, first_tile| Region { chunks, first_tile, ..Region::default() };
        let regions = [region(3, 0), region(40, 1), region(1030, 2), region(2, 4)];
        let mut of_tiles = vec![0_u32; 5 * 32];
        of_tiles[0] = 0b101;
        of_tiles[32] = 1 << 31;
        of_tiles[33] = 0b1000_0000;
        of_tiles[64] = 1;
        of_tiles[64 + 32] = 0b10_0000;
        of_tiles[4 * 32] = 0b11;
        let Body::Changed(bits) = changed(&regions, &of_tiles) else { panic!("no bits") };
        let set: Vec<usize> = (0..bits.len() * 64).filter(|bit| bits[bit / 64] >> (bit % 64) & 1 == 1).collect();
        assert_eq!(set, [0, 2, 3 + 31, 3 + 39, 43, 43 + 1029, 43 + 1030, 43 + 1031]);
        assert_eq!(bits.len(), (43_usize + 1032).div_ceil(64));
    }
}
