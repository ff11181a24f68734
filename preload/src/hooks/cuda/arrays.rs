//! Arrays, whose layout in memory is the driver's own: what is known is their handles.

use core::ffi::{c_uint, c_void};

use ckpt_wire::allocations::{CUDA_ARRAY, CudaAllocation};

use super::driver::{Handle, SUCCESS, driver_hooks};
use super::memory::free;
use super::records;

fn add(array: Handle) {
    records::add(CudaAllocation::new(CUDA_ARRAY, array as u64, 0));
}

driver_hooks! {
    "cuArrayCreate" 3020 =>
    cuArrayCreate_v2(array: *mut Handle, descriptor: *const c_void) |real| {
        let result = real(array, descriptor);
        if result == SUCCESS {
            add(*array);
        }
        result
    }

    "cuArray3DCreate" 3020 =>
    cuArray3DCreate_v2(array: *mut Handle, descriptor: *const c_void) |real| {
        let result = real(array, descriptor);
        if result == SUCCESS {
            add(*array);
        }
        result
    }

    "cuArrayDestroy" 2000 =>
    cuArrayDestroy(array: Handle) |real| { free(array as u64, || real(array)) }

    "cuMipmappedArrayCreate" 5000 =>
    cuMipmappedArrayCreate(array: *mut Handle, descriptor: *const c_void, levels: c_uint) |real| {
        let result = real(array, descriptor, levels);
        if result == SUCCESS {
            add(*array);
        }
        result
    }

    "cuMipmappedArrayDestroy" 5000 =>
    cuMipmappedArrayDestroy(array: Handle) |real| { free(array as u64, || real(array)) }
}
