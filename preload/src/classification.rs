//! `ckpt_classify`: what kind of memory a pointer leads to, and which allocation it lies in.
//!
//! Our own records answer first, then the CUDA driver, where the program has one; what neither knows is host memory.

use core::ffi::{c_int, c_ulong, c_void};

use ckpt_wire::allocations::{
    CUDA_MANAGED, CUDA_MANAGED_EVACUATED, CUDA_MANAGED_GLOBAL, CUDA_MANAGED_PINNED, CUDA_MANAGED_REGISTERED,
    CUDA_PINNED, CUDA_REGISTERED,
};

use crate::errno::set_errno;
use crate::hooks::{cuda, heap};

/// `struct ckpt_memory` of `include/ckpt.h`.
#[repr(C)]
pub struct Memory {
    kind: c_int,
    device: c_int,
    start: *const c_void,
    bytes: usize,
    id: c_ulong,
}

// `CKPT_MEMORY_*`.
const HOST: c_int = 0;
const PINNED: c_int = 1;
const DEVICE: c_int = 2;
const MANAGED: c_int = 3;

/// Says what `pointer` leads to: 0, or -1 and `errno` when it is null.
///
/// # Safety
/// `memory` must be null or a place to write to.
// SAFETY (of the name): no other library defines a symbol that begins with `ckpt_`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ckpt_classify(pointer: *const c_void, memory: *mut Memory) -> c_int {
    // SAFETY: the caller's word.
    let Some(memory) = (unsafe { memory.as_mut() }).filter(|_| !pointer.is_null()) else {
        set_errno(libc::EINVAL);
        return -1;
    };
    *memory = classify(pointer as u64);
    0
}

fn classify(address: u64) -> Memory {
    if let Some(allocation) = cuda::containing(address) {
        let device = if kind_of(allocation.what()) == DEVICE { allocation.device } else { -1 };
        return Memory {
            kind: kind_of(allocation.what()),
            device,
            start: allocation.address as *const c_void,
            bytes: allocation.bytes as usize,
            id: allocation.id,
        };
    }
    if let Some((kind, device, range)) = cuda::known_to_driver(address) {
        let kind = kind_of(kind);
        let device = if kind == DEVICE { device } else { -1 };
        let (start, bytes) = (range.start as *const c_void, (range.end - range.start) as usize);
        return Memory { kind, device, start, bytes, id: 0 };
    }
    match heap::containing(address) {
        Some((start, allocation)) => Memory {
            kind: HOST,
            device: -1,
            start: start as *const c_void,
            bytes: allocation.bytes as usize,
            id: allocation.id,
        },
        None => Memory { kind: HOST, device: -1, start: core::ptr::null(), bytes: 0, id: 0 },
    }
}

/// The kind of memory that an allocation of the driver's is.
fn kind_of(kind: u32) -> c_int {
    match kind {
        CUDA_PINNED | CUDA_REGISTERED => PINNED,
        CUDA_MANAGED | CUDA_MANAGED_GLOBAL | CUDA_MANAGED_PINNED | CUDA_MANAGED_EVACUATED | CUDA_MANAGED_REGISTERED => {
            MANAGED
        }
        // Mapped, imported, of a graph, a global: on the device as well.
        _ => DEVICE,
    }
}
