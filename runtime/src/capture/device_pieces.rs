//! Physical memory on devices that libckpt.so has mapped in a program, as it shows it ([`ckpt_wire::device::PieceBlock`]).

use std::mem::offset_of;

use ckpt_wire::device::{self as wire, PieceBlock};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::list::Walk;
use crate::error::Result;
use crate::ptrace::read_memory;

/// More blocks than a program has: the list of one that has overwritten it ends somewhere.
const BLOCKS_MAX: usize = 1 << 16;

/// Physical memory at addresses of the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// The device's number.
    pub device: i32,
    /// Its number; 0 for what the program has mapped itself.
    pub id: u64,
    /// Address of what libckpt.so shows of it; 0 for what the program has mapped itself.
    pub entry: u64,
}

/// All pieces, by address. The program is held; its [`wire::Hold`] is at this address.
///
/// # Errors
/// When its memory cannot be read.
pub fn pieces(pid: i32, hold: u64) -> Result<Vec<Piece>> {
    let mut head = wire::Hold::new_zeroed();
    read_memory(pid, hold, head.as_mut_bytes())?;
    let (mut pieces, mut next, mut walk) = (Vec::new(), head.pieces, Walk::new::<PieceBlock>(BLOCKS_MAX));
    while walk.goes_on(next) {
        let mut block = vec![0_u64; size_of::<PieceBlock>() / 8];
        read_memory(pid, next, block.as_mut_bytes())?;
        // Its length and its alignment are the type's: it always fits.
        let Ok(block) = PieceBlock::ref_from_bytes(block.as_bytes()) else { break };
        let first = next + offset_of!(PieceBlock, pieces) as u64;
        let entries = block.pieces.iter().zip((first..).step_by(size_of::<wire::Piece>()));
        pieces.extend(entries.filter(|(piece, _)| piece.id != 0).map(
            |(&wire::Piece { id, address, bytes, device, .. }, entry)| Piece { address, bytes, device, id, entry },
        ));
        next = block.next;
    }
    pieces.sort_unstable_by_key(|piece| piece.address);
    Ok(pieces)
}
