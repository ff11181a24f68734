//! From the hash of a key to the positions of the entries that may have it: 8 bytes a slot, 9.4 to 11.1 an entry.
//!
//! A shard is an array of slots in order of hash, with gaps. A slot's home is a line of 8, one cache line: the hash, scaled
//! to the number of lines, says which. The slot lies there or behind, and no gap is between its home and it. So one look
//! at the home finds most keys and misses most others, a search ends at the first larger slot, and an array that has
//! become too full is written anew in one pass, without a look at the keys.
//!
//! A table of many entries never stops to grow. It has as many shards as its size needs, and when it needs one more, a
//! single shard is split in two by one more bit of the hash (linear hashing): the longest pause is to move some 8,000
//! slots, and the memory follows the size closely. The low bits of a hash choose the shard, the high bits the home.

/// Entries to a shard, on average; a shard holds at most about twice as many.
const SHARD_ENTRIES: usize = 4096;
/// Where there is no entry. Larger than every slot.
const EMPTY: u64 = u64::MAX;
/// Slots of a line.
const LINE: usize = 8;
/// A shard is made longer when more than 85 of 100 slots are taken, and then has 72 of 100 taken.
const FULL_PERCENT: usize = 85;
const FRESH_PERCENT: usize = 72;

/// Positions by hash.
pub(super) struct Slots {
    shards: Vec<Shard>,
    entries: usize,
    /// As many ones as the number of the last shard has bits.
    mask: usize,
}

/// Slots that one cache line holds. Each has the hash in its high half and the position in its low half.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; LINE]);

/// One line more than there are homes, and more where that is not enough: the last slot is empty.
struct Shard {
    lines: Vec<Line>,
    homes: u32,
    entries: u32,
}

/// Which shard, and which line of it.
#[derive(Clone, Copy, Default)]
pub(super) struct Home {
    shard: u32,
    line: u32,
}

impl Default for Slots {
    fn default() -> Self {
        Self { shards: vec![Shard::of(Vec::new())], entries: 0, mask: 0 }
    }
}

impl Slots {
    /// Where to look for this hash.
    #[inline]
    pub fn home(&self, hash: u32) -> Home {
        let shard = self.shard(hash);
        Home { shard: shard as u32, line: self.shards[shard].home(hash) }
    }

    /// A slot of that line, to have it in the cache.
    #[inline]
    pub fn look(&self, home: Home) -> u64 {
        self.shards[home.shard as usize].lines[home.line as usize].0[0]
    }

    /// The first position with this hash.
    #[inline]
    pub fn first(&self, hash: u32, home: Home) -> Option<u32> {
        let shard = &self.shards[home.shard as usize];
        let found = shard.at(shard.first_from(slot(hash, 0), home.line));
        (found < slot(hash, u32::MAX)).then_some(found as u32)
    }

    /// The first position with this hash that `is_it` says yes to.
    #[inline]
    pub fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let shard = &self.shards[self.shard(hash)];
        let mut at = shard.first_from(slot(hash, 0), shard.home(hash));
        loop {
            let found = shard.at(at);
            if found >= slot(hash, u32::MAX) {
                return None;
            }
            if is_it(found as u32) {
                return Some(found as u32);
            }
            at += 1;
        }
    }

    /// Adds a position, which must be less than `u32::MAX`.
    #[inline]
    pub fn insert(&mut self, hash: u32, position: u32) {
        let shard = self.shard(hash);
        self.shards[shard].insert(slot(hash, position));
        self.entries += 1;
        if self.entries > self.shards.len() * SHARD_ENTRIES {
            self.add_shard();
        }
    }

    /// By as many bits as the number of the last shard has; by one bit less where there is no such shard yet.
    #[inline]
    fn shard(&self, hash: u32) -> usize {
        let shard = hash as usize & self.mask;
        if shard < self.shards.len() { shard } else { shard & (self.mask >> 1) }
    }

    /// Splits the shard whose turn it is.
    fn add_shard(&mut self) {
        let bit = 1 << self.shards.len().ilog2();
        let split = self.shards.len() - bit;
        let taken = self.shards[split].take();
        let (new, old) = taken.partition(|slot| (slot >> 32) as usize & bit != 0);
        self.shards[split] = Shard::of(old);
        self.shards.push(Shard::of(new));
        self.mask = self.shards.len().next_power_of_two() - 1;
    }
}

