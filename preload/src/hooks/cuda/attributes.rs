//! What the driver says of an address: its own word counts, rather than the name of the function that it came from. In
//! CUDA 13 a pool may hold managed memory.

use core::ffi::{c_int, c_uint, c_void};
use core::ops::Range;

use ckpt_wire::allocations::{CUDA_DEVICE, CUDA_MANAGED, CUDA_PINNED};

use super::backing;
use super::driver::{self, CuResult, Real, SUCCESS};

type GetAttributes = unsafe extern "C" fn(c_uint, *mut c_int, *mut *mut c_void, u64) -> CuResult;
static GET_ATTRIBUTES: Real<GetAttributes> = Real::new(c"cuPointerGetAttributes");

// `CUpointer_attribute`.
const CONTEXT: c_int = 1;
const MEMORY_TYPE: c_int = 2;
const IS_MANAGED: c_int = 8;
const DEVICE_ORDINAL: c_int = 9;
const RANGE_START: c_int = 11;
const RANGE_BYTES: c_int = 12;
const POOL: c_int = 17;
// `CUmemorytype`.
const HOST: c_uint = 1;

/// Finds the driver's function before it is needed: a lookup may have to wait.
pub fn look_up() {
    let _ = GET_ATTRIBUTES.get();
}

/// The allocation that an address lies in.
pub fn range(address: u64) -> Option<Range<u64>> {
    if let Some((start, bytes)) = backing::range_of(address) {
        return Some(start..start + bytes as u64);
    }
    let get = GET_ATTRIBUTES.get()?;
    let (mut start, mut bytes) = (0_u64, 0_usize);
    let mut wanted = [RANGE_START, RANGE_BYTES];
    let mut answers: [*mut c_void; 2] = [(&raw mut start).cast(), (&raw mut bytes).cast()];
    // SAFETY: two attributes and two places of the types that cuda.h gives them.
    let result = unsafe { get(2, wanted.as_mut_ptr(), answers.as_mut_ptr(), address) };
    (result == SUCCESS && bytes != 0).then(|| start..start.saturating_add(bytes as u64))
}

/// Kind, device and allocation of an address that the driver knows, if the program has used the driver at all.
pub fn known_to_driver(address: u64) -> Option<(u32, i32, Range<u64>)> {
    if !driver::is_in_use() {
        return None;
    }
    let attributes = of(address)?;
    Some((attributes.kind, attributes.device, range(address).unwrap_or(address..address)))
}

/// What the driver knows about an address.
pub struct Attributes {
    /// `CUDA_DEVICE`, `CUDA_MANAGED` or `CUDA_PINNED`.
    pub kind: u32,
    /// The device's number.
    pub device: i32,
    /// The context, or 0.
    pub context: u64,
    /// The pool that it is from, or 0.
    pub pool: u64,
}

/// Asks the driver. `None` where it does not know, as of memory that a stream being captured is to allocate.
pub fn of(address: u64) -> Option<Attributes> {
    let get = GET_ATTRIBUTES.get()?;
    let (mut context, mut memory, mut is_managed, mut device) = (0_u64, 0 as c_uint, 0 as c_uint, -1 as c_int);
    let mut pool = 0_u64;
    let mut wanted = [CONTEXT, MEMORY_TYPE, IS_MANAGED, DEVICE_ORDINAL, POOL];
    let mut answers: [*mut c_void; 5] = [
        (&raw mut context).cast(),
        (&raw mut memory).cast(),
        (&raw mut is_managed).cast(),
        (&raw mut device).cast(),
        (&raw mut pool).cast(),
    ];
    // SAFETY: five attributes and five places of the types that cuda.h gives them.
    let result = unsafe { get(5, wanted.as_mut_ptr(), answers.as_mut_ptr(), address) };
    if result != SUCCESS || memory == 0 {
        return None;
    }
    let kind = match (is_managed, memory) {
        (0, HOST) => CUDA_PINNED,
        (0, _) => CUDA_DEVICE,
        _ => CUDA_MANAGED,
    };
    let context = backing::context_of(address).map_or(context, |context| context as u64);
    Some(Attributes { kind, device, context, pool })
}
