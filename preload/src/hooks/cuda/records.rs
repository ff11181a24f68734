//! The records of what the driver has allocated, laid out in [`ckpt_wire::allocations`], and an index of them by address.
//!
//! A record is made when the driver has given an address away, and taken out before it gets it back. If freeing fails,
//! the record comes back as it was.

use core::sync::atomic::{AtomicU64, Ordering};

use ckpt_wire::allocations::{
    CUDA_BLOCK_ALLOCATIONS, CUDA_DEVICE, CUDA_EXPORTED, CUDA_MAPPED, CudaAllocation, CudaBlock,
};

use super::driver::Handle;
use super::index::Index;
use super::lock::Lock;
use super::{attributes, call_site};
use crate::hooks::recorded;
use crate::shared::Shared;
use crate::sys;

/// Which records there are. Used by whoever holds the lock.
struct Records {
    by_address: Index<CudaAllocation>,
    /// The first free record: each has the address of the next in its `bytes`.
    free: *mut CudaAllocation,
}

static RECORDS: Shared<Records> = Shared::new(Records { by_address: Index::new(), free: core::ptr::null_mut() });

/// Records `bytes` of plain memory at `address`: of the kind that the driver says it is, or `kind` if it does not know.
pub fn add_plain(kind: u32, address: u64, bytes: u64) {
    add(described(CudaAllocation::new(kind, address, bytes), true));
}

/// Records `bytes` of plain memory at `address` that libckpt.so has backed: the driver knows less of it.
pub fn add_backed(address: u64, bytes: u64, device: i32, context: u64) {
    let allocation = CudaAllocation::new(CUDA_DEVICE, address, bytes);
    add(CudaAllocation { device, context, ..allocation });
}

/// The same as `add_plain`, allocated in the order of a stream; the driver says from which pool.
pub fn add_in_stream(address: u64, bytes: u64, stream: Handle) {
    let mut allocation = CudaAllocation::new(CUDA_DEVICE, address, bytes);
    allocation.stream = stream as u64;
    add(described(allocation, true));
}

/// Records `bytes` of memory at `address` as being of `kind`; 0 for as many as the driver says. `owner` is the pool, module
/// or graph, or 0.
pub fn add_as(kind: u32, address: u64, bytes: u64, owner: u64) {
    let bytes = if bytes == 0 { attributes::range(address).map_or(0, |range| range.end - range.start) } else { bytes };
    let mut allocation = described(CudaAllocation::new(kind, address, bytes), false);
    if owner != 0 {
        allocation.owner = owner;
    }
    add(allocation);
}

/// With what the driver says of it; its kind only if that is to be asked, too.
fn described(mut allocation: CudaAllocation, asks_kind: bool) -> CudaAllocation {
    if let Some(attributes) = attributes::of(allocation.address) {
        if asks_kind {
            allocation.kind = attributes.kind;
        }
        allocation.device = attributes.device;
        allocation.context = attributes.context;
        allocation.owner = attributes.pool;
    }
    allocation
}

/// Records an allocation as it is given.
pub fn add(mut allocation: CudaAllocation) {
    allocation.call_site = call_site::current();
    allocation.id = recorded::next_id();
    put(allocation);
}

/// Records an allocation that was taken out, with the id that it had.
pub fn put(allocation: CudaAllocation) {
    let lock = Lock::take();
    // SAFETY: the lock is ours.
    let records = unsafe { &mut *RECORDS.get() };
    // One that has gone unseen may still be there.
    records.remove(allocation.address);
    if records.insert(allocation).is_none() {
        recorded::count_lost();
    }
    drop(lock);
}

/// Takes out the allocation that begins at `address`, if there is one.
pub fn take(address: u64) -> Option<CudaAllocation> {
    let _lock = Lock::take();
    // SAFETY: the lock is ours.
    unsafe { &mut *RECORDS.get() }.remove(address)
}

/// Changes the record at `address`, if there is one, and takes it out if `change` says that it is gone.
pub fn change(address: u64, change: impl FnOnce(&mut CudaAllocation) -> bool) {
    let _lock = Lock::take();
    // SAFETY: the lock is ours.
    let records = unsafe { &mut *RECORDS.get() };
    if let Some(record) = records.at(address) {
        // SAFETY: records that are in the index are live. A reader that sees half of the change reads it again.
        if change(unsafe { &mut *record }) {
            records.remove(address);
        }
    }
}

/// The same with all records.
fn change_all(change: &mut dyn FnMut(&mut CudaAllocation) -> bool) {
    let _lock = Lock::take();
    // SAFETY: the lock is ours.
    let records = unsafe { &mut *RECORDS.get() };
    let mut next = records.by_address.first_from(0);
    while let Some((address, record)) = next {
        // SAFETY: as in `change`.
        if change(unsafe { &mut *record }) {
            records.remove(address);
        }
        next = address.checked_add(1).and_then(|from| records.by_address.first_from(from));
    }
}

