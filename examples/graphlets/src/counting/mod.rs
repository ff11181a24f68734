//! Counting: a row of 73 counters for each vertex, to which every connected subgraph of two to five vertices adds one for
//! each of its vertices.
//!
//! A subgraph is found once, from its smallest vertex, its root. So the work can be cut anywhere between two roots, and what
//! has been counted by then is the state that a checkpoint must hold.

mod device;
mod growth;
mod threads;

use std::ops::Range;

use ckpt_kernels::device::Result;
pub use device::Device;
pub use threads::Threads;

/// Bytes of the counters of a vertex.
pub const ROW_BYTES: usize = crate::orbits::ORBITS * size_of::<u32>();

/// Counts on some machinery.
pub trait Counter {
    /// Counts the subgraphs whose smallest vertex is one of these. Each vertex is to be a root once.
    ///
    /// # Errors
    /// When a device fails. What has been counted is not known then.
    fn advance(&mut self, roots: Range<u32>) -> Result<()>;

    /// The counters of all vertices as they are now, row by row. They wrap around at 2^32.
    ///
    /// # Errors
    /// When a device fails.
    fn counters(&self) -> Result<Vec<u32>>;
}

/// After how many roots to pause for each of so many checkpoints: the last one holds the result.
pub fn pauses(vertices: u32, checkpoints: u32) -> impl Iterator<Item = u32> {
    let after = move |number| u64::from(vertices) * number / u64::from(checkpoints);
    (1..=u64::from(checkpoints)).map(after).map(|roots| roots as u32)
}
