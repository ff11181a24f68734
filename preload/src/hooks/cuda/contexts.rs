//! Contexts, with which all that belongs to them goes.

use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU64, Ordering};

use ckpt_wire::allocations::CudaAllocation;

use super::driver::{CuResult, Handle, Real, SUCCESS, driver_hooks};
use super::records;

/// The primary context of each device, as it was handed out last.
static PRIMARY: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

type GetState = unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> CuResult;
static GET_STATE: Real<GetState> = Real::new(c"cuDevicePrimaryCtxGetState");

fn forget(context: u64) {
    if context != 0 {
        records::remove_where(|allocation: &CudaAllocation| allocation.context == context);
    }
}

fn primary(device: c_int) -> Option<&'static AtomicU64> {
    PRIMARY.get(usize::try_from(device).ok()?)
}

fn forget_primary(device: c_int) {
    if let Some(context) = primary(device) {
        forget(context.swap(0, Ordering::Relaxed));
    }
}

/// Whether a device's primary context is there at all.
fn is_active(device: c_int) -> bool {
    let (mut flags, mut active) = (0, 1);
    // SAFETY: two live numbers.
    let known = GET_STATE.get().map(|get| unsafe { get(device, &raw mut flags, &raw mut active) });
    known != Some(SUCCESS) || active != 0
}

driver_hooks! {
    "cuDevicePrimaryCtxRetain" 7000 =>
    cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) |real| {
        let result = real(context, device);
        if result == SUCCESS && let Some(place) = primary(device) {
            place.store(*context as u64, Ordering::Relaxed);
        }
        result
    }

    /// The last one to let it go ends it.
    "cuDevicePrimaryCtxRelease" 11000 =>
    cuDevicePrimaryCtxRelease_v2(device: c_int) |real| {
        let result = real(device);
        if result == SUCCESS && !is_active(device) {
            forget_primary(device);
        }
        result
    }

    "cuDevicePrimaryCtxReset" 11000 =>
    cuDevicePrimaryCtxReset_v2(device: c_int) |real| {
        let result = real(device);
        if result == SUCCESS {
            forget_primary(device);
        }
        result
    }

    "cuCtxDestroy" 4000 =>
    cuCtxDestroy_v2(context: Handle) |real| {
        let result = real(context);
        if result == SUCCESS {
            forget(context as u64);
        }
        result
    }
}
