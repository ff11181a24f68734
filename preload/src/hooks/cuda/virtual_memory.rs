//! Addresses that the program reserves and maps by itself.
//!
//! What counts is the mapped range: a reservation has no content, and physical memory has no address.

use core::ffi::c_ulonglong;

use ckpt_wire::allocations::{CUDA_MAPPED, CudaAllocation};

use super::driver::{SUCCESS, driver_hooks};
use super::records;

driver_hooks! {
    "cuMemMap" 10020 =>
    cuMemMap(address: u64, bytes: usize, offset: usize, memory: c_ulonglong, flags: c_ulonglong) |real| {
        let result = real(address, bytes, offset, memory, flags);
        if result == SUCCESS {
            records::add_as(CUDA_MAPPED, address, bytes as u64, memory);
        }
        result
    }

    /// Unmaps whole mappings, one or several.
    "cuMemUnmap" 10020 =>
    cuMemUnmap(address: u64, bytes: usize) |real| {
        let end = address.saturating_add(bytes as u64);
        let lies_within = |allocation: &CudaAllocation| {
            allocation.kind == CUDA_MAPPED && (address..end).contains(&allocation.address)
        };
        let result = real(address, bytes);
        if result == SUCCESS {
            records::remove_where(lies_within);
        }
        result
    }
}
