//! Arrays, whose layout in memory is the driver's own: what is known is their handles, and what their elements take.

use core::ffi::c_uint;

use ckpt_wire::allocations::{CUDA_ARRAY, CudaAllocation};

use super::driver::{Handle, SUCCESS, driver_hooks};
use super::memory::free;
use super::records;

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
pub struct Shape {
    width: usize,
    height: usize,
    format: c_uint,
    channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
pub struct Shape3d {
    width: usize,
    height: usize,
    depth: usize,
    format: c_uint,
    channels: c_uint,
    flags: c_uint,
}

/// `CUDA_ARRAY3D_LAYERED`, `CUDA_ARRAY3D_CUBEMAP`: the depth counts arrays, and stays from level to level.
const LAYERS: c_uint = 1 | 4;
/// `CUDA_ARRAY3D_SPARSE`, `CUDA_ARRAY3D_DEFERRED_MAPPING`: without memory of its own.
const WITHOUT_MEMORY: c_uint = 0x40 | 0x80;

impl Shape {
    /// What the elements take, as far as the format tells.
    fn bytes(&self) -> usize {
        let elements = self.width.saturating_mul(self.height.max(1));
        elements.saturating_mul(element_bytes(self.format, self.channels))
    }
}

impl Shape3d {
    /// What the elements of so many levels take, each half as wide, high and deep as the one before.
    fn bytes(&self, levels: c_uint) -> usize {
        if self.flags & WITHOUT_MEMORY != 0 {
            return 0;
        }
        let halved = |extent: usize, level: c_uint| (extent >> level.min(63)).max(1);
        let of_level = |level: c_uint| {
            let depth = if self.flags & LAYERS != 0 { self.depth.max(1) } else { halved(self.depth, level) };
            halved(self.width, level).saturating_mul(halved(self.height, level)).saturating_mul(depth)
        };
        let elements = (0..levels.min(64)).map(of_level).fold(0, usize::saturating_add);
        elements.saturating_mul(element_bytes(self.format, self.channels))
    }
}

/// Bytes of an element with so many channels; 0 for compressed and video formats.
fn element_bytes(format: c_uint, channels: c_uint) -> usize {
    let each = match format {
        // Whole numbers of 8, 16 and 32 bits without sign and with; halves and floats.
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => 0,
    };
    each * channels as usize
}

fn add(array: Handle, bytes: usize) {
    records::add(CudaAllocation::new(CUDA_ARRAY, array as u64, bytes as u64));
}

driver_hooks! {
    "cuArrayCreate" 3020 =>
    cuArrayCreate_v2(array: *mut Handle, shape: *const Shape) |real| {
        let result = real(array, shape);
        if result == SUCCESS {
            add(*array, (*shape).bytes());
        }
        result
    }

    "cuArray3DCreate" 3020 =>
    cuArray3DCreate_v2(array: *mut Handle, shape: *const Shape3d) |real| {
        let result = real(array, shape);
        if result == SUCCESS {
            add(*array, (*shape).bytes(1));
        }
        result
    }

    "cuArrayDestroy" 2000 =>
    cuArrayDestroy(array: Handle) |real| { free(array as u64, || real(array)) }

    "cuMipmappedArrayCreate" 5000 =>
    cuMipmappedArrayCreate(array: *mut Handle, shape: *const Shape3d, levels: c_uint) |real| {
        let result = real(array, shape, levels);
        if result == SUCCESS {
            add(*array, (*shape).bytes(levels));
        }
        result
    }

    "cuMipmappedArrayDestroy" 5000 =>
    cuMipmappedArrayDestroy(array: Handle) |real| { free(array as u64, || real(array)) }
}
