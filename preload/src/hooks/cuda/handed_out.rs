//! What of the program's other processes may have beside memory that has a record of its own: events, pools, and files of memory. The
//! driver checkpoints none of it.
//!
//! That there has been one is remembered for ever: an event or a pool that ends leaves those in other processes as they are.

use core::ffi::{c_int, c_ulonglong, c_void};
use core::sync::atomic::Ordering;

use ckpt_wire::device::{EVENTS_HANDED_OUT, POOLS_HANDED_OUT};

use super::driver::{Handle, SUCCESS, driver_hooks};
use super::{hold, records};

/// Of `CU_IPC_HANDLE_SIZE` bytes, which are passed by value.
#[repr(C)]
pub struct EventHandle([u8; 64]);

fn remember(what: u32, result: c_int) -> c_int {
    if result == SUCCESS {
        hold::handed_out().fetch_or(what, Ordering::Relaxed);
    }
    result
}

driver_hooks! {
    "cuIpcGetEventHandle" 4010 =>
    cuIpcGetEventHandle(handle: *mut EventHandle, event: Handle) |real| {
        remember(EVENTS_HANDED_OUT, real(handle, event))
    }

    "cuIpcOpenEventHandle" 4010 =>
    cuIpcOpenEventHandle(event: *mut Handle, handle: EventHandle) |real| {
        remember(EVENTS_HANDED_OUT, real(event, handle))
    }

    "cuMemPoolExportToShareableHandle" 11020 =>
    cuMemPoolExportToShareableHandle(to: *mut c_void, pool: Handle, kind: c_int, flags: c_ulonglong) |real| {
        remember(POOLS_HANDED_OUT, real(to, pool, kind, flags))
    }

    "cuMemPoolImportFromShareableHandle" 11020 =>
    cuMemPoolImportFromShareableHandle(pool: *mut Handle, from: *mut c_void, kind: c_int, flags: c_ulonglong) |real| {
        remember(POOLS_HANDED_OUT, real(pool, from, kind, flags))
    }

    /// A file (dma-buf) that leads to memory.
    "cuMemGetHandleForAddressRange" 11070 =>
    cuMemGetHandleForAddressRange(to: *mut c_void, address: u64, bytes: usize, kind: c_int, flags: c_ulonglong) |real| {
        let result = real(to, address, bytes, kind, flags);
        if result == SUCCESS {
            records::mark_exported_within(address, bytes as u64);
        }
        result
    }
}
