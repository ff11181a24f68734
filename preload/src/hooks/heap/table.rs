//! The table of large allocations, laid out in [`ckpt_wire::allocations`].
//!
//! An address belongs to whoever has allocated it, so two threads never write the same entry at once: the entry is
//! written when the allocator has given the address away, and cleared before it gets it back. An allocation that was
//! freed by a way that we do not see leaves an entry that is wrong until the next one takes its place; whoever reads
//! the table holds it against the mappings.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use ckpt_wire::allocations::{AREA_BYTES, AREA_GRANULES, Allocation, Area, GRANULE_BYTES};

use super::shapes::AREAS_MAX;
use crate::hooks::recorded;
use crate::sys;

/// The entries of each area, or null. The hooks read it.
pub static AREAS: [AtomicPtr<Area>; AREAS_MAX] = [const { AtomicPtr::new(core::ptr::null_mut()) }; AREAS_MAX];

/// Records the allocation of `bytes` at `start`, asked for at `call_site`. A null start is an allocation that failed.
/// Gives `start` back, which is what the hooks return.
pub extern "C" fn record(start: u64, bytes: u64, call_site: u64) -> u64 {
    if start != 0 {
        put(start, Allocation { id: recorded::next_id(), bytes, call_site });
    }
    start
}

/// Forgets the allocation at `start`, which is about to be freed.
pub extern "C" fn forget(start: u64) {
    take(start);
}

/// Takes the allocation at `start` out, if it is in.
pub fn take(start: u64) -> Option<Allocation> {
    let entry = Entry::of(start, existing)?;
    if entry.start().load(Ordering::Relaxed) != start {
        return None;
    }
    // SAFETY: whoever frees the allocation owns its entry.
    let allocation = unsafe { entry.allocation().read() };
    entry.start().store(0, Ordering::Release);
    Some(allocation)
}

/// The allocation that `address` lies in, at its start or inside, with its start: the nearest that begins before it.
pub fn containing(address: u64) -> Option<(u64, Allocation)> {
    let mut granule_start = address / GRANULE_BYTES * GRANULE_BYTES;
    loop {
        // An area without entries has no allocation that begins in it.
        let Some(entry) = Entry::of(granule_start, existing) else {
            granule_start = (granule_start / AREA_BYTES * AREA_BYTES).checked_sub(GRANULE_BYTES)?;
            continue;
        };
        let start = entry.start().load(Ordering::Acquire);
        if start != 0 && start <= address {
            // SAFETY: within the area; whoever frees it at this moment makes the question meaningless.
            let allocation = unsafe { entry.allocation().read_volatile() };
            return (address - start < allocation.bytes).then_some((start, allocation));
        }
        granule_start = granule_start.checked_sub(GRANULE_BYTES)?;
    }
}

/// Writes an allocation that the caller owns.
pub fn put(start: u64, allocation: Allocation) {
    let Some(entry) = Entry::of(start, existing_or_new) else {
        recorded::count_lost();
        return;
    };
    // One that was freed unseen may still be there.
    entry.start().store(0, Ordering::Relaxed);
    core::sync::atomic::fence(Ordering::Release);
    // SAFETY: the caller owns the allocation, and with it the entry; the start that shows it is set behind it.
    unsafe { entry.allocation().write(allocation) };
    entry.start().store(start, Ordering::Release);
}

/// The place of an address.
struct Entry {
    area: *mut Area,
    granule: usize,
}

impl Entry {
    fn of(start: u64, area: fn(usize) -> Option<*mut Area>) -> Option<Self> {
        let granule = (start / GRANULE_BYTES) as usize % AREA_GRANULES;
        Some(Self { area: area((start / AREA_BYTES) as usize)?, granule })
    }

    fn start(&self) -> &AtomicU64 {
        // SAFETY: areas stay for ever; the granule is below their number; starts are touched as atomics only.
        unsafe { AtomicU64::from_ptr((&raw mut (*self.area).starts).cast::<u64>().add(self.granule)) }
    }

    fn allocation(&self) -> *mut Allocation {
        // SAFETY: within the area, as above.
        unsafe { (&raw mut (*self.area).allocations).cast::<Allocation>().add(self.granule) }
    }
}

fn existing(index: usize) -> Option<*mut Area> {
    let area = AREAS.get(index)?.load(Ordering::Acquire);
    (!area.is_null()).then_some(area)
}

fn existing_or_new(index: usize) -> Option<*mut Area> {
    existing(index).or_else(|| new_area(index))
}

/// Maps the entries of an area. When two threads do it at once, the second one's are given back.
#[cold]
fn new_area(index: usize) -> Option<*mut Area> {
    let slot = AREAS.get(index)?;
    let area = sys::map_zeros(size_of::<Area>()).ok()?.cast::<Area>();
    // SAFETY: a fresh mapping of the type's size, all zero, which is a value of it.
    unsafe { (*area).address = index as u64 * AREA_BYTES };
    if let Err(first) = slot.compare_exchange(core::ptr::null_mut(), area, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: ours, and nobody has seen it.
        unsafe { sys::unmap(area.cast(), size_of::<Area>()) };
        return Some(first);
    }
    // SAFETY: it has just been made by this thread alone, and areas stay for ever.
    unsafe { recorded::link_area(area) };
    Some(area)
}
