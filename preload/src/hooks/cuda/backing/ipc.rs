//! Legacy IPC: `cuIpcGetMemHandle` and `cuIpcOpenMemHandle`, which the driver has for memory of its own only.
//!
//! A handle is 64 bytes that the driver fills as it likes, and so do we: ours says in which process which descriptor is of
//! the piece, and where in that the allocation lies. Who opens it fetches that descriptor (`pidfd_getfd`) and maps the
//! piece. So both processes need libckpt.so and one namespace of pids, and the one that opens must be allowed to trace the
//! other one, as processes of one user are unless Yama or a system-call filter says otherwise. Where that does not do,
//! `CKPT_DEVICE_BACKING=native` leaves all memory the driver's.

use core::ffi::c_int;

use super::calls::{self, INVALID_CONTEXT, INVALID_VALUE};
use super::pieces;
use super::support;
use super::table::{Found, find, with};
use crate::errno::Errno;
use crate::hooks::cuda::driver::{CuResult, SUCCESS};
use crate::log;
use crate::section::Section;
use crate::sys;

/// Bytes of a handle.
pub const HANDLE_BYTES: usize = 64;
/// First eight bytes of ours.
const MARK: [u8; 8] = *b"CKPTIPC\x01";
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`: the only flags there are.
const LAZY: u32 = 1;

/// Whose memory it is that was opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    pid: i32,
    descriptor: c_int,
    id: u64,
}

/// What a handle of ours says.
#[repr(C)]
#[derive(Clone, Copy)]
struct Parts {
    mark: [u8; 8],
    pid: i32,
    descriptor: c_int,
    id: u64,
    /// Of the piece.
    piece_bytes: u64,
    /// Of the allocation in it.
    offset: u64,
    bytes: u64,
    unused: [u64; 2],
}

const _: () = assert!(size_of::<Parts>() == HANDLE_BYTES);

impl Parts {
    /// What the bytes say, if they are of ours, and it can be so.
    fn read(handle: &[u8; HANDLE_BYTES]) -> Option<Self> {
        // SAFETY: any bytes are a value of it.
        let parts: Self = unsafe { handle.as_ptr().cast::<Self>().read_unaligned() };
        let fits = parts.offset.checked_add(parts.bytes).is_some_and(|end| end <= parts.piece_bytes);
        (parts.mark == MARK && fits).then_some(parts)
    }

    fn origin(&self) -> Origin {
        Origin { pid: self.pid, descriptor: self.descriptor, id: self.id }
    }
}

/// Whether a handle is of ours.
pub fn is_ours(handle: &[u8; HANDLE_BYTES]) -> bool {
    handle.starts_with(&MARK)
}

/// A handle of the allocation that `address` lies in. `None` if it is the driver's.
///
/// # Safety
/// `handle` must be null or a place for one.
pub unsafe fn get(handle: *mut [u8; HANDLE_BYTES], address: u64) -> Option<CuResult> {
    let (backed, piece) = match find(address) {
        Found::Allocation(backed, piece) if backed.origin.is_none() && !handle.is_null() => (backed, piece),
        Found::Allocation(..) | Found::Unused => return Some(calls::current_device().err().unwrap_or(INVALID_VALUE)),
        Found::Nothing => return None,
    };
    let descriptor = match descriptor_of(piece.address) {
        Ok(descriptor) => descriptor,
        Err(error) => return Some(error),
    };
    let parts = Parts {
        mark: MARK,
        pid: sys::getpid(),
        descriptor,
        id: backed.id,
        piece_bytes: piece.bytes as u64,
        offset: backed.address - piece.address,
        bytes: backed.bytes as u64,
        unused: [0; 2],
    };
    // SAFETY: the caller's word.
    unsafe { handle.cast::<Parts>().write_unaligned(parts) };
    Some(SUCCESS)
}

/// The descriptor of a piece, which is there from when the first handle is made until the piece ends.
fn descriptor_of(address: u64) -> Result<c_int, CuResult> {
    let piece = with(|table| table.piece_at(address).map(|piece| *piece)).ok_or(INVALID_VALUE)?;
    if piece.descriptor >= 0 {
        return Ok(piece.descriptor);
    }
    let new = pieces::export(&piece)?;
    let kept = with(|table| match table.piece_at(address) {
        Some(piece) if piece.descriptor < 0 => {
            piece.descriptor = new;
            new
        }
        Some(piece) => piece.descriptor,
        None => -1,
    });
    if kept != new {
        sys::of_driver::close(new);
    }
    if kept < 0 { Err(INVALID_VALUE) } else { Ok(kept) }
}

/// Opens a handle of ours: the allocation's address here.
pub fn open(handle: &[u8; HANDLE_BYTES], flags: u32) -> Result<u64, CuResult> {
    calls::current_device()?;
    let parts = Parts::read(handle).filter(|_| flags == LAZY).ok_or(INVALID_VALUE)?;
    if parts.pid == sys::getpid() {
        return Err(INVALID_CONTEXT);
    }
    let place = support::here().ok_or(INVALID_VALUE)?;
    let again = with(|table| {
        table.opened(&parts.origin(), place.context).map(|backed| {
            backed.opened += 1;
            backed.address
        })
    });
    if let Some(address) = again {
        return Ok(address);
    }
    let descriptor = sys::of_driver::fetch(parts.pid, parts.descriptor).map_err(|error| {
        say_why(parts.pid, error);
        INVALID_VALUE
    })?;
    let piece = pieces::import(descriptor, parts.piece_bytes as usize, &place);
    sys::of_driver::close(descriptor);
    let piece = piece?;
    let address = piece.address + parts.offset;
    if with(|table| table.add(piece, address, parts.bytes as usize, Some(parts.origin()))) {
        return Ok(address);
    }
    let _ = pieces::end(&piece);
    Err(calls::OUT_OF_MEMORY)
}

/// Closes what was opened at `address`; it goes with the last of those who opened it. `None` if it is the driver's.
pub fn close(address: u64) -> Option<CuResult> {
    let (backed, piece) = match find(address) {
        Found::Allocation(backed, piece) if backed.origin.is_some() && backed.address == address => (backed, piece),
        Found::Allocation(..) | Found::Unused => return Some(calls::current_device().err().unwrap_or(INVALID_VALUE)),
        Found::Nothing => return None,
    };
    if backed.opened > 1 {
        with(|table| table.change(address, |backed| backed.opened -= 1));
        return Some(SUCCESS);
    }
    // What still runs may use it.
    Some(match calls::synchronise(piece.context) {
        Ok(()) => super::release(address),
        Err(error) => error,
    })
}

/// Tells the user what the program cannot be told.
fn say_why(pid: i32, error: Errno) {
    let Some(mut section) = Section::enter() else { return };
    log::append(&mut section, |line| {
        line.push(b"device memory of process ").push_decimal(u64::from(pid.unsigned_abs()), 1);
        line.push(b" cannot be opened here: errno ").push_decimal(u64::from(error.0.unsigned_abs()), 1);
        line.push(b" (EPERM: this process may not trace it); start both with CKPT_DEVICE_BACKING=native");
    });
}
