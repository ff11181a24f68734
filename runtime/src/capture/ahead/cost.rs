//! Whether to clone a program that stands still, or to copy what has changed of it.

use std::time::Duration;

/// What a page has taken, ns, the last time that there were enough of them to tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// To copy one that lies somewhere.
    pub copied_page_ns: f64,
    /// To clone one that is there; of huge pages it is a hundredth.
    pub cloned_page_ns: f64,
}

/// Of fewer pages, other things take longer.
const PAGES_TO_TELL: u64 = 1024;

impl Default for Costs {
    fn default() -> Costs {
        Costs { copied_page_ns: 1000.0, cloned_page_ns: 60.0 }
    }
}

/// What a clone takes however small the program is: two clones, calls in both, and the end of one.
const CLONE_NS: f64 = 1e6;

/// A program of some 2.5 GiB, in small pages, takes as long.
const LONG_NS: f64 = 40e6;

/// A page of a program that cannot be cloned: longer than any copy.
const REFUSED_NS: f64 = 1e6;

impl Costs {
    /// So many pages have been copied.
    pub fn copied(&mut self, pages: u64, took: Duration) {
        if pages >= PAGES_TO_TELL {
            self.copied_page_ns = took.as_nanos() as f64 / pages as f64;
        }
    }

    /// A program with so many pages has been cloned.
    pub fn cloned(&mut self, pages: u64, took: Duration) {
        if pages >= PAGES_TO_TELL {
            self.cloned_page_ns = (took.as_nanos() as f64 - CLONE_NS).max(0.0) / pages as f64;
        }
    }

    /// The kernel refuses clones: it would stand still until all is written.
    pub fn cannot_be_cloned(&mut self) {
        self.cloned_page_ns = REFUSED_NS;
    }

    /// Whether a program with so many pages stands still for so long while it is cloned that rather than that, pages are written to
    /// the store that may change before it stops.
    pub fn cloning_is_long(&self, present: u64) -> bool {
        present as f64 * self.cloned_page_ns > LONG_NS
    }

    /// Whether the program stands still for a shorter time while `changed` pages are copied than while it is cloned, with `present`
    /// pages in all.
    pub fn copying_is_shorter(&self, changed: u64, present: u64) -> bool {
        changed as f64 * self.copied_page_ns <= CLONE_NS + present as f64 * self.cloned_page_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_copied_and_much_is_cloned() {
        let costs = Costs::default();
        assert!(costs.copying_is_shorter(0, 0));
        assert!(costs.copying_is_shorter(1000, 20_000));
        assert!(!costs.copying_is_shorter(20_000, 20_000));
        assert!(costs.copying_is_shorter(15_000, 262_144));
        assert!(!costs.copying_is_shorter(26_000, 262_144));
        assert!(!costs.cloning_is_long(262_144) && costs.cloning_is_long(8 * 262_144));
    }

    #[test]
    fn what_was_measured_counts_where_there_was_enough_of_it() {
        let mut costs = Costs::default();
        costs.copied(10, Duration::from_secs(1));
        costs.cloned(10, Duration::from_secs(1));
        assert_eq!(costs, Costs::default());
        costs.copied(10_000, Duration::from_millis(5));
        costs.cloned(1 << 18, Duration::from_millis(1));
        assert_eq!(costs, Costs { copied_page_ns: 500.0, cloned_page_ns: 0.0 });
        assert!(!costs.copying_is_shorter(3000, 1 << 18), "its pages are huge");
        costs.cannot_be_cloned();
        assert!(costs.copying_is_shorter(100_000, 100_000) && costs.cloning_is_long(1000));
    }
}
