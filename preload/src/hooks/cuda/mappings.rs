//! What other memory or none comes to be at addresses, or who may use it, without an allocation of the program's.

use core::ffi::{c_int, c_uint};

use super::driver::{Handle, passes_gate};

passes_gate! {
    "cuCtxSetLimit" 3010 cuCtxSetLimit => (limit: c_uint, value: usize);
    "cuDestroyExternalMemory" 10000 cuDestroyExternalMemory => (memory: Handle);
    "cuDeviceGraphMemTrim" 11040 cuDeviceGraphMemTrim => (device: c_int);
    "cuExternalMemoryGetMappedMipmappedArray" 10000 cuExternalMemoryGetMappedMipmappedArray => (
        mipmap: Handle, memory: Handle, shape: Handle
    );
    "cuGraphicsMapResources" 3000 cuGraphicsMapResources, 7000 cuGraphicsMapResources_ptsz => (
        count: c_uint, resources: Handle, stream: Handle
    );
    "cuGraphicsUnmapResources" 3000 cuGraphicsUnmapResources, 7000 cuGraphicsUnmapResources_ptsz => (
        count: c_uint, resources: Handle, stream: Handle
    );
    "cuMemMapArrayAsync" 11010 cuMemMapArrayAsync, 11010 cuMemMapArrayAsync_ptsz => (
        mappings: Handle, count: c_uint, stream: Handle
    );
    "cuMemPoolTrimTo" 11020 cuMemPoolTrimTo => (pool: Handle, bytes: usize);
    "cuMemSetAccess" 10020 cuMemSetAccess => (address: u64, bytes: usize, access: Handle, count: usize);
    "cuMulticastBindAddr" 12010 cuMulticastBindAddr => (
        multicast: u64, offset: usize, address: Handle, bytes: usize, flags: u64
    );
    "cuMulticastBindMem" 12010 cuMulticastBindMem => (
        multicast: u64, offset: usize, memory: u64, memory_offset: usize, bytes: usize, flags: u64
    );
    "cuMulticastUnbind" 12010 cuMulticastUnbind => (multicast: u64, device: c_int, offset: usize, bytes: usize);
    "cuSignalExternalSemaphoresAsync" 10000 cuSignalExternalSemaphoresAsync,
        10000 cuSignalExternalSemaphoresAsync_ptsz => (
        semaphores: Handle, parameters: Handle, count: c_uint, stream: Handle
    );
    "cuWaitExternalSemaphoresAsync" 10000 cuWaitExternalSemaphoresAsync, 10000 cuWaitExternalSemaphoresAsync_ptsz => (
        semaphores: Handle, parameters: Handle, count: c_uint, stream: Handle
    );
}
