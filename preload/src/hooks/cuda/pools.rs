//! Memory in the order of a stream, from pools.
//!
//! Each function has two kinds: for programs with one default stream, and for those with one a thread.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use super::backing;
use super::driver::{Handle, SUCCESS, driver_hooks};
use super::memory::free;
use super::records;
use ckpt_wire::allocations::CUDA_IMPORTED;

/// Pools that the program has made; 0 where there is none. Others are not known to the keeper, and lose nothing but time.
static CREATED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Those that there are.
pub fn created() -> impl Iterator<Item = Handle> {
    CREATED.iter().map(|pool| pool.load(Ordering::Acquire) as Handle).filter(|pool| !pool.is_null())
}

/// Puts one pool into the place of another one, of which there may be none.
fn replace(old: u64, new: u64) -> bool {
    CREATED.iter().any(|pool| pool.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok())
}

driver_hooks! {
    "cuMemPoolCreate" 11020 =>
    cuMemPoolCreate(pool: *mut Handle, properties: *const c_void) |real| {
        let result = real(pool, properties);
        if result == SUCCESS {
            let _ = replace(0, *pool as u64);
        }
        result
    }

    "cuMemPoolDestroy" 11020 =>
    cuMemPoolDestroy(pool: Handle) |real| {
        // Before it is gone: another one may be given its handle at once.
        let _ = !pool.is_null() && replace(pool as u64, 0);
        real(pool)
    }

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
