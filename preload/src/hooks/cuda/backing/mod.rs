//! What `cuMemAlloc` gives is memory that libckpt.so has mapped itself, with the driver's virtual-memory calls.
//!
//! The driver keeps what it allocates itself to itself. Physical memory that was mapped can be given to another process by
//! a descriptor, which reads it while the program runs on, and it can be taken from behind its addresses and put back
//! there. It is made in **pieces**, which the agent sees (`shown`). An allocation of up to [`SMALL_MAX`] bytes is a part of
//! a **slab**, a piece of one granule; a larger one has a piece of its own.
//!
//! The program must not notice. What the driver answers about such memory is put right (`answers`); peers (`peers`) and
//! other processes (`ipc`) get at it as at memory of the driver's; it waits before it is freed, and goes with its context.
//! Where a device or a call cannot do it, and with `CKPT_DEVICE_BACKING=native`, memory is the driver's.
//!
//! No lock of ours is held while the driver is called: it may wait for its devices.

pub mod answers;
pub mod calls;
pub mod ipc;
pub mod kept;
mod nodes;
pub mod peers;
pub mod pieces;
mod places;
pub mod renewal;
mod shown;
mod support;
pub mod synchrony;
mod table;

use core::ffi::c_uint;
use core::sync::atomic::{AtomicBool, Ordering};

use super::driver::{CuResult, Handle, SUCCESS};
use super::records;
use calls::{INVALID_VALUE, OUT_OF_MEMORY};
use pieces::Piece;
use support::{Place, SLAB_BYTES};
use table::{Found, find, with};

/// Bytes of the largest allocation that is a part of a slab.
const SMALL_MAX: usize = SLAB_BYTES / 2;

/// Whether anything is backed. Before our constructor has read the user's wish, nothing is.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// From now on, allocations are backed, or are not.
pub fn switch(is_on: bool) {
    IS_ON.store(is_on, Ordering::Relaxed);
}

/// In a child of fork, where nothing of the parent's can be used: the driver says so of each call.
pub fn begin_anew() {
    with(table::Table::forget_all);
}

/// Allocates `bytes`, and records that. `None` if the driver is to do it.
///
/// # Safety
/// As for `cuMemAlloc`.
pub unsafe fn allocate(address: *mut u64, bytes: usize) -> Option<CuResult> {
    if !IS_ON.load(Ordering::Relaxed) || address.is_null() || bytes == 0 {
        return None;
    }
    let place = support::here()?;
    let given = if bytes <= SMALL_MAX { small(bytes, &place) } else { large(bytes, &place) };
    match given {
        Ok(given) => {
            // SAFETY: the caller's word.
            unsafe { address.write(given) };
            records::add_backed(given, bytes as u64, place.device, place.context as u64);
            Some(SUCCESS)
        }
        Err(OUT_OF_MEMORY) => Some(OUT_OF_MEMORY),
        Err(_) => None,
    }
}

