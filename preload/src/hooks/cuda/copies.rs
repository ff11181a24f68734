//! Copies, and what else moves content: out of a compressed form.

use core::ffi::c_uint;

use super::driver::{Handle, passes_gate};

passes_gate! {
    "cuMemBatchDecompressAsync" 12060 cuMemBatchDecompressAsync, 12060 cuMemBatchDecompressAsync_ptsz => (
        parameters: Handle, count: usize, flags: c_uint, failed: Handle, stream: Handle
    );
    "cuMemcpy" 4000 cuMemcpy, 7000 cuMemcpy_ptds => (to: u64, from: u64, bytes: usize);
    "cuMemcpy2D" 3020 cuMemcpy2D_v2, 7000 cuMemcpy2D_v2_ptds => (copy: Handle);
    "cuMemcpy2DAsync" 3020 cuMemcpy2DAsync_v2, 7000 cuMemcpy2DAsync_v2_ptsz => (copy: Handle, stream: Handle);
    "cuMemcpy2DUnaligned" 3020 cuMemcpy2DUnaligned_v2, 7000 cuMemcpy2DUnaligned_v2_ptds => (copy: Handle);
    "cuMemcpy3D" 3020 cuMemcpy3D_v2, 7000 cuMemcpy3D_v2_ptds => (copy: Handle);
    "cuMemcpy3DAsync" 3020 cuMemcpy3DAsync_v2, 7000 cuMemcpy3DAsync_v2_ptsz => (copy: Handle, stream: Handle);
    "cuMemcpy3DBatchAsync" 12080 cuMemcpy3DBatchAsync, 12080 cuMemcpy3DBatchAsync_ptsz => (
        count: usize, copies: Handle, failed: Handle, flags: u64, stream: Handle
    );
    "cuMemcpy3DBatchAsync" 13000 cuMemcpy3DBatchAsync_v2, 13000 cuMemcpy3DBatchAsync_v2_ptsz => (
        count: usize, copies: Handle, flags: u64, stream: Handle
    );
    "cuMemcpy3DPeer" 4000 cuMemcpy3DPeer, 7000 cuMemcpy3DPeer_ptds => (copy: Handle);
    "cuMemcpy3DPeerAsync" 4000 cuMemcpy3DPeerAsync, 7000 cuMemcpy3DPeerAsync_ptsz => (copy: Handle, stream: Handle);
    "cuMemcpyAsync" 4000 cuMemcpyAsync, 7000 cuMemcpyAsync_ptsz => (to: u64, from: u64, bytes: usize, stream: Handle);
    "cuMemcpyAtoA" 3020 cuMemcpyAtoA_v2, 7000 cuMemcpyAtoA_v2_ptds => (
        to: Handle, to_offset: usize, from: Handle, from_offset: usize, bytes: usize
    );
    "cuMemcpyAtoD" 3020 cuMemcpyAtoD_v2, 7000 cuMemcpyAtoD_v2_ptds => (
        to: u64, from: Handle, from_offset: usize, bytes: usize
    );
    "cuMemcpyAtoH" 3020 cuMemcpyAtoH_v2, 7000 cuMemcpyAtoH_v2_ptds => (
        to: Handle, from: Handle, from_offset: usize, bytes: usize
    );
    "cuMemcpyAtoHAsync" 3020 cuMemcpyAtoHAsync_v2, 7000 cuMemcpyAtoHAsync_v2_ptsz => (
        to: Handle, from: Handle, from_offset: usize, bytes: usize, stream: Handle
    );
    "cuMemcpyBatchAsync" 12080 cuMemcpyBatchAsync, 12080 cuMemcpyBatchAsync_ptsz => (
        to: Handle, from: Handle, sizes: Handle, count: usize, attributes: Handle, attribute_of: Handle,
        attribute_count: usize, failed: Handle, stream: Handle
    );
    "cuMemcpyBatchAsync" 13000 cuMemcpyBatchAsync_v2, 13000 cuMemcpyBatchAsync_v2_ptsz => (
        to: Handle, from: Handle, sizes: Handle, count: usize, attributes: Handle, attribute_of: Handle,
        attribute_count: usize, stream: Handle
    );
    "cuMemcpyDtoA" 3020 cuMemcpyDtoA_v2, 7000 cuMemcpyDtoA_v2_ptds => (
        to: Handle, to_offset: usize, from: u64, bytes: usize
    );
    "cuMemcpyDtoD" 3020 cuMemcpyDtoD_v2, 7000 cuMemcpyDtoD_v2_ptds => (to: u64, from: u64, bytes: usize);
    "cuMemcpyDtoDAsync" 3020 cuMemcpyDtoDAsync_v2, 7000 cuMemcpyDtoDAsync_v2_ptsz => (
        to: u64, from: u64, bytes: usize, stream: Handle
    );
    "cuMemcpyDtoH" 3020 cuMemcpyDtoH_v2, 7000 cuMemcpyDtoH_v2_ptds => (to: Handle, from: u64, bytes: usize);
    "cuMemcpyDtoHAsync" 3020 cuMemcpyDtoHAsync_v2, 7000 cuMemcpyDtoHAsync_v2_ptsz => (
        to: Handle, from: u64, bytes: usize, stream: Handle
    );
    "cuMemcpyHtoA" 3020 cuMemcpyHtoA_v2, 7000 cuMemcpyHtoA_v2_ptds => (
        to: Handle, to_offset: usize, from: Handle, bytes: usize
    );
    "cuMemcpyHtoAAsync" 3020 cuMemcpyHtoAAsync_v2, 7000 cuMemcpyHtoAAsync_v2_ptsz => (
        to: Handle, to_offset: usize, from: Handle, bytes: usize, stream: Handle
    );
    "cuMemcpyHtoD" 3020 cuMemcpyHtoD_v2, 7000 cuMemcpyHtoD_v2_ptds => (to: u64, from: Handle, bytes: usize);
    "cuMemcpyHtoDAsync" 3020 cuMemcpyHtoDAsync_v2, 7000 cuMemcpyHtoDAsync_v2_ptsz => (
        to: u64, from: Handle, bytes: usize, stream: Handle
    );
    "cuMemcpyPeer" 4000 cuMemcpyPeer, 7000 cuMemcpyPeer_ptds => (
        to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize
    );
    "cuMemcpyPeerAsync" 4000 cuMemcpyPeerAsync, 7000 cuMemcpyPeerAsync_ptsz => (
        to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize, stream: Handle
    );
}
