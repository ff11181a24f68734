//! Fills, and single words that a stream writes or waits for.

use core::ffi::c_uint;

use super::driver::{Handle, passes_gate};

passes_gate! {
    "cuMemsetD16" 3020 cuMemsetD16_v2, 7000 cuMemsetD16_v2_ptds => (to: u64, value: u16, count: usize);
    "cuMemsetD16Async" 3020 cuMemsetD16Async, 7000 cuMemsetD16Async_ptsz => (
        to: u64, value: u16, count: usize, stream: Handle
    );
    "cuMemsetD2D16" 3020 cuMemsetD2D16_v2, 7000 cuMemsetD2D16_v2_ptds => (
        to: u64, pitch: usize, value: u16, width: usize, height: usize
    );
    "cuMemsetD2D16Async" 3020 cuMemsetD2D16Async, 7000 cuMemsetD2D16Async_ptsz => (
        to: u64, pitch: usize, value: u16, width: usize, height: usize, stream: Handle
    );
    "cuMemsetD2D32" 3020 cuMemsetD2D32_v2, 7000 cuMemsetD2D32_v2_ptds => (
        to: u64, pitch: usize, value: c_uint, width: usize, height: usize
    );
    "cuMemsetD2D32Async" 3020 cuMemsetD2D32Async, 7000 cuMemsetD2D32Async_ptsz => (
        to: u64, pitch: usize, value: c_uint, width: usize, height: usize, stream: Handle
    );
    "cuMemsetD2D8" 3020 cuMemsetD2D8_v2, 7000 cuMemsetD2D8_v2_ptds => (
        to: u64, pitch: usize, value: u8, width: usize, height: usize
    );
    "cuMemsetD2D8Async" 3020 cuMemsetD2D8Async, 7000 cuMemsetD2D8Async_ptsz => (
        to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Handle
    );
    "cuMemsetD32" 3020 cuMemsetD32_v2, 7000 cuMemsetD32_v2_ptds => (to: u64, value: c_uint, count: usize);
    "cuMemsetD32Async" 3020 cuMemsetD32Async, 7000 cuMemsetD32Async_ptsz => (
        to: u64, value: c_uint, count: usize, stream: Handle
    );
    "cuMemsetD8" 3020 cuMemsetD8_v2, 7000 cuMemsetD8_v2_ptds => (to: u64, value: u8, count: usize);
    "cuMemsetD8Async" 3020 cuMemsetD8Async, 7000 cuMemsetD8Async_ptsz => (
        to: u64, value: u8, count: usize, stream: Handle
    );
    "cuStreamBatchMemOp" 8000 cuStreamBatchMemOp, 8000 cuStreamBatchMemOp_ptsz => (
        stream: Handle, count: c_uint, parameters: Handle, flags: c_uint
    );
    "cuStreamBatchMemOp" 11070 cuStreamBatchMemOp_v2, 11070 cuStreamBatchMemOp_v2_ptsz => (
        stream: Handle, count: c_uint, parameters: Handle, flags: c_uint
    );
    "cuStreamWaitValue32" 8000 cuStreamWaitValue32, 8000 cuStreamWaitValue32_ptsz => (
        stream: Handle, address: u64, value: u32, flags: c_uint
    );
    "cuStreamWaitValue32" 11070 cuStreamWaitValue32_v2, 11070 cuStreamWaitValue32_v2_ptsz => (
        stream: Handle, address: u64, value: u32, flags: c_uint
    );
    "cuStreamWaitValue64" 9000 cuStreamWaitValue64, 9000 cuStreamWaitValue64_ptsz => (
        stream: Handle, address: u64, value: u64, flags: c_uint
    );
    "cuStreamWaitValue64" 11070 cuStreamWaitValue64_v2, 11070 cuStreamWaitValue64_v2_ptsz => (
        stream: Handle, address: u64, value: u64, flags: c_uint
    );
    "cuStreamWriteValue32" 8000 cuStreamWriteValue32, 8000 cuStreamWriteValue32_ptsz => (
        stream: Handle, address: u64, value: u32, flags: c_uint
    );
    "cuStreamWriteValue32" 11070 cuStreamWriteValue32_v2, 11070 cuStreamWriteValue32_v2_ptsz => (
        stream: Handle, address: u64, value: u32, flags: c_uint
    );
    "cuStreamWriteValue64" 9000 cuStreamWriteValue64, 9000 cuStreamWriteValue64_ptsz => (
        stream: Handle, address: u64, value: u64, flags: c_uint
    );
    "cuStreamWriteValue64" 11070 cuStreamWriteValue64_v2, 11070 cuStreamWriteValue64_v2_ptsz => (
        stream: Handle, address: u64, value: u64, flags: c_uint
    );
}
