//! Loading of code, which brings the first values of its variables. Much of it is done when a function is first asked
//! for. What is loaded from where is remembered ([`code`]).

use core::ffi::{c_char, c_uint, c_void};

use ckpt_wire::device::{CODE_LIBRARY, CODE_MODULE};

use super::code;
use super::driver::{CuResult, Handle, SUCCESS, driver_hooks, passes_gate};

/// # Safety
/// If the driver has succeeded, it has written the handle, and read the image.
unsafe fn from_memory(result: CuResult, kind: u32, handle: *const Handle, image: *const c_void) -> CuResult {
    if result == SUCCESS {
        // SAFETY: the caller's word.
        unsafe { code::loaded(kind, *handle, image.cast()) };
    }
    result
}

/// # Safety
/// The same for a path.
unsafe fn from_file(result: CuResult, kind: u32, handle: *const Handle, path: *const c_char) -> CuResult {
    if result == SUCCESS {
        // SAFETY: the caller's word.
        unsafe { code::loaded_from_file(kind, *handle, path) };
    }
    result
}

driver_hooks! {
    "cuLibraryLoadData" 12000 =>
    cuLibraryLoadData(
        library: *mut Handle, image: *const c_void, jit_options: Handle, jit_values: Handle, jit_option_count: c_uint,
        library_options: Handle, library_values: Handle, library_option_count: c_uint,
    ) |real| {
        let result = real(
            library, image, jit_options, jit_values, jit_option_count, library_options, library_values,
            library_option_count,
        );
        from_memory(result, CODE_LIBRARY, library, image)
    }

    "cuLibraryLoadFromFile" 12000 =>
    cuLibraryLoadFromFile(
        library: *mut Handle, path: *const c_char, jit_options: Handle, jit_values: Handle, jit_option_count: c_uint,
        library_options: Handle, library_values: Handle, library_option_count: c_uint,
    ) |real| {
        let result = real(
            library, path, jit_options, jit_values, jit_option_count, library_options, library_values,
            library_option_count,
        );
        from_file(result, CODE_LIBRARY, library, path)
    }

    "cuModuleLoad" 2000 =>
    cuModuleLoad(module: *mut Handle, path: *const c_char) |real| {
        from_file(real(module, path), CODE_MODULE, module, path)
    }

    "cuModuleLoadData" 2000 =>
    cuModuleLoadData(module: *mut Handle, image: *const c_void) |real| {
        from_memory(real(module, image), CODE_MODULE, module, image)
    }

    "cuModuleLoadDataEx" 2010 =>
    cuModuleLoadDataEx(
        module: *mut Handle, image: *const c_void, option_count: c_uint, options: Handle, option_values: Handle,
    ) |real| {
        from_memory(real(module, image, option_count, options, option_values), CODE_MODULE, module, image)
    }

    "cuModuleLoadFatBinary" 2000 =>
    cuModuleLoadFatBinary(module: *mut Handle, image: *const c_void) |real| {
        from_memory(real(module, image), CODE_MODULE, module, image)
    }
}

passes_gate! {
    "cuFuncLoad" 12040 cuFuncLoad => (function: Handle);
    "cuKernelGetFunction" 12000 cuKernelGetFunction => (function: Handle, kernel: Handle);
    "cuLibraryGetModule" 12000 cuLibraryGetModule => (module: Handle, library: Handle);
    "cuModuleGetFunction" 2000 cuModuleGetFunction => (function: Handle, module: Handle, name: Handle);
}
