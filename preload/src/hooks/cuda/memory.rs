//! Plain memory, and host memory that the driver pins.

use core::ffi::{c_uint, c_void};

use ckpt_wire::allocations::{CUDA_DEVICE, CUDA_IMPORTED, CUDA_PINNED, CUDA_REGISTERED};

use super::backing::calls::INVALID_VALUE;
use super::backing::{self, ipc};
use super::driver::{CuResult, Handle, SUCCESS, driver_hooks};
use super::{managed, records};

/// `CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED`.
const NOT_REGISTERED: CuResult = 713;

/// A handle of memory in another process, which is passed by value.
#[repr(C)]
pub struct IpcHandle([u8; ipc::HANDLE_BYTES]);

/// Frees what begins at `address` by `free`; its record goes before, and comes back if that fails.
pub fn free(address: u64, free: impl FnOnce() -> CuResult) -> CuResult {
    let record = records::take(address);
    let result = free();
    if result != SUCCESS
        && let Some(record) = record
    {
        records::put(record);
    }
    result
}

/// Opens a handle, ours or the driver's.
///
/// # Safety
/// As for `cuIpcOpenMemHandle`.
unsafe fn open(address: *mut u64, handle: &IpcHandle, flags: c_uint, real: impl FnOnce() -> CuResult) -> CuResult {
    let result = if ipc::is_ours(&handle.0) && !address.is_null() {
        // SAFETY: the caller's word.
        ipc::open(&handle.0, flags).map(|opened| unsafe { address.write(opened) }).err().unwrap_or(SUCCESS)
    } else {
        real()
    };
    if result == SUCCESS {
        // SAFETY: written by whoever has opened it.
        records::add_as(CUDA_IMPORTED, unsafe { address.read() }, 0, 0);
    }
    result
}

driver_hooks! {
    "cuMemAlloc" 3020 =>
    cuMemAlloc_v2(address: *mut u64, bytes: usize) |real| {
        backing::allocate(address, bytes).unwrap_or_else(|| {
            let result = real(address, bytes);
            if result == SUCCESS {
                records::add_plain(CUDA_DEVICE, *address, bytes as u64);
            }
            result
        })
    }

    "cuMemAllocPitch" 3020 =>
    cuMemAllocPitch_v2(address: *mut u64, pitch: *mut usize, width: usize, height: usize, element: c_uint) |real| {
        backing::allocate_rows(address, pitch, width, height, element).unwrap_or_else(|| {
            let result = real(address, pitch, width, height, element);
            if result == SUCCESS {
                records::add_plain(CUDA_DEVICE, *address, (*pitch as u64).saturating_mul(height as u64));
            }
            result
        })
    }

    "cuMemFree" 3020 =>
    cuMemFree_v2(address: u64) |real| {
        managed::free(address, || free(address, || backing::free(address, || real(address))))
    }

    "cuMemAllocHost" 3020 =>
    cuMemAllocHost_v2(place: *mut *mut c_void, bytes: usize) |real| {
        let result = real(place, bytes);
        if result == SUCCESS {
            records::add_plain(CUDA_PINNED, *place as u64, bytes as u64);
        }
        result
    }

    "cuMemHostAlloc" 2020 =>
    cuMemHostAlloc(place: *mut *mut c_void, bytes: usize, flags: c_uint) |real| {
        let result = real(place, bytes, flags);
        if result == SUCCESS {
            records::add_plain(CUDA_PINNED, *place as u64, bytes as u64);
        }
        result
    }

    "cuMemFreeHost" 2000 =>
    cuMemFreeHost(place: *mut c_void) |real| {
        if managed::around(place as u64).is_some() {
            // To the program it is managed, which this does not free.
            return INVALID_VALUE;
        }
        free(place as u64, || real(place))
    }

    "cuMemHostRegister" 6050 =>
    cuMemHostRegister_v2(place: *mut c_void, bytes: usize, flags: c_uint) |real| {
        let result = real(place, bytes, flags);
        if result == SUCCESS {
            records::add_as(CUDA_REGISTERED, place as u64, bytes as u64, 0);
        }
        result
    }

    "cuMemHostUnregister" 4000 =>
    cuMemHostUnregister(place: *mut c_void) |real| {
        if managed::around(place as u64).is_some() {
            // To the program it is managed, which was never registered.
            return NOT_REGISTERED;
        }
        free(place as u64, || real(place))
    }

    "cuIpcGetMemHandle" 4010 =>
    cuIpcGetMemHandle(handle: *mut IpcHandle, address: u64) |real| {
        let result = ipc::get(handle.cast(), address).unwrap_or_else(|| real(handle, address));
        if result == SUCCESS && let Some(allocation) = records::containing(address) {
            records::mark_exported(allocation.address);
        }
        result
    }

    "cuIpcOpenMemHandle" 4010 =>
    cuIpcOpenMemHandle(address: *mut u64, handle: IpcHandle, flags: c_uint) |real| {
        open(address, &handle, flags, || real(address, IpcHandle(handle.0), flags))
    }

    "cuIpcOpenMemHandle" 11000 =>
    cuIpcOpenMemHandle_v2(address: *mut u64, handle: IpcHandle, flags: c_uint) |real| {
        open(address, &handle, flags, || real(address, IpcHandle(handle.0), flags))
    }

    "cuIpcCloseMemHandle" 4010 =>
    cuIpcCloseMemHandle(address: u64) |real| {
        free(address, || ipc::close(address).unwrap_or_else(|| real(address)))
    }

    "cuExternalMemoryGetMappedBuffer" 10000 =>
    cuExternalMemoryGetMappedBuffer(address: *mut u64, memory: Handle, range: *const [u64; 2]) |real| {
        let result = real(address, memory, range);
        if result == SUCCESS {
            // Of the description: the offset, and the bytes.
            records::add_as(CUDA_IMPORTED, *address, (*range)[1], memory as u64);
        }
        result
    }
}
