//! Kernels and graphs: what is launched may change any memory.

use core::ffi::{c_int, c_uint};

use super::driver::{Handle, passes_gate};

passes_gate! {
    "cuGraphExecDestroy" 10000 cuGraphExecDestroy => (graph: Handle);
    "cuGraphInstantiate" 10000 cuGraphInstantiate => (
        executable: Handle, graph: Handle, failed: Handle, text: Handle, text_bytes: usize
    );
    "cuGraphInstantiate" 11000 cuGraphInstantiate_v2 => (
        executable: Handle, graph: Handle, failed: Handle, text: Handle, text_bytes: usize
    );
    "cuGraphInstantiateWithFlags" 11040 cuGraphInstantiateWithFlags => (executable: Handle, graph: Handle, flags: u64);
    "cuGraphInstantiateWithParams" 12000 cuGraphInstantiateWithParams, 12000 cuGraphInstantiateWithParams_ptsz => (
        executable: Handle, graph: Handle, parameters: Handle
    );
    "cuGraphLaunch" 10000 cuGraphLaunch, 10000 cuGraphLaunch_ptsz => (graph: Handle, stream: Handle);
    "cuGraphUpload" 11010 cuGraphUpload, 11010 cuGraphUpload_ptsz => (graph: Handle, stream: Handle);
    "cuLaunch" 2000 cuLaunch => (function: Handle);
    "cuLaunchCooperativeKernel" 9000 cuLaunchCooperativeKernel, 9000 cuLaunchCooperativeKernel_ptsz => (
        function: Handle, blocks_x: c_uint, blocks_y: c_uint, blocks_z: c_uint, threads_x: c_uint,
        threads_y: c_uint, threads_z: c_uint, shared: c_uint, stream: Handle, parameters: Handle
    );
    "cuLaunchCooperativeKernelMultiDevice" 9000 cuLaunchCooperativeKernelMultiDevice => (
        launches: Handle, devices: c_uint, flags: c_uint
    );
    "cuLaunchGrid" 2000 cuLaunchGrid => (function: Handle, width: c_int, height: c_int);
    "cuLaunchGridAsync" 2000 cuLaunchGridAsync => (function: Handle, width: c_int, height: c_int, stream: Handle);
    "cuLaunchKernel" 4000 cuLaunchKernel, 7000 cuLaunchKernel_ptsz => (
        function: Handle, blocks_x: c_uint, blocks_y: c_uint, blocks_z: c_uint, threads_x: c_uint,
        threads_y: c_uint, threads_z: c_uint, shared: c_uint, stream: Handle, parameters: Handle, extra: Handle
    );
    "cuLaunchKernelEx" 11060 cuLaunchKernelEx, 11060 cuLaunchKernelEx_ptsz => (
        how: Handle, function: Handle, parameters: Handle, extra: Handle
    );
}
