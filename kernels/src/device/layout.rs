//! What the kernels are given, as `kernels/cuda` lays it out. Names are those of the sources there.

use super::entry_points::Address;

/// Chunks that a block works on.
pub const TILE_CHUNKS: u32 = 1024;
/// Words of 32 bits with a bit for each chunk of a tile.
pub const TILE_WORDS: u64 = 32;
pub const SEGMENTS_MAX: usize = 16;
pub const SKETCH_REGISTERS: usize = 4096;
pub const ENTRY_BYTES: u64 = 24;
pub const DIGEST_BYTES: u64 = 16;
pub const AMOUNT_BYTES: u64 = size_of::<Amount>() as u64;
pub const FIRST_BYTES: u64 = 4;
pub const SHIFT_BYTES: u64 = 12;

/// What has the same layout there and no padding.
///
/// # Safety
/// `repr(C)`, without padding, and every bit pattern is one.
pub unsafe trait Plain: Copy + Default {}

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Region {
    pub bytes: Address,
    pub length: u64,
    pub digests: Address,
    pub inner: Address,
    pub chunks: u32,
    pub known: u32,
    pub first_node: u32,
    pub first_tile: u32,
}
// SAFETY: as it says.
unsafe impl Plain for Region {}
const _: () = assert!(size_of::<Region>() == 48);

/// How a difference is found, as far as the kernels are concerned.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    Basic,
    List,
    Tree,
}

/// First how much a tile has, then how much all tiles before it have.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Amount {
    pub bytes: u64,
    pub firsts: u32,
    pub shifts: u32,
}
// SAFETY: as it says.
unsafe impl Plain for Amount {}

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Totals {
    pub changed: u32,
    pub used: u32,
    pub overflow: u32,
    pub unused: u32,
}
// SAFETY: as it says.
unsafe impl Plain for Totals {}

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Segment {
    pub entries: Address,
    pub capacity: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct History {
    pub segments: [Segment; SEGMENTS_MAX],
    pub count: u32,
    pub limit: u32,
    pub used: Address,
    pub overflow: Address,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint {
    pub regions: Address,
    pub region_count: u32,
    pub tile_count: u32,
    pub chunk_bytes: u32,
    pub number: u32,
    pub method: Method,
    pub changed: Address,
    pub stored: Address,
    pub firsts: Address,
    pub shifts: Address,
    pub labels: Address,
    pub amounts: Address,
    pub totals: Address,
    pub sketch: Address,
    pub history: History,
}
const _: () = assert!(size_of::<Checkpoint>() == 376);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EntryWindow {
    pub first_tile: u32,
    pub firsts_before: u32,
    pub shifts_before: u32,
    pub firsts: Address,
    pub shifts: Address,
}
const _: () = assert!(size_of::<EntryWindow>() == 32);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub from: u64,
    pub to: u64,
    pub bytes: Address,
    pub first_tile: u32,
    pub unused: u32,
}
const _: () = assert!(size_of::<Window>() == 32);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Gone {
    pub numbers: Address,
    pub count: u64,
}

/// The bytes of what the kernels read.
pub fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain` has no padding, so all bytes are there.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Where the bytes go that the kernels wrote.
pub fn bytes_of_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and any bytes are values.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

// SAFETY: a number.
unsafe impl Plain for u32 {}