/// Allocates rows as far apart as the driver would have them. `None` if the driver is to do it.
///
/// # Safety
/// As for `cuMemAllocPitch`.
pub unsafe fn allocate_rows(
    address: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> Option<CuResult> {
    if !IS_ON.load(Ordering::Relaxed) || pitch.is_null() || width == 0 || height == 0 {
        return None;
    }
    support::here()?;
    let apart = calls::pitch(width, element).ok()?;
    // SAFETY: the caller's word.
    let result = unsafe { allocate(address, apart.checked_mul(height)?) }?;
    if result == SUCCESS {
        // SAFETY: the caller's word.
        unsafe { pitch.write(apart) };
    }
    Some(result)
}

fn small(bytes: usize, place: &Place) -> Result<u64, CuResult> {
    if let Some(address) = with(|table| table.add_to_slab(bytes, place.context)) {
        return Ok(address);
    }
    // Another thread may be making one, too: then there are two with room.
    let piece = pieces::make(SLAB_BYTES, place)?;
    if !with(|table| table.add_slab(piece, bytes)) {
        return Err(undone(&piece));
    }
    given(&piece)
}

fn large(bytes: usize, place: &Place) -> Result<u64, CuResult> {
    let piece = pieces::make(bytes, place)?;
    if !with(|table| table.add(piece, piece.address, bytes, None)) {
        return Err(undone(&piece));
    }
    given(&piece)
}

/// The address of a new piece's only allocation, when all have access to it who may.
fn given(piece: &Piece) -> Result<u64, CuResult> {
    match peers::let_in(piece) {
        Ok(()) => Ok(piece.address),
        Err(_) => {
            let _ = release(piece.address);
            Err(INVALID_VALUE)
        }
    }
}

/// There is no memory for our tables.
fn undone(piece: &Piece) -> CuResult {
    let _ = pieces::end(piece);
    INVALID_VALUE
}

/// Frees what begins at `address`; `real` does it if it is the driver's.
pub fn free(address: u64, real: impl FnOnce() -> CuResult) -> CuResult {
    free_behind(address, |piece| calls::synchronise(piece.context), real)
}

/// The same, behind what is in a stream.
pub fn free_in_stream(address: u64, stream: Handle, per_thread: bool, real: impl FnOnce() -> CuResult) -> CuResult {
    if calls::is_capturing(stream, per_thread) {
        // No graph can free what it has not allocated: the driver says so.
        return real();
    }
    free_behind(address, |_| calls::synchronise_in_order(stream, per_thread), real)
}

fn free_behind(
    address: u64,
    wait: impl FnOnce(&Piece) -> Result<(), CuResult>,
    real: impl FnOnce() -> CuResult,
) -> CuResult {
    match find(address) {
        Found::Nothing => real(),
        Found::Allocation(backed, piece) if backed.address == address && backed.origin.is_none() => {
            match wait(&piece) {
                Ok(()) => release(address),
                Err(error) => error,
            }
        }
        Found::Allocation(..) | Found::Unused => calls::current_device().err().unwrap_or(INVALID_VALUE),
    }
}

/// Takes the allocation at `address` out, and its piece if nothing else is in it. If the driver does not take that back,
/// all is as before.
fn release(address: u64) -> CuResult {
    let Some((backed, piece)) = with(|table| table.remove(address)) else { return INVALID_VALUE };
    let Some(piece) = piece else { return SUCCESS };
    match pieces::end(&piece) {
        Ok(()) => {
            with(|table| table.forget(&piece));
            SUCCESS
        }
        Err(error) => {
            with(|table| table.put_back(&backed, piece));
            error
        }
    }
}

/// Whether a pointer leads to backed memory.
pub fn has(address: u64) -> bool {
    !matches!(find(address), Found::Nothing)
}

/// The context that a backed allocation belongs to.
pub fn context_of(address: u64) -> Option<Handle> {
    match find(address) {
        Found::Allocation(_, piece) => Some(piece.context),
        Found::Unused | Found::Nothing => None,
    }
}

/// First address and bytes of the backed allocation that an address lies in.
pub fn range_of(address: u64) -> Option<(u64, usize)> {
    match find(address) {
        Found::Allocation(backed, _) => Some((backed.address, backed.bytes)),
        Found::Unused | Found::Nothing => None,
    }
}

/// Ends a context by `real`, and what it has of backed memory if that ends it: `has_ended` says so behind it.
pub fn end_context(
    context: Handle,
    real: &mut dyn FnMut() -> CuResult,
    has_ended: &mut dyn FnMut(CuResult) -> bool,
) -> CuResult {
    // Another context may be given the same handle as soon as this one is gone.
    mark(context, true);
    let result = real();
    if !has_ended(result) {
        mark(context, false);
        return result;
    }
    with(|table| table.peers.forget(context));
    while let Some(piece) = with(|table| table.take_ended(context)) {
        let _ = pieces::end(&piece);
        with(|table| table.forget(&piece));
    }
    result
}

fn mark(context: Handle, is_ending: bool) {
    with(|table| {
        let mut from = 0;
        while let Some(piece) = table.piece_from(from, context) {
            piece.is_ending = is_ending;
            from = piece.address + piece.bytes as u64;
        }
    });
}
