//! The table of the program's heap allocations, as libckpt.so keeps it and the agent reads it.
//!
//! Only allocations of at least [`GRANULE_BYTES`] are in it, so no two of them begin in the same granule: the granule's
//! number is the place in the table, and neither a lock nor a search is needed. Granules lie in **areas** of
//! [`AREA_BYTES`]; an area's entries exist once something was allocated in it, and then for ever, in a list that only
//! grows at its head. Memory that nothing was written to is zero and costs nothing.
//!
//! A reader from outside, while the program runs, reads twice and believes what was the same both times: an entry's
//! start is cleared first and set last, and no two allocations have the same id.

use core::mem::offset_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a granule, and of the smallest allocation that can be recorded.
pub const GRANULE_BYTES: u64 = 1 << 16;
/// Granules of an area.
pub const AREA_GRANULES: usize = 1 << 16;
/// Bytes of the address space that an area is about.
pub const AREA_BYTES: u64 = GRANULE_BYTES * AREA_GRANULES as u64;
/// First address behind all that programs have (47 bits: more is only given to those who ask for it).
pub const ADDRESSES_END: u64 = 1 << 47;

/// [`Allocations::min_bytes`]: nothing is recorded.
pub const RECORD_NOTHING: u64 = u64::MAX;

/// What is known about the heap as a whole.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Allocations {
    /// Allocations of at least so many bytes are recorded.
    pub min_bytes: u64,
    /// Address of the newest [`Area`]; 0 for none.
    pub areas: u64,
    /// Id of the newest allocation; the first is 1.
    pub last_id: u64,
    /// Allocations that should have been recorded and could not be.
    pub lost: u64,
}

/// The entries of an area. Granule `g` of it has `starts[g]` and `allocations[g]`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Area {
    /// First address of the area.
    pub address: u64,
    /// Address of the next older [`Area`]; 0 for none.
    pub next: u64,
    unused: [u64; 510],
    /// Address of the allocation that begins in the granule; 0 for none.
    pub starts: [u64; AREA_GRANULES],
    /// The rest about it; means nothing where the start is 0.
    pub allocations: [Allocation; AREA_GRANULES],
}

/// An allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Allocation {
    /// Its number, which stays when it is resized or moved by `realloc`.
    pub id: u64,
    /// Bytes that the program asked for.
    pub bytes: u64,
    /// Where the call that allocated it returns to.
    pub call_site: u64,
}

const _: () = {
    assert!(offset_of!(Area, starts) == 4096);
    assert!(offset_of!(Area, allocations) == 4096 + 8 * AREA_GRANULES);
    assert!(size_of::<Area>() == 4096 + (8 + 24) * AREA_GRANULES);
};
