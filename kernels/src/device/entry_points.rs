//! The entry points of the CUDA driver that are used here, looked up one by one in a library that is opened by name.
//!
//! So a machine without a driver runs everything else, a missing entry point is an error that names it, and after a restart
//! in a fresh process a new table is bound to the driver that is there then. Names and types are those of `cuda.h`; all
//! of [`EntryPoints`] have been there since CUDA 9 or longer, and all of the others since CUDA 11.4 where nothing else is said.

use std::{
    error::Error as _,
    ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void},
    path::Path,
};

use libloading::{Library, os::unix};

use super::error::{Error, Result};

/// An address in device memory.
pub type Address = u64;
/// A context, stream, event, module or function of the driver.
pub type Handle = *mut c_void;

macro_rules! entry_points {
    ($(#[$docs:meta])* $table:ident: $(fn $name:ident = $symbol:literal($($argument:ident: $type:ty),*);)*) => {
        $(#[$docs])*
        pub struct $table {
            $($name: unsafe extern "C" fn($($type),*) -> c_int,)*
            error_name: ErrorName,
            /// Stays open for as long as there are pointers into it.
            _library: Library,
        }

        impl $table {
            /// Opens a driver: usually `libcuda.so.1`.
            pub fn load(path: &Path) -> Result<Self> {
                let unavailable = |error| Error::NoDriver { path: path.to_owned(), why: whole(error) };
                // SAFETY: the driver's constructors may run in any process: that is what it is made for. Local: its names
                // must not take the place of anybody's.
                let library: Library = unsafe { unix::Library::open(Some(path), unix::RTLD_NOW | unix::RTLD_LOCAL) }
                    .map_err(unavailable)?
                    .into();
                // SAFETY: cuda.h declares these symbols with these types.
                unsafe {
                    Ok(Self {
                        $($name: *library.get($symbol).map_err(unavailable)?,)*
                        error_name: *library.get("cuGetErrorName").map_err(unavailable)?,
                        _library: library,
                    })
                }
            }

            $(
                /// # Safety
                /// As cuda.h and the driver's manual say of the function of this name.
                #[allow(clippy::too_many_arguments, reason = "the driver's")]
                pub unsafe fn $name(&self, $($argument: $type),*) -> Result<()> {
                    // SAFETY: the caller's.
                    self.check($symbol, unsafe { (self.$name)($($argument),*) })
                }
            )*

            fn check(&self, call: &'static str, code: c_int) -> Result<()> {
                match code {
                    0 => Ok(()),
                    code => Err(Error::Call { call, code, name: name_of(self.error_name, code) }),
                }
            }
        }
    };
}

entry_points! {
    /// The driver's functions.
    EntryPoints:
    fn init = "cuInit"(flags: c_uint);
    fn driver_version = "cuDriverGetVersion"(version: *mut c_int);
    fn device_get = "cuDeviceGet"(device: *mut c_int, ordinal: c_int);
    fn device_name = "cuDeviceGetName"(name: *mut c_char, length: c_int, device: c_int);
    fn device_attribute = "cuDeviceGetAttribute"(value: *mut c_int, attribute: c_int, device: c_int);
    fn context_retain = "cuDevicePrimaryCtxRetain"(context: *mut Handle, device: c_int);
    fn context_release = "cuDevicePrimaryCtxRelease_v2"(device: c_int);
    fn context_set = "cuCtxSetCurrent"(context: Handle);
    fn context_get = "cuCtxGetCurrent"(context: *mut Handle);
    fn allocate = "cuMemAlloc_v2"(address: *mut Address, bytes: usize);
    fn free = "cuMemFree_v2"(address: Address);
    fn allocate_host = "cuMemHostAlloc"(place: *mut *mut c_void, bytes: usize, flags: c_uint);
    fn free_host = "cuMemFreeHost"(place: *mut c_void);
    fn copy_in = "cuMemcpyHtoDAsync_v2"(to: Address, from: *const c_void, bytes: usize, stream: Handle);
    fn copy_out = "cuMemcpyDtoHAsync_v2"(to: *mut c_void, from: Address, bytes: usize, stream: Handle);
    fn copy_within = "cuMemcpyDtoDAsync_v2"(to: Address, from: Address, bytes: usize, stream: Handle);
    fn fill = "cuMemsetD8Async"(to: Address, byte: u8, bytes: usize, stream: Handle);
    fn stream_create = "cuStreamCreate"(stream: *mut Handle, flags: c_uint);
    fn stream_destroy = "cuStreamDestroy_v2"(stream: Handle);
    fn stream_synchronize = "cuStreamSynchronize"(stream: Handle);
    fn stream_wait = "cuStreamWaitEvent"(stream: Handle, event: Handle, flags: c_uint);
    fn event_create = "cuEventCreate"(event: *mut Handle, flags: c_uint);
    fn event_destroy = "cuEventDestroy_v2"(event: Handle);
    fn event_record = "cuEventRecord"(event: Handle, stream: Handle);
    fn event_synchronize = "cuEventSynchronize"(event: Handle);
    fn event_elapsed = "cuEventElapsedTime"(milliseconds: *mut f32, from: Handle, to: Handle);
    fn module_load = "cuModuleLoadData"(module: *mut Handle, image: *const c_void);
    fn module_unload = "cuModuleUnload"(module: Handle);
    fn module_function = "cuModuleGetFunction"(function: *mut Handle, module: Handle, name: *const c_char);
    fn function_attribute = "cuFuncGetAttribute"(value: *mut c_int, attribute: c_int, function: Handle);
    fn occupancy = "cuOccupancyMaxActiveBlocksPerMultiprocessor"(
        blocks: *mut c_int, function: Handle, threads: c_int, shared_bytes: usize);
    fn launch = "cuLaunchKernel"(
        function: Handle, blocks_x: c_uint, blocks_y: c_uint, blocks_z: c_uint, threads_x: c_uint, threads_y: c_uint,
        threads_z: c_uint, shared_bytes: c_uint, stream: Handle, parameters: *mut *mut c_void, extra: *mut *mut c_void);
}

/// What the dynamic linker says is the source of what the library says.
fn whole(error: libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

entry_points! {
    /// The driver's functions for memory that several processes have, and for finding the device that another one uses.
    SharingEntryPoints:
    fn device_count = "cuDeviceGetCount"(count: *mut c_int);
    fn device_uuid = "cuDeviceGetUuid_v2"(uuid: *mut [u8; 16], device: c_int);
    fn memory = "cuMemGetInfo_v2"(free: *mut usize, total: *mut usize);
    fn import = "cuMemImportFromShareableHandle"(physical: *mut u64, descriptor: *mut c_void, kind: c_int);
    fn release = "cuMemRelease"(physical: u64);
    fn reserve = "cuMemAddressReserve"(
        address: *mut Address, bytes: usize, alignment: usize, wanted: Address, flags: c_ulonglong);
    fn give_back = "cuMemAddressFree"(address: Address, bytes: usize);
    fn map = "cuMemMap"(address: Address, bytes: usize, offset: usize, physical: u64, flags: c_ulonglong);
    fn unmap = "cuMemUnmap"(address: Address, bytes: usize);
    fn set_access = "cuMemSetAccess"(address: Address, bytes: usize, access: *const [c_int; 3], count: usize);
}

entry_points! {
    /// The driver's functions that say which devices there are.
    SurveyEntryPoints:
    fn init = "cuInit"(flags: c_uint);
    fn device_count = "cuDeviceGetCount"(count: *mut c_int);
    fn device_uuid = "cuDeviceGetUuid_v2"(uuid: *mut [u8; 16], device: c_int);
    fn device_name = "cuDeviceGetName"(name: *mut c_char, length: c_int, device: c_int);
    fn device_bytes = "cuDeviceTotalMem_v2"(bytes: *mut usize, device: c_int);
    fn device_attribute = "cuDeviceGetAttribute"(value: *mut c_int, attribute: c_int, device: c_int);
}

entry_points! {
    /// The driver's functions that a trial with managed memory needs.
    ManagedEntryPoints:
    fn init = "cuInit"(flags: c_uint);
    fn device_get = "cuDeviceGet"(device: *mut c_int, ordinal: c_int);
    fn context_retain = "cuDevicePrimaryCtxRetain"(context: *mut Handle, device: c_int);
    fn context_set = "cuCtxSetCurrent"(context: Handle);
    fn allocate = "cuMemAlloc_v2"(address: *mut Address, bytes: usize);
    fn allocate_managed = "cuMemAllocManaged"(address: *mut Address, bytes: usize, flags: c_uint);
    fn free = "cuMemFree_v2"(address: Address);
    fn register = "cuMemHostRegister_v2"(place: *mut c_void, bytes: usize, flags: c_uint);
    fn device_address = "cuMemHostGetDevicePointer_v2"(address: *mut Address, place: *mut c_void, flags: c_uint);
    fn copy_out = "cuMemcpyDtoH_v2"(to: *mut c_void, from: Address, bytes: usize);
}

/// `CUcheckpointLockArgs`.
#[repr(C)]
#[derive(Default)]
pub struct LockArguments {
    /// How long the driver may wait for what the process has its devices do.
    pub timeout_ms: c_uint,
    /// 0.
    pub unused: c_uint,
    /// 0.
    pub unused_too: [u64; 7],
}

entry_points! {
    /// The driver's functions that checkpoint a process, which are there from version 570 on. The arguments of all but the first
    /// may be zeros.
    CheckpointEntryPoints:
    fn lock = "cuCheckpointProcessLock"(pid: c_int, how: *mut LockArguments);
    fn checkpoint = "cuCheckpointProcessCheckpoint"(pid: c_int, how: *mut [u64; 8]);
    fn restore = "cuCheckpointProcessRestore"(pid: c_int, how: *mut [u64; 9]);
    fn unlock = "cuCheckpointProcessUnlock"(pid: c_int, how: *mut [u64; 8]);
}

type ErrorName = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;

fn name_of(error_name: ErrorName, code: c_int) -> String {
    let mut name = std::ptr::null();
    // SAFETY: it writes a pointer to a string that lives as long as the driver, or fails.
    let named = unsafe { error_name(code, &raw mut name) };
    if named != 0 || name.is_null() {
        return "unknown error".to_owned();
    }
    // SAFETY: see above.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}
