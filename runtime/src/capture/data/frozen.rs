//! Allocations in memory that holds still.

use super::parts::Part;
use crate::capture::allocations::Allocations;
use crate::capture::still::Still;
use crate::image::LeftOut;
use crate::page_set::PageSet;
use crate::proc::maps::Mapping;

/// Allocations in memory of the host, which holds still.
pub struct Frozen {
    /// Everything that the program has allocated, of whatever kind.
    pub allocations: Allocations,
    /// The program's mappings.
    pub mappings: Vec<Mapping>,
    /// The allocations in memory of the host, by address.
    pub parts: Vec<Part>,
    /// Those that are not among them, and why.
    pub left_out: Vec<LeftOut>,
    /// Which pages are there, of the mappings that the parts lie in, counted from address 0.
    pub present: PageSet,
    /// Who holds the memory.
    pub still: Still,
}
