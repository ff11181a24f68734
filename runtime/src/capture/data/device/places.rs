//! Where the content of an allocation on a device can be read.

use ckpt_wire::allocations::{
    CUDA_ARRAY, CUDA_DEVICE, CUDA_GLOBAL, CUDA_GRAPH, CUDA_IMPORTED, CUDA_MANAGED, CUDA_MANAGED_GLOBAL, CUDA_MAPPED,
    CUDA_PHYSICAL,
};

use crate::capture::device_pieces::Piece;
use crate::image::{Allocation, AllocationKind, LeftOut};

/// Where an allocation is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In physical memory that can be exported.
    In(Piece),
    /// In physical memory that the program has made: it may be exportable, but is better not exported.
    Perhaps(Piece),
    /// Only the program itself can read it.
    Program,
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
            let piece = Piece { address: allocation.address, bytes: allocation.bytes, device, id: 0, entry: 0 };
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
        let piece = |address| Piece { address, bytes: 100, device: 1, id: 5, entry: 64 };
        let pieces = [piece(1000), piece(1100), piece(2000)];
        let of = |address, bytes, kind| place(&allocation(address, bytes, kind), &pieces).unwrap().unwrap();
        assert_eq!(of(1000, 100, CUDA_DEVICE), Place::In(piece(1000)));
        assert_eq!(of(2010, 90, CUDA_DEVICE), Place::In(piece(2000)));
        assert_eq!(of(1050, 100, CUDA_DEVICE), Place::Program, "no piece has all of it");
        assert_eq!(of(999, 1, CUDA_GLOBAL), Place::Program);
        assert_eq!(of(5000, 10, CUDA_MANAGED), Place::Program);
        assert_eq!(
            of(64, 10, CUDA_MAPPED),
            Place::Perhaps(Piece { address: 64, bytes: 10, device: 1, id: 0, entry: 0 })
        );
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
