//! What a program has allocated: large parts of its heap, and all that the CUDA driver gave it.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// An allocation. Its content is part of the regions where it lies in memory of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 6]", into = "[u64; 6]")]
pub struct Allocation {
    /// Its number in the program, which stays when it is resized or moved.
    pub id: u64,
    /// First address; of an array of the CUDA driver, its handle.
    pub address: u64,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Where the call that asked for it returns to: an address in a region of code.
    pub call_site: u64,
    /// What it is.
    pub kind: AllocationKind,
}

impl Allocation {
    /// The device that it is on; -1 for none.
    pub fn device(&self) -> i32 {
        match self.kind {
            AllocationKind::Heap => -1,
            AllocationKind::Cuda(_, device) => device,
        }
    }

    /// Its addresses.
    pub fn addresses(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.bytes)
    }
}

/// What an allocation is, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationKind {
    /// Part of the heap.
    Heap,
    /// The CUDA driver's: one of `ckpt_wire::allocations::CUDA_*`, on a device or on none (-1).
    Cuda(u32, i32),
}

impl From<[u64; 6]> for Allocation {
    fn from([id, address, bytes, call_site, kind, device]: [u64; 6]) -> Allocation {
        let kind = match kind {
            0 => AllocationKind::Heap,
            kind => AllocationKind::Cuda(kind as u32, device as i32),
        };
        Allocation { id, address, bytes, call_site, kind }
    }
}

impl From<Allocation> for [u64; 6] {
    fn from(allocation: Allocation) -> [u64; 6] {
        let (kind, device) = match allocation.kind {
            AllocationKind::Heap => (0, 0),
            // The sign is lost and found in the last 32 bits.
            AllocationKind::Cuda(kind, device) => (u64::from(kind), u64::from(device as u32)),
        };
        [allocation.id, allocation.address, allocation.bytes, allocation.call_site, kind, device]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_devices_survive_being_stored() {
        for kind in [AllocationKind::Heap, AllocationKind::Cuda(2, -1), AllocationKind::Cuda(1, 7)] {
            let allocation = Allocation { id: 1, address: 2, bytes: 3, call_site: 4, kind };
            assert_eq!(Allocation::from(<[u64; 6]>::from(allocation)), allocation);
        }
    }
}
