//! Making imported memory the program's own.
//!
//! What a process has kept of a piece comes back by a descriptor ([`kept`]), and the driver exports nothing that was imported: not for
//! the next checkpoint, and not for another process (`ipc`). So it is copied, on its device, to new memory. That takes room for
//! one piece, and the memory itself is free only when nobody has a descriptor of it any more.
//!
//! The keeper alone does this, while the gate is closed: nobody uses pieces meanwhile.

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

/// Renews the piece that begins at an address, if its memory is imported.
///
/// # Errors
/// The driver's. The piece is as before.
pub fn renew_at(address: u64) -> Result<(), CuResult> {
    let piece = with(|table| table.piece_at(address).map(|piece| *piece));
    piece.filter(|piece| piece.is_imported).map_or(Ok(()), |piece| renew(&piece))
}

fn renew(piece: &Piece) -> Result<(), CuResult> {
    let old = calls::retain(piece.address)?;
    let result = calls::create(piece.bytes, &support::properties(piece.device)).and_then(|new| {
        let result = copy_to(new, piece).and_then(|()| exchange(piece, old, new));
        calls::release(new);
        result
    });
    calls::release(old);
    result.map(|()| set(piece.address, |piece| piece.is_imported = false))
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
