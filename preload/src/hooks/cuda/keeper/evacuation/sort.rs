//! Sorting: unlike the sort of the core library, without a path to a panic.

/// Sorts in place, by growing insertion (Shell, with Gonnet's gaps).
pub fn sort<T: Copy>(all: &mut [T], key: impl Fn(&T) -> u64) {
    let mut gap = all.len() / 2;
    while gap > 0 {
        for at in gap..all.len() {
            let mut place = at;
            while let Some(before) = place.checked_sub(gap)
                && let (Some(&one), Some(&other)) = (all.get(before), all.get(place))
                && key(&one) > key(&other)
            {
                for (to, what) in [(before, other), (place, one)] {
                    if let Some(there) = all.get_mut(to) {
                        *there = what;
                    }
                }
                place = before;
            }
        }
        gap = if gap == 2 { 1 } else { gap * 5 / 11 };
    }
}
