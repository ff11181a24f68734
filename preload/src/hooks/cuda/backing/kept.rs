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

/// Above such numbers, no descriptor is kept: programs may usually have 1024.
const DESCRIPTORS_KEPT: c_int = 512;

/// Takes their memory from behind all pieces that the process `keeper` keeps a descriptor of.
///
/// # Errors
/// The driver's, or a negative number of the kernel's: when it could not be had back from there, before anything is taken, or
/// when it cannot be taken. Then [`take_back`] makes all as it was.
pub fn let_go(keeper: c_int) -> Result<(), CuResult> {
    let is_kept = |piece: &Piece| shown::kept(piece.entry) != 0 && !piece.is_away && piece.descriptor < 0;
    for_each(is_kept, |piece| {
        let (memory, descriptor) = import(piece, keeper)?;
        calls::release(memory);
        sys::of_driver::close(descriptor);
        Ok(())
    })?;
    for_each(is_kept, |piece| {
        calls::unmap(piece.address, piece.bytes)?;
        // The driver is to find no descriptor of a device that it does not know.
        pieces::close_source(piece);
        set(piece.address, |piece| (piece.is_away, piece.source) = (true, None));
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
            let (memory, descriptor) = match keeper {
                0 => (calls::create(piece.bytes, &support::properties(piece.device))?, -1),
                _ => import(piece, keeper)?,
            };
            // Until it is renewed.
            let source = keep(descriptor);
            let mapped = pieces::map_at(piece.address, memory, piece.bytes, piece.device);
            // Mapped memory stays.
            calls::release(memory);
            let usable = mapped.and_then(|()| {
                peers::let_in(piece).inspect_err(|_| {
                    let _ = calls::unmap(piece.address, piece.bytes);
                })
            });
            if let Err(error) = usable {
                pieces::close_source(&Piece { source, ..*piece });
                return Err(error);
            }
            set(piece.address, |piece| {
                (piece.is_away, piece.is_imported, piece.source) = (false, keeper != 0, source);
            });
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

/// A handle of the memory that is kept of a piece, and the descriptor that it is from.
fn import(piece: &Piece, keeper: c_int) -> Result<(u64, c_int), CuResult> {
    let number = shown::kept(piece.entry) as c_int;
    let descriptor = sys::of_driver::fetch(keeper, number).map_err(|error| -error.0)?;
    match calls::import(descriptor) {
        Ok(memory) => Ok((memory, descriptor)),
        Err(error) => {
            sys::of_driver::close(descriptor);
            Err(error)
        }
    }
}

/// Keeps a descriptor, unless the program has so many that they may run out: then its piece cannot be exported until it is renewed.
fn keep(descriptor: c_int) -> Option<(c_int, [u64; 2])> {
    if descriptor < 0 {
        return None;
    }
    let file = if descriptor < DESCRIPTORS_KEPT { sys::adopt(descriptor).ok() } else { None };
    if file.is_none() {
        sys::of_driver::close(descriptor);
    }
    file.map(|file| (descriptor, file))
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
