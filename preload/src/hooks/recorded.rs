//! What is recorded as a whole, of the heap and of the CUDA driver: where the agent begins to read.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

use ckpt_wire::allocations::{Allocations, Area, CudaBlock, GRANULE_BYTES};

use crate::shared::Shared;

/// The hooks over the heap compare with its first field, `min_bytes`.
///
/// Before our constructor has read the user's wish, libraries that are older than it allocate already.
pub static ALLOCATIONS: Shared<Allocations> = Shared::new(Allocations {
    min_bytes: GRANULE_BYTES,
    areas: 0,
    last_id: 0,
    lost: 0,
    cuda_blocks: 0,
    cuda_unknown: 0,
});

const _: () = assert!(offset_of!(Allocations, min_bytes) == 0);

/// Where it is.
pub fn allocations() -> *const Allocations {
    ALLOCATIONS.get()
}

/// From now on, allocations of at least `min_bytes` are recorded: [`GRANULE_BYTES`] at least, or
/// [`RECORD_NOTHING`](ckpt_wire::allocations::RECORD_NOTHING).
pub fn record_from(min_bytes: u64) {
    field(offset_of!(Allocations, min_bytes)).store(min_bytes.max(GRANULE_BYTES), Ordering::Relaxed);
}

/// Whether an allocation of so many bytes is to be recorded.
pub fn is_recorded(bytes: u64) -> bool {
    bytes >= field(offset_of!(Allocations, min_bytes)).load(Ordering::Relaxed)
}

/// The id of a new allocation.
pub fn next_id() -> u64 {
    field(offset_of!(Allocations, last_id)).fetch_add(1, Ordering::Relaxed) + 1
}

/// An allocation could not be recorded.
pub fn count_lost() {
    field(offset_of!(Allocations, lost)).fetch_add(1, Ordering::Relaxed);
}

/// The program has looked up a function of the CUDA driver that we do not know.
pub fn count_unknown() {
    field(offset_of!(Allocations, cuda_unknown)).fetch_add(1, Ordering::Relaxed);
}

/// Shows the agent a new area, which is complete.
///
/// # Safety
/// It must stay for ever, and not be linked yet.
pub unsafe fn link_area(area: *mut Area) {
    // SAFETY: the caller's word.
    unsafe { link(field(offset_of!(Allocations, areas)), area as u64, &raw mut (*area).next) };
}

/// Shows the agent a new block of CUDA allocations, which is complete.
///
/// # Safety
/// It must stay for ever, and not be linked yet.
pub unsafe fn link_cuda_block(block: *mut CudaBlock) {
    // SAFETY: the caller's word.
    unsafe { link(field(offset_of!(Allocations, cuda_blocks)), block as u64, &raw mut (*block).next) };
}

/// Puts `new` in front of a list that the agent reads.
///
/// # Safety
/// `next_of_new` must be the link in it, which nobody else touches.
pub unsafe fn link(head: &AtomicU64, new: u64, next_of_new: *mut u64) {
    let mut next = head.load(Ordering::Relaxed);
    loop {
        // SAFETY: the caller's word; the agent follows the link once the head leads to it.
        unsafe { next_of_new.write_volatile(next) };
        match head.compare_exchange_weak(next, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(newer) => next = newer,
        }
    }
}

/// A field, by its offset.
fn field(offset: usize) -> &'static AtomicU64 {
    // SAFETY: within the table, whose fields are all of eight bytes; it lives for ever, and is touched as atomics only.
    unsafe { AtomicU64::from_ptr(ALLOCATIONS.get().byte_add(offset).cast()) }
}
