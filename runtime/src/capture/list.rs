//! Lists that a program keeps in its memory for the agent. The program may have overwritten them, or wish the agent ill: a list
//! ends where it leads to what was there before, and after so many parts.

use std::collections::BTreeSet;

/// How far a list has been followed.
#[derive(Debug)]
pub struct Walk {
    part_bytes: u64,
    left: usize,
    seen: BTreeSet<u64>,
}

impl Walk {
    /// Of a list of at most so many parts, which take so many bytes each.
    pub fn new<T>(most: usize) -> Walk {
        Walk { part_bytes: size_of::<T>() as u64, left: most, seen: BTreeSet::new() }
    }

    /// Whether the list goes on with the part at `address`, which lies over none of those before.
    pub fn goes_on(&mut self, address: u64) -> bool {
        let Some(end) = address.checked_add(self.part_bytes) else { return false };
        let first_over = self.seen.range(..end).next_back();
        let is_apart = first_over.is_none_or(|before| before + self.part_bytes <= address);
        if address == 0 || self.left == 0 || !is_apart {
            return false;
        }
        self.left -= 1;
        self.seen.insert(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_ends_where_it_leads_to_itself() {
        let mut walk = Walk::new::<[u64; 4]>(100);
        assert!(walk.goes_on(0x1000) && walk.goes_on(0x1020) && walk.goes_on(0xfe0));
        for address in [0x1000, 0x1001, 0x101f, 0xfff, 0x1038, 0, u64::MAX] {
            assert!(!walk.goes_on(address), "{address:#x}");
        }
        assert!(walk.goes_on(0x1040));
    }

    #[test]
    fn a_list_ends_after_so_many_parts() {
        let mut walk = Walk::new::<u64>(3);
        assert_eq!((1..10).filter(|part| walk.goes_on(part * 8)).count(), 3);
    }
}
