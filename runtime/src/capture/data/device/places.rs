//! Where the content of an allocation on a device can be read.

use ckpt_wire::allocations::{
    CUDA_ARRAY, CUDA_DEVICE, CUDA_GLOBAL, CUDA_GRAPH, CUDA_IMPORTED, CUDA_MANAGED, CUDA_MANAGED_GLOBAL, CUDA_MAPPED,
    CUDA_PHYSICAL,
};
use ckpt_wire::device::{self as wire, PieceBlock};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::error::Result;
use crate::image::{Allocation, AllocationKind, LeftOut};
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
}

/// Where an allocation is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In physical memory that can be exported.
    In(Piece),
    /// In physical memory that may be exportable: the program has made it.
    Perhaps(Piece),
    /// Only the program itself can read it.
    Program,
}

/// The pieces that libckpt.so has made, by address. The program is held.
///
/// # Errors
/// When its memory cannot be read.
pub fn pieces(pid: i32, hold: u64) -> Result<Vec<Piece>> {
    let mut head = wire::Hold::new_zeroed();
    read_memory(pid, hold, head.as_mut_bytes())?;
    let (mut pieces, mut next) = (Vec::new(), head.pieces);
    for _ in 0..BLOCKS_MAX {
        if next == 0 {
            break;
        }
        let mut block = vec![0_u64; size_of::<PieceBlock>() / 8];
        read_memory(pid, next, block.as_mut_bytes())?;
        // Its length and its alignment are the type's: it always fits.
        let Ok(block) = PieceBlock::ref_from_bytes(block.as_bytes()) else { break };
        let used = block.pieces.iter().filter(|piece| piece.id != 0);
        pieces.extend(used.map(|&wire::Piece { address, bytes, device, .. }| Piece { address, bytes, device }));
        next = block.next;
    }
    pieces.sort_unstable_by_key(|piece| piece.address);
    Ok(pieces)
}

/// Where `allocation` is read: of memory on devices alone. Of what cannot be, why not.
pub fn place(allocation: &Allocation, pieces: &[Piece]) -> Option<Result<Place, LeftOut>> {
    let AllocationKind::Cuda(kind, device) = allocation.kind else { return None };
    let left_out = |why: &str| Some(Err(LeftOut { id: allocation.id, why: why.to_owned() }));
    match kind {
        CUDA_DEVICE | CUDA_MANAGED | CUDA_GLOBAL | CUDA_MANAGED_GLOBAL => {
            Some(Ok(piece_of(allocation, pieces).map_or(Place::Program, Place::In)))
        }
        CUDA_MAPPED => {
            let piece = Piece { address: allocation.address, bytes: allocation.bytes, device };
            Some(Ok(Place::Perhaps(piece)))
        }
        CUDA_PHYSICAL => left_out("it is what other allocations are mapped from"),
        CUDA_ARRAY => left_out("the layout of arrays is the driver's"),
        CUDA_GRAPH => left_out("it is there only while its graph runs"),
        CUDA_IMPORTED => left_out("it is another process's"),
        _ => None,
    }
}

/// The piece that all of an allocation lies in.
fn piece_of(allocation: &Allocation, pieces: &[Piece]) -> Option<Piece> {
    let behind = pieces.partition_point(|piece| piece.address <= allocation.address);
    let piece = pieces[..behind].last()?;
    (allocation.addresses().end <= piece.address + piece.bytes).then_some(*piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(address: u64, bytes: u64, kind: u32) -> Allocation {
        Allocation { id: 7, address, bytes, call_site: 0, kind: AllocationKind::Cuda(kind, 1) }
    }

    #[test]
    fn memory_is_read_in_its_piece_if_it_has_one_and_else_by_the_program() {
        let piece = |address| Piece { address, bytes: 100, device: 1 };
        let pieces = [piece(1000), piece(1100), piece(2000)];
        let of = |address, bytes, kind| place(&allocation(address, bytes, kind), &pieces).unwrap().unwrap();
        assert_eq!(of(1000, 100, CUDA_DEVICE), Place::In(piece(1000)));
        assert_eq!(of(2010, 90, CUDA_DEVICE), Place::In(piece(2000)));
        assert_eq!(of(1050, 100, CUDA_DEVICE), Place::Program, "no piece has all of it");
        assert_eq!(of(999, 1, CUDA_GLOBAL), Place::Program);
        assert_eq!(of(5000, 10, CUDA_MANAGED), Place::Program);
        assert_eq!(of(64, 10, CUDA_MAPPED), Place::Perhaps(Piece { address: 64, bytes: 10, device: 1 }));
    }

    #[test]
    fn of_what_is_no_plain_memory_of_the_program_it_is_said_why_it_is_left_out() {
        for kind in [CUDA_PHYSICAL, CUDA_ARRAY, CUDA_GRAPH, CUDA_IMPORTED] {
            let left_out = place(&allocation(1, 1, kind), &[]).unwrap().unwrap_err();
            assert!(left_out.id == 7 && !left_out.why.is_empty());
        }
        let of_host = Allocation { kind: AllocationKind::Heap, ..allocation(1, 1, 0) };
        assert!(place(&of_host, &[]).is_none());
        assert!(place(&allocation(1, 1, ckpt_wire::allocations::CUDA_PINNED), &[]).is_none());
    }
}
