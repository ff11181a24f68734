//! The functions of the driver that backing is made of, the real ones: what they do is not recorded as the program's.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::AtomicU32;

use crate::hooks::cuda::captures;
use crate::hooks::cuda::driver::{CuResult, Handle, NO_FUNCTION, Real, SUCCESS};
use crate::sys;

/// `CUDA_ERROR_INVALID_VALUE`.
pub const INVALID_VALUE: CuResult = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: CuResult = 2;
/// `CUDA_ERROR_INVALID_CONTEXT`.
pub const INVALID_CONTEXT: CuResult = 201;
/// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED`.
pub const PEER_ACCESS_UNSUPPORTED: CuResult = 217;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub const DESCRIPTOR: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_NONE`.
pub const NO_ACCESS: c_int = 0;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub const READ_AND_WRITE: c_int = 3;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`, and `CU_MEM_LOCATION_TYPE_DEVICE`.
const PINNED: c_int = 1;
const ON_DEVICE: c_int = 1;

/// `CUmemAllocationProp`.
#[repr(C)]
pub struct Properties {
    kind: c_int,
    handle_types: c_int,
    location_kind: c_int,
    location: c_int,
    windows: *mut c_void,
    compression: u8,
    rdma: u8,
    usage: u16,
    reserved: [u8; 4],
}

impl Properties {
    /// Memory of a device that other processes can import. With `rdma`, other devices on the bus can read and write it
    /// as they can what `cuMemAlloc` gives.
    pub const fn of(device: c_int, rdma: bool) -> Self {
        Self {
            kind: PINNED,
            handle_types: DESCRIPTOR,
            location_kind: ON_DEVICE,
            location: device,
            windows: core::ptr::null_mut(),
            compression: 0,
            rdma: rdma as u8,
            usage: 0,
            reserved: [0; 4],
        }
    }
}

/// `CUmemAccessDesc`.
#[repr(C)]
struct Access {
    location_kind: c_int,
    location: c_int,
    flags: c_int,
}

const _: () = assert!(size_of::<Properties>() == 32 && size_of::<Access>() == 12);

