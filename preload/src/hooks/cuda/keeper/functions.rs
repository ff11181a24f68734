//! The driver's functions that the keeper calls, each with its type. They are found before they are needed: a lookup may wait
//! for the dynamic linker's lock, which a thread that waits at the gate may hold. Those for memory are `backing`'s.

use core::ffi::{c_char, c_int, c_uint, c_void};

use super::super::driver::{CuResult, Handle, NO_FUNCTION, Real, SUCCESS};

/// `CU_STREAM_NON_BLOCKING`.
pub const NON_BLOCKING: c_uint = 1;
/// `CU_MEM_ATTACH_GLOBAL`.
pub const ATTACH_GLOBAL: c_uint = 1;
/// `CU_MEMHOSTREGISTER_PORTABLE` and `_DEVICEMAP`.
pub const PORTABLE: c_uint = 1;
pub const DEVICE_MAP: c_uint = 2;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_uint = 2;

macro_rules! functions {
    ($($name:ident: $symbol:literal ($($argument:ident: $type:ty),*);)*) => {
        $(
            /// The driver's function, or the error that there is none.
            ///
            /// # Safety
            /// As for the driver's function.
            pub unsafe fn $name($($argument: $type),*) -> CuResult {
                // SAFETY: the caller's word.
                real::$name.get().map_or(NO_FUNCTION, |real| unsafe { real($($argument),*) })
            }
        )*

        #[allow(non_upper_case_globals, reason = "one name for a function and for where it is")]
        mod real {
            use super::*;
            $(
                pub static $name: Real<unsafe extern "C" fn($($type),*) -> CuResult> = Real::new($symbol);
            )*
        }

        /// Finds all of them, where the driver has them.
        pub fn look_up_all() {
            $( let _ = real::$name.get(); )*
        }
    };
}

/// `CUcheckpointLockArgs`.
#[repr(C)]
pub struct LockArguments {
    /// How long the driver may wait for what the process has its devices do; 0 for ever.
    pub timeout_ms: c_uint,
    /// 0.
    pub unused: c_uint,
    /// 0.
    pub unused_too: [u64; 7],
}

/// `CUcheckpointCheckpointArgs` and `CUcheckpointUnlockArgs`: zeros.
#[repr(C)]
pub struct CheckpointArguments(pub [u64; 8]);

/// `CUcheckpointRestoreArgs`.
#[repr(C)]
pub struct RestoreArguments {
    /// Of devices and those that stand for them; null for none.
    pub pairs: *mut u8,
    /// How many.
    pub count: c_uint,
    /// 0.
    pub unused: [u8; 52],
    /// 0.
    pub unused_too: u64,
}

const _: () = assert!(size_of::<LockArguments>() == 64 && size_of::<RestoreArguments>() == 72);

functions! {
    lock: c"cuCheckpointProcessLock" (pid: c_int, how: *mut LockArguments);
    checkpoint: c"cuCheckpointProcessCheckpoint" (pid: c_int, how: *mut CheckpointArguments);
    restore: c"cuCheckpointProcessRestore" (pid: c_int, how: *mut RestoreArguments);
    unlock: c"cuCheckpointProcessUnlock" (pid: c_int, how: *mut CheckpointArguments);
    state: c"cuCheckpointProcessGetState" (pid: c_int, state: *mut c_int);
    set_current: c"cuCtxSetCurrent" (context: Handle);
    synchronise_current: c"cuCtxSynchronize" ();
    count_devices: c"cuDeviceGetCount" (count: *mut c_int);
    identify: c"cuDeviceGetUuid_v2" (uuid: *mut [u64; 2], device: c_int);
    exchange_capture_mode: c"cuThreadExchangeStreamCaptureMode" (mode: *mut c_uint);
    default_pool: c"cuDeviceGetDefaultMemPool" (pool: *mut Handle, device: c_int);
    trim_pool: c"cuMemPoolTrimTo" (pool: Handle, keep: usize);
    create_stream: c"cuStreamCreate" (stream: *mut Handle, flags: c_uint);
    destroy_stream: c"cuStreamDestroy_v2" (stream: Handle);
    synchronise_stream: c"cuStreamSynchronize" (stream: Handle);
    module_variable: c"cuModuleGetGlobal_v2" (address: *mut u64, bytes: *mut usize, module: Handle, name: *const c_char);
    library_variable: c"cuLibraryGetGlobal" (address: *mut u64, bytes: *mut usize, library: Handle, name: *const c_char);
    library_managed: c"cuLibraryGetManaged" (address: *mut u64, bytes: *mut usize, library: Handle, name: *const c_char);
    allocate_managed: c"cuMemAllocManaged" (address: *mut u64, bytes: usize, flags: c_uint);
    free: c"cuMemFree_v2" (address: u64);
    advise: c"cuMemAdvise_v2" (address: u64, bytes: usize, advice: c_int, location: u64);
    register: c"cuMemHostRegister_v2" (place: *mut c_void, bytes: usize, flags: c_uint);
    unregister: c"cuMemHostUnregister" (place: *mut c_void);
    device_pointer: c"cuMemHostGetDevicePointer_v2" (address: *mut u64, place: *mut c_void, flags: c_uint);
    copy: c"cuMemcpyAsync" (to: u64, from: u64, bytes: usize, stream: Handle);
}

/// Captures in other threads do not forbid the calling one anything.
pub fn make_captures_of_others_irrelevant() {
    let mut mode = RELAXED;
    // SAFETY: a live number.
    unsafe { exchange_capture_mode(&raw mut mode) };
}

/// How many devices the program sees.
pub fn device_count() -> u32 {
    let mut count = 0;
    // SAFETY: a live number.
    let result = unsafe { count_devices(&raw mut count) };
    if result == SUCCESS { count.unsigned_abs() } else { 0 }
}

/// Waits until all that a context was given is done.
pub fn synchronise(context: Handle) -> CuResult {
    // SAFETY: a context of the program's, which cannot end while the gate is closed.
    match unsafe { set_current(context) } {
        // SAFETY: there is a context.
        SUCCESS => unsafe { synchronise_current() },
        error => error,
    }
}
