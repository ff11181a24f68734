//! From the hash of a key to the positions of the entries that may have it: 8 bytes a slot, 9.4 to 11.1 an entry.
//!
//! A shard is an array of slots in order of hash, with gaps: a slot lies at its home (the hash, scaled to the length of
//! the array) or behind it, and no gap is in between. So a search ends at the first larger slot, and an array that has
//! become too full is written anew in one pass, without a look at the keys.
//!
//! A table of many entries never stops to grow. It has as many shards as its size needs, and when it needs one more, a
//! single shard is split in two by one more bit of the hash (linear hashing): the longest pause is to move some 8,000
//! slots, and the memory follows the size closely. The low bits of a hash choose the shard, the high bits the home.

/// Entries to a shard, on average; a shard holds at most about twice as many.
const SHARD_ENTRIES: usize = 4096;
/// Where there is no entry. Larger than every slot.
const EMPTY: u64 = u64::MAX;
/// Slots compared at once, which is without a branch to predict. Few keys lie further from home.
const WINDOW: usize = 8;
/// A shard is made longer when more than 85 of 100 homes are taken, and then has 72 of 100 taken.
const FULL_PERCENT: usize = 85;
const FRESH_PERCENT: usize = 72;

/// Positions by hash.
pub(super) struct Slots {
    shards: Vec<Shard>,
    entries: usize,
    /// As many ones as the number of the last shard has bits.
    mask: usize,
}

/// Each slot has the hash in its high half and the position in its low half. There is a window behind the last home, and
/// more where that is not enough: the last slot is empty.
struct Shard {
    slots: Vec<u64>,
    homes: u32,
    entries: u32,
}

impl Default for Slots {
    fn default() -> Self {
        Self { shards: vec![Shard::of(Vec::new())], entries: 0, mask: 0 }
    }
}

impl Slots {
    /// The first position with this hash that `is_it` says yes to.
    #[inline]
    pub fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let shard = &self.shards[self.shard(hash)];
        let from = &shard.slots[shard.first_from(slot(hash, 0))..];
        let same = from.iter().take_while(|&&found| found < slot(hash, u32::MAX));
        same.map(|&found| found as u32).find(|&position| is_it(position))
    }

    /// The first position with this hash.
    #[inline]
    pub fn first(&self, hash: u32) -> Option<u32> {
        let shard = &self.shards[self.shard(hash)];
        let found = shard.slots[shard.first_from(slot(hash, 0))];
        (found < slot(hash, u32::MAX)).then_some(found as u32)
    }

    /// What lies at the home of `hash`, to have its cache line.
    #[inline]
    pub fn at_home(&self, hash: u32) -> u64 {
        let shard = &self.shards[self.shard(hash)];
        shard.slots[shard.home(hash)]
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
        let slots = std::mem::take(&mut self.shards[split].slots);
        let taken = slots.into_iter().filter(|&slot| slot != EMPTY);
        let (new, old) = taken.partition(|slot| (slot >> 32) as usize & bit != 0);
        self.shards[split] = Shard::of(old);
        self.shards.push(Shard::of(new));
        self.mask = self.shards.len().next_power_of_two() - 1;
    }
}

impl Shard {
    /// A fresh shard of these slots, which are in order.
    fn of(taken: Vec<u64>) -> Self {
        let homes = (taken.len() * 100 / FRESH_PERCENT).max(WINDOW);
        let slots = vec![EMPTY; homes + WINDOW];
        let mut shard = Self { slots, homes: homes as u32, entries: taken.len() as u32 };
        let mut free = 0;
        for slot in taken {
            let at = shard.home((slot >> 32) as u32).max(free);
            shard.extend_to(at + 2);
            shard.slots[at] = slot;
            free = at + 1;
        }
        shard
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * u64::from(self.homes)) >> 32) as usize
    }

    /// Where the first slot lies that is not smaller than `least`, or may be put.
    #[inline]
    fn first_from(&self, least: u64) -> usize {
        let home = self.home((least >> 32) as u32);
        let window = &self.slots[home..home + WINDOW];
        let smaller = window.iter().map(|&slot| usize::from(slot < least)).sum::<usize>();
        if smaller < WINDOW { home + smaller } else { self.first_behind(home + WINDOW, least) }
    }

    #[cold]
    fn first_behind(&self, start: usize, least: u64) -> usize {
        let smaller = self.slots[start..].iter().take_while(|&&slot| slot < least);
        start + smaller.count()
    }

    #[inline]
    fn insert(&mut self, new: u64) {
        let at = self.first_from(new);
        let mut gap = at;
        while self.slots[gap] != EMPTY {
            gap += 1;
        }
        self.extend_to(gap + 2);
        self.slots.copy_within(at..gap, at + 1);
        self.slots[at] = new;
        self.entries += 1;
        if self.entries as usize * 100 > self.homes as usize * FULL_PERCENT {
            let slots = std::mem::take(&mut self.slots);
            *self = Self::of(slots.into_iter().filter(|&slot| slot != EMPTY).collect());
        }
    }

    /// Makes the array at least `length` slots long.
    fn extend_to(&mut self, length: usize) {
        if length > self.slots.len() {
            self.slots.reserve_exact(WINDOW);
            self.slots.resize(self.slots.len() + WINDOW, EMPTY);
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
            assert_eq!(slots.first(hash(n / 3)), Some(n / 3));
        }
        assert!((0..80_000).all(|n| found(&slots, hash(n)) == [n]));
        assert!(found(&slots, hash(80_000)).is_empty() && slots.first(hash(80_000)).is_none());
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
