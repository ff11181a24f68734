//! The tables of the program's allocations, as libckpt.so keeps them and the agent reads them: those of its heap, and
//! those of the CUDA driver ([`CudaBlock`]).
//!
//! Of the heap, only allocations of at least [`GRANULE_BYTES`] are in it, so no two of them begin in the same granule: the granule's
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

/// What is known as a whole.
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
    /// Address of the newest [`CudaBlock`]; 0 for none.
    pub cuda_blocks: u64,
    /// How often the program looked for an entry point of the CUDA driver that libckpt.so does not know.
    pub cuda_unknown: u64,
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

/// Allocations of the CUDA driver, in no order. A program that never calls it has none.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CudaBlock {
    /// Address of the next older block; 0 for none.
    pub next: u64,
    unused: [u64; 7],
    /// The allocations; an entry with id 0 is free. The id is cleared first and set last.
    pub allocations: [CudaAllocation; CUDA_BLOCK_ALLOCATIONS],
}

/// Allocations of a [`CudaBlock`].
pub const CUDA_BLOCK_ALLOCATIONS: usize = 511;

/// What the CUDA driver has allocated for the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CudaAllocation {
    /// Its number; allocations of the heap are counted with them.
    pub id: u64,
    /// First address; of an array or physical memory, its handle.
    pub address: u64,
    /// Bytes that the program asked for; of an array what its elements take, 0 for formats that have no such size.
    pub bytes: u64,
    /// Where the call that allocated it returns to.
    pub call_site: u64,
    /// The context that it belongs to; 0 where it belongs to none.
    pub context: u64,
    /// The pool, module or graph that it is part of; 0 for none.
    pub owner: u64,
    /// `CUDA_*`: what it is, and [`CUDA_EXPORTED`].
    pub kind: u32,
    /// The device's number; -1 where it is on none.
    pub device: i32,
    /// The stream in whose order it was allocated; 0 for none, or the default one.
    pub stream: u64,
}

impl CudaAllocation {
    /// An allocation that is not recorded yet.
    pub const fn new(kind: u32, address: u64, bytes: u64) -> Self {
        Self { id: 0, address, bytes, call_site: 0, context: 0, owner: 0, kind, device: -1, stream: 0 }
    }

    /// What it is: `CUDA_*` alone.
    pub const fn what(&self) -> u32 {
        self.kind & !CUDA_EXPORTED
    }

    /// Whether other processes may have it.
    pub const fn is_exported(&self) -> bool {
        self.kind & CUDA_EXPORTED != 0
    }

    /// Whether it is managed memory that `cuMemAllocManaged` has given, wherever that is now: what can be evacuated.
    pub const fn can_be_evacuated(&self) -> bool {
        match self.what() {
            // From a pool, it has that for an owner.
            CUDA_MANAGED => self.owner == 0,
            CUDA_MANAGED_EVACUATED | CUDA_MANAGED_REGISTERED => true,
            _ => false,
        }
    }

    /// Whether `address` is the first of a range of memory, and not a handle.
    pub const fn is_memory(&self) -> bool {
        !matches!(self.what(), CUDA_ARRAY | CUDA_PHYSICAL)
    }
}

/// [`CudaAllocation::kind`]: device memory.
pub const CUDA_DEVICE: u32 = 1;
/// Managed memory.
pub const CUDA_MANAGED: u32 = 2;
/// Host memory that the driver has allocated and pinned.
pub const CUDA_PINNED: u32 = 3;
/// Host memory of the program's that the driver has pinned.
pub const CUDA_REGISTERED: u32 = 4;
/// Physical memory that the program has mapped at addresses that it had reserved.
pub const CUDA_MAPPED: u32 = 5;
/// An array or mipmapped array, whose layout is the driver's.
pub const CUDA_ARRAY: u32 = 6;
/// A global variable of a module.
pub const CUDA_GLOBAL: u32 = 7;
/// A global variable of a module, in managed memory.
pub const CUDA_MANAGED_GLOBAL: u32 = 8;
/// Memory that a graph allocates when it runs.
pub const CUDA_GRAPH: u32 = 9;
/// Memory of another process or API.
pub const CUDA_IMPORTED: u32 = 10;
/// Physical memory, which the program maps where it likes: the address is its handle, the owner how many references the
/// program has to it. It may be mapped longer than that.
pub const CUDA_PHYSICAL: u32 = 11;
/// Managed memory to the program, which libckpt.so has made of host memory that the driver has allocated and pinned.
pub const CUDA_MANAGED_PINNED: u32 = 12;
/// Managed memory to the program, which is ordinary memory of the host at the same address while its devices are suspended.
pub const CUDA_MANAGED_EVACUATED: u32 = 13;
/// Managed memory to the program: ordinary memory of the host that came to its address when it was evacuated, and that the driver
/// has pinned there since, because it would not give that address again. The owner is where that memory begins.
pub const CUDA_MANAGED_REGISTERED: u32 = 14;
/// A bit of [`CudaAllocation::kind`]: other processes may have it, by a handle or a descriptor that was made of it.
pub const CUDA_EXPORTED: u32 = 1 << 16;

const _: () = {
    assert!(size_of::<CudaAllocation>() == 64 && size_of::<CudaBlock>() == 1 << 15);
    assert!(offset_of!(Area, starts) == 4096);
    assert!(offset_of!(Area, allocations) == 4096 + 8 * AREA_GRANULES);
    assert!(size_of::<Area>() == 4096 + (8 + 24) * AREA_GRANULES);
};
