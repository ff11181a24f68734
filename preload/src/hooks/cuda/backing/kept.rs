//! Pieces whose memory another process keeps while the driver has let the devices go: their addresses stay, and what is behind
//! them goes and comes back.
//!
//! The keeper alone does this, while the gate is closed: nobody makes or ends pieces meanwhile.

use core::ffi::c_int;

use super::calls;
use super::peers;
use super::pieces::{self, Piece};
use super::shown;
use super::support;
use super::table::with;
use crate::hooks::cuda::driver::CuResult;
use crate::sys;

/// Takes their memory from behind all pieces that the process `keeper` keeps a descriptor of.
///
/// # Errors
/// The driver's, or a negative number of the kernel's: when it could not be had back from there, before anything is taken, or
/// when it cannot be taken. Then [`take_back`] makes all as it was.
pub fn let_go(keeper: c_int) -> Result<(), CuResult> {
    let is_kept = |piece: &Piece| shown::kept(piece.entry) != 0 && !piece.is_away && piece.descriptor < 0;
    for_each(is_kept, |piece| import(piece, keeper).map(calls::release))?;
    for_each(is_kept, |piece| {
        calls::unmap(piece.address, piece.bytes)?;
        set(piece.address, |piece| piece.is_away = true);
        Ok(())
    })
}

/// Whether the memory of some piece has been taken.
pub fn are_away() -> bool {
    next(0, |piece| piece.is_away).is_some()
}

/// Puts memory back behind all pieces that have none: what the process `keeper` has kept of each; or new memory, whose content is
/// nothing, if that is 0. How many pieces have new memory.
///
/// # Errors
/// The driver's, or a negative number of the kernel's. What is back stays; the rest can be tried again.
pub fn take_back(keeper: c_int) -> Result<u64, CuResult> {
    let mut new = 0;
    for_each(
        |piece| piece.is_away,
        |piece| {
            let memory = match keeper {
                0 => calls::create(piece.bytes, &support::properties(piece.device)),
                _ => import(piece, keeper),
            }?;
            let mapped = pieces::map_at(piece.address, memory, piece.bytes, piece.device);
            // Mapped memory stays.
            calls::release(memory);
            mapped?;
            if let Err(error) = peers::let_in(piece) {
                let _ = calls::unmap(piece.address, piece.bytes);
                return Err(error);
            }
            set(piece.address, |piece| (piece.is_away, piece.is_imported) = (false, keeper != 0));
            new += u64::from(keeper == 0);
            Ok(())
        },
    )?;
    // Only now: a second try needs what the first has left.
    for_each(
        |piece| shown::kept(piece.entry) != 0,
        |piece| {
            shown::forget_kept(piece.entry);
            Ok(())
        },
    )?;
    Ok(new)
}

/// A handle of the memory that is kept of a piece.
fn import(piece: &Piece, keeper: c_int) -> Result<u64, CuResult> {
    let number = shown::kept(piece.entry) as c_int;
    let descriptor = sys::of_driver::fetch(keeper, number).map_err(|error| -error.0)?;
    let memory = calls::import(descriptor);
    sys::of_driver::close(descriptor);
    memory
}

/// Changes what is known of a piece.
pub fn set(address: u64, change: impl FnOnce(&mut Piece)) {
    with(|table| table.piece_at(address).map(change));
}

/// The first piece from an address on of which `is_meant` says so.
fn next(mut from: u64, is_meant: impl Fn(&Piece) -> bool) -> Option<Piece> {
    loop {
        let piece = with(|table| table.any_piece_from(from).map(|piece| *piece))?;
        if is_meant(&piece) {
            return Some(piece);
        }
        from = piece.address + piece.bytes as u64;
    }
}

/// Does something to all pieces of which `is_meant` says so, until it fails.
pub fn for_each(
    is_meant: impl Fn(&Piece) -> bool,
    mut act: impl FnMut(&Piece) -> Result<(), CuResult>,
) -> Result<(), CuResult> {
    let mut from = 0;
    while let Some(piece) = next(from, &is_meant) {
        act(&piece)?;
        from = piece.address + piece.bytes as u64;
    }
    Ok(())
}
