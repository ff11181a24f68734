//! Contexts, with which all that belongs to them goes.

use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU64, Ordering};

use ckpt_wire::allocations::CudaAllocation;

use super::backing::{self, peers};
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

/// Calls `end`, behind which the primary context of a device is gone if `is_gone` says so.
fn end_primary(device: c_int, end: &mut dyn FnMut() -> CuResult, is_gone: fn(c_int, CuResult) -> bool) -> CuResult {
    let Some(place) = primary(device) else { return end() };
    let context = place.load(Ordering::Relaxed);
    backing::end_context(context as Handle, end, &mut |result| {
        let is_gone = is_gone(device, result);
        if is_gone {
            // Unless another one has been made since.
            let _ = place.compare_exchange(context, 0, Ordering::Relaxed, Ordering::Relaxed);
            forget(context);
        }
        is_gone
    })
}

/// Whether a device's primary context is there at all.
fn is_active(device: c_int) -> bool {
    let (mut flags, mut active) = (0, 1);
    // SAFETY: two live numbers.
    let known = GET_STATE.get().map(|get| unsafe { get(device, &raw mut flags, &raw mut active) });
    known != Some(SUCCESS) || active != 0
}

/// The last one to let it go ends it.
fn is_released(device: c_int, result: CuResult) -> bool {
    result == SUCCESS && !is_active(device)
}

fn is_reset(_device: c_int, result: CuResult) -> bool {
    result == SUCCESS
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

    "cuDevicePrimaryCtxRelease" 7000 =>
    cuDevicePrimaryCtxRelease(device: c_int) |real| {
        end_primary(device, &mut || real(device), is_released)
    }

    "cuDevicePrimaryCtxRelease" 11000 =>
    cuDevicePrimaryCtxRelease_v2(device: c_int) |real| {
        end_primary(device, &mut || real(device), is_released)
    }

    "cuDevicePrimaryCtxReset" 7000 =>
    cuDevicePrimaryCtxReset(device: c_int) |real| { end_primary(device, &mut || real(device), is_reset) }

    "cuDevicePrimaryCtxReset" 11000 =>
    cuDevicePrimaryCtxReset_v2(device: c_int) |real| {
        end_primary(device, &mut || real(device), is_reset)
    }

    "cuCtxDestroy" 4000 =>
    cuCtxDestroy_v2(context: Handle) |real| {
        let result = backing::end_context(context, &mut || real(context), &mut |result| result == SUCCESS);
        if result == SUCCESS {
            forget(context as u64);
        }
        result
    }

    "cuCtxEnablePeerAccess" 4000 =>
    cuCtxEnablePeerAccess(owner: Handle, flags: c_uint) |real| {
        match real(owner, flags) {
            SUCCESS => peers::enabled(owner, || super::cuCtxDisablePeerAccess::REAL.get().map_or(SUCCESS, |undo| undo(owner))),
            error => error,
        }
    }

    "cuCtxDisablePeerAccess" 4000 =>
    cuCtxDisablePeerAccess(owner: Handle) |real| {
        let result = real(owner);
        if result == SUCCESS {
            peers::disabled(owner);
        }
        result
    }
}
