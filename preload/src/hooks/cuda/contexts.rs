//! Contexts, with which all that belongs to them goes. Where devices are to be held still, each is waited for: so all of
//! them are listed.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use ckpt_wire::allocations::CudaAllocation;

use super::backing::{self, peers};
use super::driver::{CuResult, Handle, Real, SUCCESS, driver_hooks};
use super::{captures, code, hold, keeper, records};

/// The primary context of each device, as it was handed out last.
static PRIMARY: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Contexts that the program has created itself, and their devices; 0 where there is none.
static CREATED: [Created; 64] = [const { Created { context: AtomicU64::new(0), device: AtomicI32::new(0) } }; 64];

struct Created {
    context: AtomicU64,
    device: AtomicI32,
}

/// In place of a context that is being listed. Nobody reads it while the gate is closed: contexts are made inside of it.
const UNFINISHED: u64 = 1;

/// How many found no room in the list.
static UNLISTED: AtomicU32 = AtomicU32::new(0);

type GetState = unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> CuResult;
static GET_STATE: Real<GetState> = Real::new(c"cuDevicePrimaryCtxGetState");

type DisablePeerAccess = unsafe extern "C" fn(Handle) -> CuResult;
static DISABLE_PEER_ACCESS: Real<DisablePeerAccess> = Real::new(c"cuCtxDisablePeerAccess");

/// All contexts that there are with their devices, or none if some could not be listed.
pub fn all() -> Option<impl Iterator<Item = (c_int, Handle)>> {
    let primary = (0..).zip(&PRIMARY).map(|(device, context)| (device, context.load(Ordering::Relaxed)));
    let created = CREATED.iter().map(|one| (one.device.load(Ordering::Relaxed), one.context.load(Ordering::Acquire)));
    let there = primary.chain(created).filter(|&(_, context)| context != 0);
    (UNLISTED.load(Ordering::Relaxed) == 0).then(|| there.map(|(device, context)| (device, context as Handle)))
}

fn list(context: u64, device: c_int) {
    for one in &CREATED {
        if one.context.compare_exchange(0, UNFINISHED, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            one.device.store(device, Ordering::Relaxed);
            one.context.store(context, Ordering::Release);
            hold::contexts().fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
    UNLISTED.fetch_add(1, Ordering::Relaxed);
}

/// # Safety
/// The driver has made the context just now.
unsafe fn created(result: CuResult, context: *const Handle, device: c_int) -> CuResult {
    if result == SUCCESS {
        // SAFETY: the caller's word.
        list(unsafe { *context } as u64, device);
        keeper::start();
    }
    result
}

fn forget(context: u64) {
    if context != 0 {
        // One alone: by now there may be a new one with that handle.
        let end =
            |one: &Created| one.context.compare_exchange(context, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        let _ = CREATED.iter().any(end);
        captures::forget_context(context);
        code::forget_context(context);
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
    /// From now on the driver has devices open, with a context or without.
    "cuInit" 2000 =>
    cuInit(flags: c_uint) |real| {
        let result = real(flags);
        if result == SUCCESS {
            keeper::start();
        }
        result
    }

    "cuDevicePrimaryCtxRetain" 7000 =>
    cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) |real| {
        let result = real(context, device);
        if result == SUCCESS {
            if let Some(place) = primary(device) {
                let context = *context as u64;
                if place.swap(context, Ordering::Relaxed) != context {
                    hold::contexts().fetch_add(1, Ordering::Relaxed);
                }
            } else {
                UNLISTED.fetch_add(1, Ordering::Relaxed);
            }
            keeper::start();
        }
        result
    }

    "cuCtxCreate" 3020 =>
    cuCtxCreate_v2(context: *mut Handle, flags: c_uint, device: c_int) |real| {
        created(real(context, flags, device), context, device)
    }

    "cuCtxCreate" 11040 =>
    cuCtxCreate_v3(context: *mut Handle, affinities: *const c_void, count: c_int, flags: c_uint, device: c_int) |real| {
        created(real(context, affinities, count, flags, device), context, device)
    }

    "cuCtxCreate" 12050 =>
    cuCtxCreate_v4(context: *mut Handle, parameters: *const c_void, flags: c_uint, device: c_int) |real| {
        created(real(context, parameters, flags, device), context, device)
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
            SUCCESS => peers::enabled(owner, || DISABLE_PEER_ACCESS.get().map_or(SUCCESS, |undo| undo(owner))),
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
