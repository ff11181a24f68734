//! Loading of code, which brings the first values of its variables. Much of it is done when a function is first asked
//! for.

use core::ffi::c_uint;

use super::driver::{Handle, passes_gate};

passes_gate! {
    "cuFuncLoad" 12040 cuFuncLoad => (function: Handle);
    "cuKernelGetFunction" 12000 cuKernelGetFunction => (function: Handle, kernel: Handle);
    "cuLibraryGetModule" 12000 cuLibraryGetModule => (module: Handle, library: Handle);
    "cuLibraryLoadData" 12000 cuLibraryLoadData => (
        library: Handle, code: Handle, jit_options: Handle, jit_values: Handle, jit_option_count: c_uint,
        library_options: Handle, library_values: Handle, library_option_count: c_uint
    );
    "cuLibraryLoadFromFile" 12000 cuLibraryLoadFromFile => (
        library: Handle, path: Handle, jit_options: Handle, jit_values: Handle, jit_option_count: c_uint,
        library_options: Handle, library_values: Handle, library_option_count: c_uint
    );
    "cuModuleGetFunction" 2000 cuModuleGetFunction => (function: Handle, module: Handle, name: Handle);
    "cuModuleLoad" 2000 cuModuleLoad => (module: Handle, path: Handle);
    "cuModuleLoadData" 2000 cuModuleLoadData => (module: Handle, image: Handle);
    "cuModuleLoadDataEx" 2010 cuModuleLoadDataEx => (
        module: Handle, image: Handle, option_count: c_uint, options: Handle, option_values: Handle
    );
    "cuModuleLoadFatBinary" 2000 cuModuleLoadFatBinary => (module: Handle, image: Handle);
}
