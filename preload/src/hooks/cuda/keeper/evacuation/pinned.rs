//! Memory that the driver has pinned in its place: what has not come back as managed memory.
//!
//! The driver pins a span in a context, and the pinning ends with that one. So it is done in a context that has allocations in the
//! span: where that ends, so do these. (A page that allocations of several contexts share is pinned in one of them.)

use ckpt_wire::allocations::{CUDA_MANAGED_EVACUATED, CUDA_MANAGED_REGISTERED, CudaAllocation};

use super::super::commands::done;
use super::super::functions::{self, DEVICE_MAP, PORTABLE};
use super::spans::{self, Span, Taken};
use super::{enter, enter_any_context, first_within, for_each, for_each_within, put_back, set_kind};
use crate::hooks::cuda::driver::{CuResult, SUCCESS};
use crate::hooks::cuda::managed;
use crate::sys;

/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: CuResult = 801;
/// `CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED`.
const NOT_REGISTERED: CuResult = 713;

/// Has the driver pin what is not its own in its place. How many bytes are pinned then.
///
/// # Errors
/// The driver's, or a negative number of the kernel's. What is not pinned can be tried again.
pub fn register_all() -> Result<u64, CuResult> {
    let mut spans = spans::take();
    for span in spans.all().iter_mut().filter(|span| !span.is_registered) {
        put_back(span)?;
        enter_context_of(span)?;
        register(span)?;
        span.is_registered = true;
        for_each_within(span, CUDA_MANAGED_EVACUATED, |found| {
            set_kind(found.address, CUDA_MANAGED_REGISTERED, span.start as u64);
            Ok(())
        })?;
        managed::may_be_ours();
    }
    let mut pinned = 0;
    for_each(CUDA_MANAGED_REGISTERED, |found| {
        pinned += found.bytes;
        Ok(())
    })?;
    Ok(pinned)
}

/// A context that ends no sooner than an allocation in there.
fn enter_context_of(span: &Span) -> Result<(), CuResult> {
    let found = first_within(span, |found| found.what() == CUDA_MANAGED_EVACUATED && found.context != 0);
    found.map_or_else(enter_any_context, |found| enter(found.context))
}

fn register(span: &Span) -> Result<(), CuResult> {
    let (place, mut on_device) = (span.start as *mut core::ffi::c_void, 0_u64);
    // SAFETY: ordinary memory, which stays as long as it is registered, and a place for an address.
    unsafe {
        done(functions::register(place, span.bytes, PORTABLE | DEVICE_MAP))?;
        let found = done(functions::device_pointer(&raw mut on_device, place, 0));
        if found.is_ok() && on_device == span.start as u64 {
            return Ok(());
        }
        functions::unregister(place);
        found.and(Err(NOT_SUPPORTED))
    }
}

/// What was pinned in its place is ordinary memory that devices do not reach.
///
/// # Errors
/// The driver's.
pub fn unregister_all(spans: &mut Taken) -> Result<(), CuResult> {
    let outcome = spans.all().iter_mut().filter(|span| span.is_registered).try_for_each(unregister);
    // Allocations that have ended with their contexts are in no record any more.
    let is_unused = |span: &Span| first_within(span, CudaAllocation::can_be_evacuated).is_none();
    spans.forget(|span| {
        let is_unused = is_unused(span);
        if is_unused {
            give_up(span);
        }
        is_unused
    });
    outcome
}

fn unregister(span: &mut Span) -> Result<(), CuResult> {
    end_pinning(span)?;
    span.is_registered = false;
    for_each_within(span, CUDA_MANAGED_REGISTERED, |found| {
        set_kind(found.address, CUDA_MANAGED_EVACUATED, 0);
        Ok(())
    })
}

fn end_pinning(span: &Span) -> Result<(), CuResult> {
    // SAFETY: registered by us, and no device uses it: the gate is closed, or nothing in there is allocated any more.
    match unsafe { functions::unregister(span.start as *mut _) } {
        // The context in which it was registered may have ended.
        SUCCESS | NOT_REGISTERED => Ok(()),
        error => Err(error),
    }
}

/// Ends an allocation that was pinned in its place, whose record is gone already, and its span with the last one in there.
///
/// # Errors
/// The driver's.
pub fn free(gone: &CudaAllocation) -> Result<(), CuResult> {
    let mut spans = spans::take();
    let Some(span) = spans.beginning_at(gone.owner as usize) else { return Ok(()) };
    if first_within(&span, |found| found.what() == CUDA_MANAGED_REGISTERED).is_some() {
        return Ok(());
    }
    end_pinning(&span)?;
    give_up(&span);
    spans.forget(|other| other.start == span.start);
    Ok(())
}

/// Leaves the addresses of a span, in which nothing is allocated any more, to the driver or to anybody.
fn give_up(span: &Span) {
    if span.is_reserved {
        // SAFETY: ours; there is no moment in which somebody else could map something there.
        let _ = unsafe { sys::replace_by_reservation(span.start, span.bytes) };
    } else {
        // SAFETY: ours.
        unsafe { sys::unmap(span.start as *mut u8, span.bytes) };
    }
}
