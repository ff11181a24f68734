//! Global variables of modules, from when the program asks for them.

use core::ffi::c_char;

use ckpt_wire::allocations::{CUDA_GLOBAL, CUDA_MANAGED, CUDA_MANAGED_GLOBAL, CudaAllocation};

use super::driver::{CuResult, Handle, SUCCESS, driver_hooks};
use super::{attributes, code, records};

/// Records a variable, which may be asked for again and again.
///
/// # Safety
/// The driver has written both, where they are not null.
pub unsafe fn add(kind: u32, address: *const u64, bytes: *const usize, module: Handle) {
    // SAFETY: the caller's word. A program may ask for one of the two alone; then nothing is known.
    let (Some(&address), Some(&bytes)) = (unsafe { address.as_ref() }, unsafe { bytes.as_ref() }) else { return };
    let is_managed = attributes::of(address).is_some_and(|attributes| attributes.kind == CUDA_MANAGED);
    let kind = if is_managed { CUDA_MANAGED_GLOBAL } else { kind };
    records::add_as(kind, address, bytes as u64, module as u64);
}

fn unload(module: Handle, unload: &mut dyn FnMut() -> CuResult) -> CuResult {
    let result = code::unload(module as u64, unload);
    if result == SUCCESS {
        records::remove_where(|allocation: &CudaAllocation| {
            matches!(allocation.kind, CUDA_GLOBAL | CUDA_MANAGED_GLOBAL) && allocation.owner == module as u64
        });
    }
    result
}

driver_hooks! {
    "cuModuleGetGlobal" 3020 ungated =>
    cuModuleGetGlobal_v2(address: *mut u64, bytes: *mut usize, module: Handle, name: *const c_char) |real| {
        let result = real(address, bytes, module, name);
        if result == SUCCESS {
            add(CUDA_GLOBAL, address, bytes, module);
        }
        result
    }

    "cuLibraryGetGlobal" 12000 =>
    cuLibraryGetGlobal(address: *mut u64, bytes: *mut usize, library: Handle, name: *const c_char) |real| {
        let result = real(address, bytes, library, name);
        if result == SUCCESS {
            add(CUDA_GLOBAL, address, bytes, library);
        }
        result
    }

    "cuLibraryGetManaged" 12000 =>
    cuLibraryGetManaged(address: *mut u64, bytes: *mut usize, library: Handle, name: *const c_char) |real| {
        let result = real(address, bytes, library, name);
        if result == SUCCESS {
            add(CUDA_MANAGED_GLOBAL, address, bytes, library);
        }
        result
    }

    "cuModuleUnload" 2000 =>
    cuModuleUnload(module: Handle) |real| { unload(module, &mut || real(module)) }

    "cuLibraryUnload" 12000 =>
    cuLibraryUnload(library: Handle) |real| { unload(library, &mut || real(library)) }
}
