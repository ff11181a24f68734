//! Memory in the order of a stream, from pools.
//!
//! Each function has two kinds: for programs with one default stream, and for those with one a thread.

use super::backing;
use super::driver::{Handle, SUCCESS, driver_hooks};
use super::memory::free;
use super::records;
use ckpt_wire::allocations::CUDA_IMPORTED;

driver_hooks! {
    "cuMemAllocAsync" 11020 =>
    cuMemAllocAsync(address: *mut u64, bytes: usize, stream: Handle) |real| {
        let result = real(address, bytes, stream);
        if result == SUCCESS {
            records::add_in_stream(*address, bytes as u64, stream);
        }
        result
    }

    "cuMemAllocAsync" 11020 per_thread =>
    cuMemAllocAsync_ptsz(address: *mut u64, bytes: usize, stream: Handle) |real| {
        let result = real(address, bytes, stream);
        if result == SUCCESS {
            records::add_in_stream(*address, bytes as u64, stream);
        }
        result
    }

    "cuMemAllocFromPoolAsync" 11020 =>
    cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, pool: Handle, stream: Handle) |real| {
        let result = real(address, bytes, pool, stream);
        if result == SUCCESS {
            records::add_in_stream(*address, bytes as u64, stream);
        }
        result
    }

    "cuMemAllocFromPoolAsync" 11020 per_thread =>
    cuMemAllocFromPoolAsync_ptsz(address: *mut u64, bytes: usize, pool: Handle, stream: Handle) |real| {
        let result = real(address, bytes, pool, stream);
        if result == SUCCESS {
            records::add_in_stream(*address, bytes as u64, stream);
        }
        result
    }

    "cuMemFreeAsync" 11020 =>
    cuMemFreeAsync(address: u64, stream: Handle) |real| {
        free(address, || backing::free_in_stream(address, stream, false, || real(address, stream)))
    }

    "cuMemFreeAsync" 11020 per_thread =>
    cuMemFreeAsync_ptsz(address: u64, stream: Handle) |real| {
        free(address, || backing::free_in_stream(address, stream, true, || real(address, stream)))
    }

    /// Memory of a pool in another process.
    "cuMemPoolImportPointer" 11020 =>
    cuMemPoolImportPointer(address: *mut u64, pool: Handle, exported: Handle) |real| {
        let result = real(address, pool, exported);
        if result == SUCCESS {
            records::add_as(CUDA_IMPORTED, *address, 0, pool as u64);
        }
        result
    }
}
