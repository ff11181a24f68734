//! Addresses that the program reserves and maps by itself, and the physical memory behind them. A reservation is nothing:
//! it has no content.

use core::ffi::{c_int, c_ulonglong, c_void};

use ckpt_wire::allocations::{CUDA_MAPPED, CUDA_PHYSICAL, CudaAllocation};

use super::backing;
use super::driver::{SUCCESS, driver_hooks};
use super::records;

/// `CUmemAllocationProp`, as far as it says where.
#[repr(C)]
pub struct Properties {
    kind: c_int,
    handle_types: c_int,
    location_kind: c_int,
    location: c_int,
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: c_int = 1;

/// Another reference, or the first, which the program has to give back.
fn refer(handle: c_ulonglong) {
    records::change(handle, |physical: &mut CudaAllocation| {
        physical.owner += u64::from(physical.what() == CUDA_PHYSICAL);
        false
    });
}

driver_hooks! {
    "cuMemCreate" 10020 =>
    cuMemCreate(handle: *mut c_ulonglong, bytes: usize, properties: *const Properties, flags: c_ulonglong) |real| {
        let result = real(handle, bytes, properties, flags);
        if result == SUCCESS {
            let mut physical = CudaAllocation::new(CUDA_PHYSICAL, *handle, bytes as u64);
            physical.owner = 1;
            if (*properties).location_kind == ON_DEVICE {
                physical.device = (*properties).location;
            }
            records::add(physical);
        }
        result
    }

    /// What is mapped somewhere has a handle, and one more reference to it.
    "cuMemRetainAllocationHandle" 11000 =>
    cuMemRetainAllocationHandle(handle: *mut c_ulonglong, place: *mut c_void) |real| {
        // What cuMemAlloc has given has no handle.
        let place = if backing::has(place as u64) { core::ptr::null_mut() } else { place };
        let result = real(handle, place);
        if result == SUCCESS {
            refer(*handle);
        }
        result
    }

    "cuMemRelease" 10020 =>
    cuMemRelease(handle: c_ulonglong) |real| {
        let result = real(handle);
        if result == SUCCESS {
            records::change(handle, |physical: &mut CudaAllocation| {
                physical.owner = physical.owner.saturating_sub(1);
                physical.what() == CUDA_PHYSICAL && physical.owner == 0
            });
        }
        result
    }

    "cuMemMap" 10020 =>
    cuMemMap(address: u64, bytes: usize, offset: usize, memory: c_ulonglong, flags: c_ulonglong) |real| {
        let result = real(address, bytes, offset, memory, flags);
        if result == SUCCESS {
            records::add_as(CUDA_MAPPED, address, bytes as u64, memory);
            if records::at(memory).is_some_and(|physical| physical.is_exported()) {
                records::mark_exported(address);
            }
        }
        result
    }

    "cuMemExportToShareableHandle" 10020 =>
    cuMemExportToShareableHandle(to: *mut c_void, memory: c_ulonglong, kind: c_int, flags: c_ulonglong) |real| {
        let result = real(to, memory, kind, flags);
        if result == SUCCESS {
            records::mark_exported(memory);
        }
        result
    }

    /// Unmaps whole mappings, one or several.
    "cuMemUnmap" 10020 =>
    cuMemUnmap(address: u64, bytes: usize) |real| {
        let end = address.saturating_add(bytes as u64);
        let lies_within = |allocation: &CudaAllocation| {
            allocation.what() == CUDA_MAPPED && (address..end).contains(&allocation.address)
        };
        let result = real(address, bytes);
        if result == SUCCESS {
            records::remove_where(lies_within);
        }
        result
    }
}
