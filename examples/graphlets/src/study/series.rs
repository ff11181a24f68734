//! What the checkpoints of a series have cost.

use std::iter::Sum;

use super::{Error, Result};

/// What a checkpoint has cost, or several.
#[derive(Clone, Copy, Default, Debug)]
pub struct Cost {
    /// Bytes of memory.
    pub original_bytes: u64,
    /// Bytes stored of these.
    pub data_bytes: u64,
    /// Bytes stored to say which.
    pub metadata_bytes: u64,
    /// Time.
    pub seconds: f64,
}

/// The checkpoints of a series, in their order.
pub struct Series {
    costs: Vec<Cost>,
    peak: Option<f64>,
}

impl Cost {
    /// How many times smaller what is stored is.
    pub fn ratio(&self) -> f64 {
        self.original_bytes as f64 / (self.data_bytes + self.metadata_bytes).max(1) as f64
    }

    /// Memory by time, in 10^9 bytes a second.
    pub fn gigabytes_per_second(&self) -> f64 {
        self.original_bytes as f64 / 1e9 / self.seconds
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), |a, b| Self {
            original_bytes: a.original_bytes + b.original_bytes,
            data_bytes: a.data_bytes + b.data_bytes,
            metadata_bytes: a.metadata_bytes + b.metadata_bytes,
            seconds: a.seconds + b.seconds,
        })
    }
}

impl Series {
    /// A series of at least two checkpoints, and for a device the peak of its memory.
    pub fn new(costs: Vec<Cost>, peak: Option<f64>) -> Self {
        Self { costs, peak }
    }

    /// The most device memory that was in use at once, as a multiple of the counters, which are part of it.
    pub fn peak(&self) -> Option<f64> {
        self.peak
    }

    /// With the shorter times of the two, checkpoint by checkpoint: what others do on the machine only ever adds to them.
    pub fn with_best_times(mut self, again: &Self) -> Self {
        self.costs
            .iter_mut()
            .zip(&again.costs)
            .for_each(|(cost, again)| cost.seconds = cost.seconds.min(again.seconds));
        self
    }

    /// How many there are.
    pub fn checkpoints(&self) -> usize {
        self.costs.len()
    }

    /// All but the first, which the paper leaves out: nothing is known before it.
    pub fn later(&self) -> Cost {
        self.costs[1..].iter().copied().sum()
    }

    /// All of them.
    pub fn all(&self) -> Cost {
        self.costs.iter().copied().sum()
    }
}

/// The checkpoints of a series of so many that are restored: the one in the middle and the last.
pub fn restored(checkpoints: usize) -> [usize; 2] {
    [checkpoints / 2, checkpoints - 1]
}

/// # Errors
/// [`Error::Differs`] unless the two are equal.
pub fn compare(checkpoint: usize, method: &str, restored: &[u8], state: &[u8]) -> Result<()> {
    if restored == state {
        return Ok(());
    }
    let offset = restored.iter().zip(state).take_while(|(a, b)| a == b).count();
    Err(Error::Differs { checkpoint: checkpoint as u32, method: method.into(), offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_that_comes_back_changed_is_refused() {
        assert!(compare(1, "tree", &[1, 2, 3], &[1, 2, 3]).is_ok());
        let first = |restored: &[u8]| match compare(1, "tree", restored, &[1, 2, 3]) {
            Err(Error::Differs { offset, .. }) => offset,
            other => panic!("{other:?}"),
        };
        assert_eq!(first(&[1, 0, 3]), 1);
        assert_eq!(first(&[1, 2]), 2);
    }
}