/// Takes out all that `is_gone` says of.
pub fn remove_where(is_gone: impl Fn(&CudaAllocation) -> bool) {
    change_all(&mut |allocation| is_gone(allocation));
}

/// Other processes may have the memory of this handle from now on, wherever it is mapped; or what begins at this address.
pub fn mark_exported(handle: u64) {
    change_all(&mut |allocation| {
        if allocation.address == handle || allocation.what() == CUDA_MAPPED && allocation.owner == handle {
            allocation.kind |= CUDA_EXPORTED;
        }
        false
    });
}

/// Other processes may have these bytes from now on.
pub fn mark_exported_within(address: u64, bytes: u64) {
    let end = address.saturating_add(bytes);
    change_all(&mut |allocation| {
        if allocation.is_memory() && allocation.address < end && address < allocation.address + allocation.bytes {
            allocation.kind |= CUDA_EXPORTED;
        }
        false
    });
}

/// The first allocation from an address, or handle, on of which `is_meant` says so.
pub fn next(mut from: u64, is_meant: impl Fn(&CudaAllocation) -> bool) -> Option<CudaAllocation> {
    let _lock = Lock::take();
    // SAFETY: the lock is ours.
    let records = unsafe { &mut *RECORDS.get() };
    loop {
        let (address, record) = records.by_address.first_from(from)?;
        // SAFETY: records that are in the index are live.
        let allocation = unsafe { record.read() };
        if is_meant(&allocation) {
            return Some(allocation);
        }
        from = address.checked_add(1)?;
    }
}

/// The first one from `from` on and before `end`: nothing behind that is looked at.
pub fn next_before(from: u64, end: u64, is_meant: impl Fn(&CudaAllocation) -> bool) -> Option<CudaAllocation> {
    next(from, |found| found.address >= end || is_meant(found)).filter(|found| found.address < end)
}

/// The allocation that begins at `address`, or has this handle.
pub fn at(address: u64) -> Option<CudaAllocation> {
    let _lock = Lock::take();
    // SAFETY: the lock is ours, and records that are in the index are live.
    unsafe { (*RECORDS.get()).at(address).map(|record| record.read()) }
}

/// The allocation of memory that `address` lies in, at its start or inside.
pub fn containing(address: u64) -> Option<CudaAllocation> {
    let _lock = Lock::take();
    // SAFETY: the lock is ours.
    let (_, record) = unsafe { &mut *RECORDS.get() }.by_address.last_to(address)?;
    // SAFETY: records that are in the index are live.
    let allocation = unsafe { record.read() };
    (allocation.is_memory() && address - allocation.address < allocation.bytes.max(1)).then_some(allocation)
}

impl Records {
    /// The record of what begins at `address`.
    fn at(&mut self, address: u64) -> Option<*mut CudaAllocation> {
        self.by_address.first_from(address).filter(|(found, _)| *found == address).map(|(_, record)| record)
    }

    fn insert(&mut self, allocation: CudaAllocation) -> Option<()> {
        let record = self.free_record()?;
        // SAFETY: a free record, which is ours; the next one is in it.
        let next = unsafe { (*record).bytes } as *mut CudaAllocation;
        if !self.by_address.insert(allocation.address, record) {
            return None;
        }
        self.free = next;
        // SAFETY: as above. A reader believes the record from when it has an id.
        unsafe {
            let mut shown = allocation;
            shown.id = 0;
            record.write(shown);
        }
        id_of(record).store(allocation.id, Ordering::Release);
        Some(())
    }

    fn remove(&mut self, address: u64) -> Option<CudaAllocation> {
        let record = self.by_address.remove(address)?;
        // SAFETY: records that are in the index are live.
        let allocation = unsafe { record.read() };
        id_of(record).store(0, Ordering::Release);
        // SAFETY: free now, and ours.
        unsafe { (*record).bytes = self.free as u64 };
        self.free = record;
        Some(allocation)
    }

    /// A record that is free; a block of new ones is mapped when there is none.
    fn free_record(&mut self) -> Option<*mut CudaAllocation> {
        if self.free.is_null() {
            let block = sys::map_zeros(size_of::<CudaBlock>()).ok()?.cast::<CudaBlock>();
            for place in 0..CUDA_BLOCK_ALLOCATIONS {
                // SAFETY: within the block, which nobody else knows yet.
                unsafe {
                    let record = (&raw mut (*block).allocations).cast::<CudaAllocation>().add(place);
                    (*record).bytes = self.free as u64;
                    self.free = record;
                }
            }
            // SAFETY: complete; blocks stay for ever.
            unsafe { recorded::link_cuda_block(block) };
        }
        Some(self.free)
    }
}

fn id_of(record: *mut CudaAllocation) -> &'static AtomicU64 {
    // SAFETY: blocks stay for ever; the id is the record's first field, aligned, and touched as an atomic from outside.
    unsafe { AtomicU64::from_ptr(&raw mut (*record).id) }
}