impl Shard {
    /// A fresh shard of these slots, which are in order.
    fn of(taken: Vec<u64>) -> Self {
        let homes = (taken.len() * 100 / FRESH_PERCENT).div_ceil(LINE).max(1);
        let lines = vec![Line([EMPTY; LINE]); homes + 1];
        let mut shard = Self { lines, homes: homes as u32, entries: taken.len() as u32 };
        let mut free = 0;
        for slot in taken {
            let at = (shard.home((slot >> 32) as u32) as usize * LINE).max(free);
            shard.make_gap_behind(at);
            *shard.at_mut(at) = slot;
            free = at + 1;
        }
        shard
    }

    /// The slots in order; none stays.
    fn take(&mut self) -> impl Iterator<Item = u64> + use<> {
        let lines = std::mem::take(&mut self.lines);
        lines.into_iter().flat_map(|line| line.0).filter(|&slot| slot != EMPTY)
    }

    #[inline]
    fn home(&self, hash: u32) -> u32 {
        ((u64::from(hash) * u64::from(self.homes)) >> 32) as u32
    }

    #[inline]
    fn at(&self, at: usize) -> u64 {
        self.lines[at / LINE].0[at % LINE]
    }

    #[inline]
    fn at_mut(&mut self, at: usize) -> &mut u64 {
        &mut self.lines[at / LINE].0[at % LINE]
    }

    /// Where the first slot lies that is not smaller than `least`, or may be put. Comparing a whole line is faster than
    /// to stop at the right slot, because there is no branch to predict.
    #[inline]
    fn first_from(&self, least: u64, home: u32) -> usize {
        let mut line = home as usize;
        loop {
            let smaller = self.lines[line].0.iter().map(|&slot| usize::from(slot < least)).sum::<usize>();
            if smaller < LINE {
                return line * LINE + smaller;
            }
            line += 1;
        }
    }

    #[inline]
    fn insert(&mut self, new: u64) {
        let at = self.first_from(new, self.home((new >> 32) as u32));
        let (mut moving, mut gap) = (new, at);
        while moving != EMPTY {
            moving = std::mem::replace(self.at_mut(gap), moving);
            gap += 1;
        }
        self.make_gap_behind(gap - 1);
        self.entries += 1;
        if self.entries as usize * 100 > self.homes as usize * LINE * FULL_PERCENT {
            *self = Self::of(self.take().collect());
        }
    }

    /// Keeps the last slot empty although `at` is taken.
    #[inline]
    fn make_gap_behind(&mut self, at: usize) {
        if at + 1 >= self.lines.len() * LINE {
            self.lines.reserve_exact(1);
            self.lines.push(Line([EMPTY; LINE]));
        }
    }
}

fn slot(hash: u32, position: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(position)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(slots: &Slots, hash: u32) -> Vec<u32> {
        let mut positions = Vec::new();
        slots.find(hash, |position| {
            positions.push(position);
            false
        });
        positions
    }

    #[test]
    fn every_position_is_found_by_its_hash_while_the_shards_split() {
        let mut slots = Slots::default();
        let hash = |n: u32| n.wrapping_mul(0x9e37_79b1);
        for n in 0..80_000 {
            slots.insert(hash(n), n);
            assert_eq!(found(&slots, hash(n / 2)), [n / 2]);
            assert_eq!(slots.first(hash(n / 3), slots.home(hash(n / 3))), Some(n / 3));
        }
        assert!((0..80_000).all(|n| found(&slots, hash(n)) == [n]));
        assert!(
            found(&slots, hash(80_000)).is_empty() && slots.first(hash(80_000), slots.home(hash(80_000))).is_none()
        );
        assert!(slots.shards.len() > 16);
    }

    #[test]
    fn positions_of_one_hash_are_found_in_their_order_however_many() {
        for hash in [0, 7, u32::MAX] {
            let mut slots = Slots::default();
            (0..5_000).for_each(|n| slots.insert(hash, n));
            slots.insert(hash ^ 1, 9_999);
            assert_eq!(found(&slots, hash), (0..5_000).collect::<Vec<_>>());
            assert_eq!(found(&slots, hash ^ 1), [9_999]);
        }
    }

    #[test]
    fn no_shard_is_much_larger_than_the_others() {
        let mut slots = Slots::default();
        for n in 0..100 * SHARD_ENTRIES as u32 + 17 {
            slots.insert(n.wrapping_mul(0x9e37_79b1), n);
            let largest = slots.shards.iter().map(|shard| shard.entries).max();
            if n.is_multiple_of(1_000) {
                assert!(largest <= Some(SHARD_ENTRIES as u32 * 9 / 4), "{largest:?} at {n}");
            }
        }
    }
}
