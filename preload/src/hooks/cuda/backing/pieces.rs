//! Making and ending a piece: physical memory, mapped at addresses of its own. No lock of ours is held meanwhile, for the
//! driver may wait for its device.

use core::ffi::c_int;

use super::calls::{self, Properties, READ_AND_WRITE};
use super::places::Places;
use super::support::Place;
use crate::hooks::cuda::driver::{CuResult, Handle};
use crate::sys;

/// A piece.
#[derive(Clone, Copy)]
pub struct Piece {
    pub address: u64,
    pub bytes: usize,
    /// The context that its allocations belong to.
    pub context: Handle,
    pub device: c_int,
    /// Where the agent finds it; null for what another process has made, and while it is in no table.
    pub entry: *mut ckpt_wire::device::Piece,
    /// In the program's table, for other processes to fetch; -1 if nobody has asked.
    pub descriptor: c_int,
    /// Its context is about to end: nothing new is put there.
    pub is_ending: bool,
    /// Its memory has been taken from behind its addresses, while the devices are suspended (`kept`).
    pub is_away: bool,
    /// Its memory is imported: what kept it has given it back, and it is not renewed yet (`renewal`).
    pub is_imported: bool,
    /// What it was imported from, in the program's table, and which file that is. While it is imported nothing else leads to it.
    pub source: Option<(c_int, [u64; 2])>,
    /// Of a slab, what is taken of it; otherwise null.
    pub places: *mut Places,
    /// The next slab.
    pub next: *mut Self,
}

impl Piece {
    const fn new(address: u64, bytes: usize, context: Handle, device: c_int) -> Self {
        Self {
            address,
            bytes,
            context,
            device,
            entry: core::ptr::null_mut(),
            descriptor: -1,
            is_ending: false,
            is_away: false,
            is_imported: false,
            source: None,
            places: core::ptr::null_mut(),
            next: core::ptr::null_mut(),
        }
    }

    /// Whether an address lies in it.
    pub fn has(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|offset| offset < self.bytes as u64)
    }

    /// Its first address and its bytes.
    pub fn range(&self) -> (u64, usize) {
        (self.address, self.bytes)
    }
}

/// A piece of new memory, of at least so many bytes.
pub fn make(bytes: usize, place: &Place) -> Result<Piece, CuResult> {
    let bytes = bytes.checked_next_multiple_of(place.granularity).ok_or(calls::OUT_OF_MEMORY)?;
    let memory = calls::create(bytes, &Properties::of(place.device, place.rdma))?;
    let piece = map(memory, bytes, place);
    // From now on, it is there for as long as it is mapped.
    calls::release(memory);
    piece
}

/// A piece of the memory that a descriptor is of.
pub fn import(descriptor: c_int, bytes: usize, place: &Place) -> Result<Piece, CuResult> {
    let memory = calls::import(descriptor)?;
    let piece = map(memory, bytes, place);
    calls::release(memory);
    piece
}

fn map(memory: u64, bytes: usize, place: &Place) -> Result<Piece, CuResult> {
    let address = map_at_new_addresses(memory, bytes, place.device)?;
    Ok(Piece::new(address, bytes, place.context, place.device))
}

/// Maps physical memory where nothing else is, for its device to read and write.
pub fn map_at_new_addresses(memory: u64, bytes: usize, device: c_int) -> Result<u64, CuResult> {
    let address = calls::reserve(bytes)?;
    map_at(address, memory, bytes, device).map(|()| address).inspect_err(|_| calls::free_addresses(address, bytes))
}

/// Maps physical memory at addresses that are reserved, for its device to read and write.
pub fn map_at(address: u64, memory: u64, bytes: usize, device: c_int) -> Result<(), CuResult> {
    calls::map(address, bytes, memory)?;
    calls::set_access(address, bytes, device, READ_AND_WRITE).inspect_err(|_| {
        let _ = calls::unmap(address, bytes);
    })
}

/// Undoes that, where nothing uses it any more. What cannot be unmapped stays as it is.
pub fn unmap(address: u64, bytes: usize) -> Result<(), CuResult> {
    calls::unmap(address, bytes)?;
    calls::free_addresses(address, bytes);
    Ok(())
}

/// Gives a piece back, which nothing uses any more. If it cannot be unmapped, it stays as it is.
pub fn end(piece: &Piece) -> Result<(), CuResult> {
    unmap(piece.address, piece.bytes)?;
    if piece.descriptor >= 0 {
        sys::of_driver::close(piece.descriptor);
    }
    close_source(piece);
    Ok(())
}

/// Closes what its memory was imported from.
pub fn close_source(piece: &Piece) {
    if let Some((descriptor, file)) = piece.source {
        sys::close_adopted(descriptor, file);
    }
}

/// A descriptor of a piece's memory. The driver makes none of memory that is imported: then it is one of what it was imported from.
pub fn export(piece: &Piece) -> Result<c_int, CuResult> {
    match piece.source {
        Some((descriptor, file)) if piece.is_imported => {
            sys::of_driver::copy(descriptor, file).map_err(|error| -error.0)
        }
        _ => calls::export(piece.address),
    }
}