/// A function that takes these arguments, and what calls it. Without a driver there is none to call.
macro_rules! calls {
    ($($name:ident = $symbol:literal ($($argument:ident: $type:ty),*);)*) => {
        $(
        unsafe fn $name($($argument: $type),*) -> Result<(), CuResult> {
            let Some(real) = real::$name.get() else { return Err(NO_FUNCTION) };
            // SAFETY: the caller's word: the arguments are what the driver asks for.
            match unsafe { real($($argument),*) } {
                SUCCESS => Ok(()),
                error => Err(error),
            }
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

calls! {
    get_context = c"cuCtxGetCurrent" (context: *mut Handle);
    get_device = c"cuCtxGetDevice" (device: *mut c_int);
    push_context = c"cuCtxPushCurrent_v2" (context: Handle);
    pop_context = c"cuCtxPopCurrent_v2" (context: *mut Handle);
    synchronise_context = c"cuCtxSynchronize" ();
    synchronise_stream = c"cuStreamSynchronize" (stream: Handle);
    synchronise_stream_ptsz = c"cuStreamSynchronize_ptsz" (stream: Handle);
    stream_is_capturing = c"cuStreamIsCapturing" (stream: Handle, state: *mut c_int);
    stream_is_capturing_ptsz = c"cuStreamIsCapturing_ptsz" (stream: Handle, state: *mut c_int);
    get_device_attribute = c"cuDeviceGetAttribute" (value: *mut c_int, attribute: c_int, device: c_int);
    get_granularity = c"cuMemGetAllocationGranularity" (bytes: *mut usize, about: *const Properties, which: c_int);
    mem_create = c"cuMemCreate" (memory: *mut u64, bytes: usize, about: *const Properties, flags: u64);
    mem_release = c"cuMemRelease" (memory: u64);
    mem_reserve = c"cuMemAddressReserve" (address: *mut u64, bytes: usize, alignment: usize, wanted: u64, flags: u64);
    mem_address_free = c"cuMemAddressFree" (address: u64, bytes: usize);
    mem_map = c"cuMemMap" (address: u64, bytes: usize, offset: usize, memory: u64, flags: u64);
    mem_unmap = c"cuMemUnmap" (address: u64, bytes: usize);
    mem_set_access = c"cuMemSetAccess" (address: u64, bytes: usize, access: *const Access, count: usize);
    mem_retain = c"cuMemRetainAllocationHandle" (memory: *mut u64, address: *mut c_void);
    mem_export = c"cuMemExportToShareableHandle" (to: *mut c_int, memory: u64, kind: c_int, flags: u64);
    mem_import = c"cuMemImportFromShareableHandle" (memory: *mut u64, from: *mut c_void, kind: c_int);
    pitched_native = c"cuMemAllocPitch_v2" (address: *mut u64, pitch: *mut usize, width: usize, rows: usize, of: c_uint);
    allocate_native = c"cuMemAlloc_v2" (address: *mut u64, bytes: usize);
    free_native = c"cuMemFree_v2" (address: u64);
    copy_on_device = c"cuMemcpyDtoD_v2" (to: u64, from: u64, bytes: usize);
}

/// The calling thread's context; null where it has none.
pub fn current_context() -> Result<Handle, CuResult> {
    let mut context = core::ptr::null_mut();
    // SAFETY: a place for one.
    unsafe { get_context(&raw mut context) }?;
    Ok(context)
}

/// The device of the calling thread's context. An error, as of all calls that need one, if that is not there.
pub fn current_device() -> Result<c_int, CuResult> {
    let mut device = -1;
    // SAFETY: a place for one.
    unsafe { get_device(&raw mut device) }?;
    Ok(device)
}

/// Waits for all that was begun in a context. An error if the calling thread has none.
pub fn synchronise(context: Handle) -> Result<(), CuResult> {
    current_device()?;
    in_context(context, || {
        loop {
            // SAFETY: it waits.
            if let Some(result) = captures::unless_there(|| unsafe { synchronise_context() }) {
                return result;
            }
            match wait_as_a_free_does() {
                Err(OUT_OF_MEMORY) => sys::futex_wait(&AtomicU32::new(0), 0, Some(1)),
                result => return result,
            }
        }
    })
}

/// Does something in a context with memory in it, which is the calling thread's own then.
fn in_context(context: Handle, act: impl FnOnce() -> Result<(), CuResult>) -> Result<(), CuResult> {
    if current_context()? == context {
        return act();
    }
    // SAFETY: such a context is there; the one that was current is so again behind this.
    unsafe {
        push_context(context)?;
        let result = act();
        let mut pushed = core::ptr::null_mut();
        pop_context(&raw mut pushed)?;
        result
    }
}

/// Whoever waits for a context ends the captures in it. The driver's own free waits and does not, and it says whether the calling
/// thread may free anything.
fn wait_as_a_free_does() -> Result<(), CuResult> {
    let mut address = 0;
    // SAFETY: a place for one; what is allocated is given back at once.
    unsafe {
        allocate_native(&raw mut address, 1)?;
        free_native(address)
    }
}

/// Copies memory of a context's device to other memory of it, and waits for that.
pub fn copy(context: Handle, to: u64, from: u64, bytes: usize) -> Result<(), CuResult> {
    in_context(context, || {
        // SAFETY: both are mapped, for the caller alone.
        unsafe {
            copy_on_device(to, from, bytes)?;
            synchronise_context()
        }
    })
}

/// Waits for what is in a stream. If it is null or one of the default ones, `per_thread` says which that is.
pub fn synchronise_in_order(stream: Handle, per_thread: bool) -> Result<(), CuResult> {
    // SAFETY: the driver knows whether there is such a stream.
    unsafe { if per_thread { synchronise_stream_ptsz(stream) } else { synchronise_stream(stream) } }
}

/// Whether what is put into a stream becomes part of a graph.
pub fn is_capturing(stream: Handle, per_thread: bool) -> bool {
    let mut state = 0;
    // SAFETY: as above, and a place for one.
    let asked = unsafe {
        if per_thread {
            stream_is_capturing_ptsz(stream, &raw mut state)
        } else {
            stream_is_capturing(stream, &raw mut state)
        }
    };
    asked.is_ok() && state != 0
}

/// An attribute of a device; 0 where the driver does not know it.
pub fn device_attribute(attribute: c_int, device: c_int) -> c_int {
    let mut value = 0;
    // SAFETY: a place for one.
    let _ = unsafe { get_device_attribute(&raw mut value, attribute, device) };
    value
}

/// What the size of such memory must be a multiple of.
pub fn granularity(about: &Properties) -> Result<usize, CuResult> {
    let mut bytes = 0;
    // SAFETY: a place for one; 0 is the least granularity.
    unsafe { get_granularity(&raw mut bytes, about, 0) }?;
    Ok(bytes)
}

/// Physical memory: its handle.
pub fn create(bytes: usize, about: &Properties) -> Result<u64, CuResult> {
    let mut memory = 0;
    // SAFETY: a place for one.
    unsafe { mem_create(&raw mut memory, bytes, about, 0) }?;
    Ok(memory)
}

/// Gives a handle back. The memory is there as long as it is mapped.
pub fn release(memory: u64) {
    // SAFETY: a handle of ours.
    let _ = unsafe { mem_release(memory) };
}

/// Addresses for so many bytes.
pub fn reserve(bytes: usize) -> Result<u64, CuResult> {
    let mut address = 0;
    // SAFETY: a place for one; wherever the driver likes.
    unsafe { mem_reserve(&raw mut address, bytes, 0, 0, 0) }?;
    Ok(address)
}

/// Gives addresses back that `reserve` has given.
pub fn free_addresses(address: u64, bytes: usize) {
    // SAFETY: ours, and nothing is mapped there.
    let _ = unsafe { mem_address_free(address, bytes) };
}

/// Maps physical memory at addresses that are reserved, for nobody yet.
pub fn map(address: u64, bytes: usize, memory: u64) -> Result<(), CuResult> {
    // SAFETY: addresses of ours.
    unsafe { mem_map(address, bytes, 0, memory, 0) }
}

/// Unmaps what `map` has mapped.
pub fn unmap(address: u64, bytes: usize) -> Result<(), CuResult> {
    // SAFETY: a mapping of ours, which nothing uses any more.
    unsafe { mem_unmap(address, bytes) }
}

/// What a device may do with what is mapped there.
pub fn set_access(address: u64, bytes: usize, device: c_int, flags: c_int) -> Result<(), CuResult> {
    let access = Access { location_kind: ON_DEVICE, location: device, flags };
    // SAFETY: a mapping of ours, and one description.
    unsafe { mem_set_access(address, bytes, &raw const access, 1) }
}

/// A handle of the physical memory that is mapped at an address. It must be given back.
pub fn retain(address: u64) -> Result<u64, CuResult> {
    let mut memory = 0;
    // SAFETY: a place for one; the driver says whether something is mapped there.
    unsafe { mem_retain(&raw mut memory, address as *mut c_void) }?;
    Ok(memory)
}

/// A descriptor, in the program's table, of the physical memory that is mapped at an address.
pub fn export(address: u64) -> Result<c_int, CuResult> {
    let memory = retain(address)?;
    let mut descriptor = -1;
    // SAFETY: a place for one.
    let result = unsafe { mem_export((&raw mut descriptor).cast(), memory, DESCRIPTOR, 0) };
    release(memory);
    result.map(|()| descriptor)
}

/// A handle of the physical memory that a descriptor is of.
pub fn import(descriptor: c_int) -> Result<u64, CuResult> {
    let mut memory = 0;
    // SAFETY: a place for one; the driver takes the number in place of an address.
    unsafe { mem_import(&raw mut memory, descriptor as usize as *mut c_void, DESCRIPTOR) }?;
    Ok(memory)
}

/// How far apart rows of this width are that the driver allocates.
pub fn pitch(width: usize, element: c_uint) -> Result<usize, CuResult> {
    let (mut address, mut pitch) = (0, 0);
    // SAFETY: a place for each; what is allocated is given back at once.
    unsafe {
        pitched_native(&raw mut address, &raw mut pitch, width, 1, element)?;
        free_native(address)?;
    }
    Ok(pitch)
}
