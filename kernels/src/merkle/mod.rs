//! De-duplication of memory finer than a page: what of it changed, what of that was seen before, and where.
//!
//! After Tan et al., "Scalable Incremental Checkpointing using GPU-Accelerated De-Duplication" (ICPP 2023), corrected. A
//! region is cut into chunks. A chunk is a *fixed duplicate* when it is what it was at the checkpoint before, a *first
//! occurrence* when its digest is new in the lineage, and a *shifted duplicate* when it was seen before elsewhere. Only the
//! bytes of first occurrences are stored; trees over the chunks make one entry of many neighbours.
//!
//! What differs from the paper, and why:
//! - Trees of levels and not of a heap (forest.rs): any number of chunks, and bytes in their order.
//! - A root is written down like any other node. By the published rules a region that returns to an earlier state as a
//!   whole (A, B, A) is restored as B.
//! - First occurrences are settled before anything is looked up, the first of several equal chunks by position; the
//!   published rules race for it.
//! - The history learns every node all of whose chunks occurred first in the checkpoint, also where some of them repeat
//!   others; the published rules do so at the first checkpoint alone. A run of equal chunks costs an entry for each doubling
//!   of its length, and one reference when it comes again. No other node enters it: so to follow a reference takes one
//!   difference, and never a third.
//! - Digests of nodes are seeded with their level: no data can have the digest of two others' digests.
//! - Regions come, go, grow and shrink; a chunk is the same only if it is as long.
//!
//! A region is a slice, or something that is read in pieces and may say what of it can have changed (memory.rs, survey.rs). A
//! difference goes out while it is being found (sink.rs). It is restored by its lineage (lineage.rs), which also knows what
//! may be forgotten; who keeps the data elsewhere asks where the bytes are (places.rs).

mod bound;
mod checked;
mod difference;
mod encoded;
mod encoder;
mod engine;
mod error;
pub(crate) mod forest;
mod found;
mod history;
mod joined;
mod lineage;
mod memory;
mod pieces;
mod places;
mod plan;
mod refusals;
mod sink;
mod survey;
mod verified;

pub use bound::Shortage;
pub use difference::{Body, Difference, Head, Method, Shift};
pub use encoder::Encoder;
pub use engine::{Engine, Region, Taken};
pub use error::{Error, Result};
pub use forest::RegionShape;
pub use history::Source;
pub use lineage::{Lineage, Mismatch};
pub use memory::{Live, Memory};
pub use places::{Own, Places};
pub use plan::Stored;
pub(crate) use refusals::{accepted, check_chunk_bytes};
pub use sink::Sink;
pub use verified::take_verified;
