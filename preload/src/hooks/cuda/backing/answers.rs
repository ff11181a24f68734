//! What the driver answers about a pointer, put right: of memory that was mapped it knows other things than of memory that
//! `cuMemAlloc` has given, and of an allocation inside a slab it knows nothing.

use core::ffi::{c_int, c_uint, c_void};

use super::pieces::Piece;
use super::synchrony;
use super::table::{Backed, Found, find, with};
use crate::hooks::cuda::driver::{CuResult, Handle};

// `CUpointer_attribute`. All others are the same for both kinds of memory.
const CONTEXT: c_int = 1;
const SYNC_MEMOPS: c_int = 6;
/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: CuResult = 801;
const BUFFER_ID: c_int = 7;
const DEVICE_ORDINAL: c_int = 9;
const IS_LEGACY_IPC_CAPABLE: c_int = 10;
const RANGE_START: c_int = 11;
const RANGE_BYTES: c_int = 12;
const ALLOWED_HANDLE_TYPES: c_int = 14;
const MAPPING_BYTES: c_int = 18;
const MAPPING_START: c_int = 19;

/// The address that the driver is to be asked about: one that it does not know where a piece has no allocation.
pub fn asked(address: u64) -> u64 {
    if matches!(find(address), Found::Unused) { 0 } else { address }
}

/// Puts answers right.
///
/// # Safety
/// There must be `count` attributes, and as many places that the driver has written its answers to.
pub unsafe fn correct(count: c_uint, attributes: *const c_int, answers: *const *mut c_void, address: u64) {
    let Found::Allocation(backed, piece) = find(address) else { return };
    for number in 0..count as usize {
        // SAFETY: the caller's word.
        unsafe { correct_as(*answers.add(number), *attributes.add(number), &backed, &piece) };
    }
}

unsafe fn correct_as(answer: *mut c_void, attribute: c_int, backed: &Backed, piece: &Piece) {
    // SAFETY: the caller's word; the types are those that cuda.h gives the attributes.
    unsafe {
        match attribute {
            CONTEXT => answer.cast::<Handle>().write_unaligned(piece.context),
            SYNC_MEMOPS => answer.cast::<c_uint>().write_unaligned(backed.sync_memops.into()),
            BUFFER_ID => answer.cast::<u64>().write_unaligned(backed.id),
            // Of another process's memory, the driver knows best where that is.
            DEVICE_ORDINAL if backed.origin.is_none() => answer.cast::<c_int>().write_unaligned(piece.device),
            IS_LEGACY_IPC_CAPABLE => answer.cast::<c_uint>().write_unaligned(backed.origin.is_none().into()),
            RANGE_START | MAPPING_START => answer.cast::<u64>().write_unaligned(backed.address),
            RANGE_BYTES | MAPPING_BYTES => answer.cast::<usize>().write_unaligned(backed.bytes),
            ALLOWED_HANDLE_TYPES => answer.cast::<c_uint>().write_unaligned(0),
            _ => {}
        }
    }
}

/// Whether the driver refuses an attribute of memory of ours that it would take of its own, and we keep it in its place.
pub fn is_kept_by_us(result: CuResult, attribute: c_int, address: u64) -> bool {
    result == NOT_SUPPORTED && attribute == SYNC_MEMOPS && matches!(find(address), Found::Allocation(..))
}

/// The program has set an attribute, and the driver or we have taken it.
///
/// # Safety
/// `value` must be what the driver has read the new value from.
pub unsafe fn note(value: *const c_void, attribute: c_int, address: u64) {
    if attribute == SYNC_MEMOPS
        && let Found::Allocation(backed, _) = find(address)
    {
        // SAFETY: the caller's word.
        let is_on = unsafe { value.cast::<c_uint>().read_unaligned() } != 0;
        with(|table| table.change(backed.address, |backed| backed.sync_memops = is_on));
        synchrony::is_wanted(is_on);
    }
}
