//! What the kernel has said of pages.

use crate::page_set::PageSet;

/// Pages of the mappings that parts lie in, counted from address 0.
#[derive(Default)]
pub struct SeenPages {
    /// Those of which the kernel knows whether they have been written.
    pub watched: PageSet,
    /// Those that have been, since the last checkpoint of data.
    pub written: PageSet,
    /// Those that are there; the others are zero.
    pub present: PageSet,
}
