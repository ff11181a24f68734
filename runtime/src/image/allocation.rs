//! Large allocations of the heap.

use serde::{Deserialize, Serialize};

/// An allocation that the program asked its heap for. Its content is part of the regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 4]", into = "[u64; 4]")]
pub struct Allocation {
    /// Its number in the program, which stays when it is resized or moved.
    pub id: u64,
    /// First address.
    pub address: u64,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Where the call that asked for it returns to: an address in a region of code.
    pub call_site: u64,
}

impl From<[u64; 4]> for Allocation {
    fn from([id, address, bytes, call_site]: [u64; 4]) -> Allocation {
        Allocation { id, address, bytes, call_site }
    }
}

impl From<Allocation> for [u64; 4] {
    fn from(allocation: Allocation) -> [u64; 4] {
        [allocation.id, allocation.address, allocation.bytes, allocation.call_site]
    }
}
