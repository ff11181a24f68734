//! Making imported memory the program's own.
//!
//! What a process has kept of a piece comes back by a descriptor ([`kept`]), and the driver exports nothing that was imported: not for
//! the next checkpoint, and not for another process (`ipc`). So it is copied, on its device, to new memory. That takes room for
//! one piece, and the memory itself is free only when nobody has a descriptor of it any more. Until then, and where there is no room, the
//! program has the descriptor that it was imported from, which serves for both.
//!
//! The keeper alone does this, while the gate is closed: nobody uses pieces meanwhile.

use core::ffi::c_int;

use super::kept::{for_each, set};
use super::pieces::{self, Piece};
use super::table::with;
use super::{calls, peers, support};
use crate::hooks::cuda::driver::CuResult;

/// Renews all pieces whose memory is imported, as far as there is room. How many are left.
///
/// # Errors
/// The driver's, when it is not for want of memory. What is renewed stays so.
pub fn renew_all() -> Result<u64, CuResult> {
    let mut left = 0;
    for_each(
        |piece| piece.is_imported,
        |piece| match renew(piece) {
            Err(calls::OUT_OF_MEMORY) => {
                left += 1;
                Ok(())
            }
            result => result,
        },
    )?;
    Ok(left)
}

/// A descriptor of the piece that begins at an address, which is renewed before if its memory is imported and there is room. `None` if
/// none begins there.
///
/// # Errors
/// The driver's, or a negative number of the kernel's. The piece is as before.
pub fn export(address: u64) -> Option<Result<c_int, CuResult>> {
    let find = || with(|table| table.piece_at(address).map(|piece| *piece)).filter(|piece| piece.address == address);
    let piece = find()?;
    let renewed = if piece.is_imported { renew(&piece) } else { Ok(()) };
    Some(match renewed {
        Err(error) if error != calls::OUT_OF_MEMORY || piece.source.is_none() => Err(error),
        _ => find().map_or(Err(calls::INVALID_VALUE), |piece| pieces::export(&piece)),
    })
}

fn renew(piece: &Piece) -> Result<(), CuResult> {
    let old = calls::retain(piece.address)?;
    let result = calls::create(piece.bytes, &support::properties(piece.device)).and_then(|new| {
        let result = copy_to(new, piece).and_then(|()| exchange(piece, old, new));
        calls::release(new);
        result
    });
    calls::release(old);
    result?;
    pieces::close_source(piece);
    set(piece.address, |piece| (piece.is_imported, piece.source) = (false, None));
    Ok(())
}

/// Copies what is in a piece to memory that is mapped nowhere.
fn copy_to(memory: u64, piece: &Piece) -> Result<(), CuResult> {
    let there = pieces::map_at_new_addresses(memory, piece.bytes, piece.device)?;
    let copied = calls::copy(piece.context, there, piece.address, piece.bytes);
    copied.and(pieces::unmap(there, piece.bytes))
}

/// Maps `new` in the place of `old`; if that cannot be, `old` again.
fn exchange(piece: &Piece, old: u64, new: u64) -> Result<(), CuResult> {
    calls::unmap(piece.address, piece.bytes)?;
    put(piece, new).or_else(|error| put(piece, old).and(Err(error)))
}

fn put(piece: &Piece, memory: u64) -> Result<(), CuResult> {
    pieces::map_at(piece.address, memory, piece.bytes, piece.device)?;
    peers::let_in(piece).inspect_err(|_| {
        let _ = calls::unmap(piece.address, piece.bytes);
    })
}
