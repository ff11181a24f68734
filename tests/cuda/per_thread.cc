// Entry points for programs that were compiled for a default stream of each thread's own: as those without the suffix, but no
// stream means that one. They are counted, and wait for the lock of a checkpoint, under the names without.
#include "queues.h"

using test_double::PerThreadDefault;

CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream) {
    PerThreadDefault scope;
    return cuEventRecord(hEvent, hStream);
}
CUresult cuEventRecordWithFlags_ptsz(CUevent hEvent, CUstream hStream, unsigned flags) {
    PerThreadDefault scope;
    return cuEventRecordWithFlags(hEvent, hStream, flags);
}
CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
    PerThreadDefault scope;
    return cuGraphLaunch(hGraphExec, hStream);
}
CUresult cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
    PerThreadDefault scope;
    return cuGraphUpload(hGraphExec, hStream);
}
CUresult cuLaunchHostFunc_ptsz(CUstream hStream, CUhostFn fn, void *userData) {
    PerThreadDefault scope;
    return cuLaunchHostFunc(hStream, fn, userData);
}
CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned gridDimX, unsigned gridDimY, unsigned gridDimZ, unsigned int
                             blockDimX, unsigned blockDimY, unsigned blockDimZ, unsigned sharedMemBytes, CUstream
                             hStream, void **kernelParams, void **extra) {
    PerThreadDefault scope;
    return cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,
                          kernelParams, extra);
}
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
    PerThreadDefault scope;
    return cuLaunchKernelEx(config, f, kernelParams, extra);
}
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
    PerThreadDefault scope;
    return cuMemAllocAsync(dptr, bytesize, hStream);
}
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
    PerThreadDefault scope;
    return cuMemAllocFromPoolAsync(dptr, bytesize, pool, hStream);
}
CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
    PerThreadDefault scope;
    return cuMemFreeAsync(dptr, hStream);
}
CUresult cuMemDiscardBatchAsync_ptsz(CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags,
                                     CUstream hStream) {
    PerThreadDefault scope;
    return cuMemDiscardBatchAsync(dptrs, sizes, count, flags, hStream);
}
CUresult cuMemPrefetchBatchAsync_ptsz(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
                                      size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
                                      CUstream hStream) {
    PerThreadDefault scope;
    return cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
}
CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned flags, CUstream
                                    hStream) {
    PerThreadDefault scope;
    return cuMemPrefetchAsync_v2(devPtr, count, location, flags, hStream);
}
CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
    PerThreadDefault scope;
    return cuMemcpy(dst, src, ByteCount);
}
CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *pCopy, CUstream hStream) {
    PerThreadDefault scope;
    return cuMemcpy2DAsync_v2(pCopy, hStream);
}
CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *pCopy) {
    PerThreadDefault scope;
    return cuMemcpy2DUnaligned_v2(pCopy);
}
CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *pCopy) {
    PerThreadDefault scope;
    return cuMemcpy2D_v2(pCopy);
}
CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *pCopy, CUstream hStream) {
    PerThreadDefault scope;
    return cuMemcpy3DAsync_v2(pCopy, hStream);
}
CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *pCopy) {
    PerThreadDefault scope;
    return cuMemcpy3D_v2(pCopy);
}
CUresult cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
    PerThreadDefault scope;
    return cuMemcpyAsync(dst, src, ByteCount, hStream);
}
CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
    PerThreadDefault scope;
    return cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream);
}
CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
    PerThreadDefault scope;
    return cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount);
}
CUresult cuMemcpyDtoHAsync_v2_ptsz(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
    PerThreadDefault scope;
    return cuMemcpyDtoHAsync_v2(dstHost, srcDevice, ByteCount, hStream);
}
CUresult cuMemcpyDtoH_v2_ptds(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
    PerThreadDefault scope;
    return cuMemcpyDtoH_v2(dstHost, srcDevice, ByteCount);
}
CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream) {
    PerThreadDefault scope;
    return cuMemcpyHtoDAsync_v2(dstDevice, srcHost, ByteCount, hStream);
}
CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount) {
    PerThreadDefault scope;
    return cuMemcpyHtoD_v2(dstDevice, srcHost, ByteCount);
}
CUresult cuMemcpyPeer_ptds(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext, size_t
                           ByteCount) {
    PerThreadDefault scope;
    return cuMemcpyPeer(dstDevice, dstContext, srcDevice, srcContext, ByteCount);
}
CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext, size_t
                                ByteCount, CUstream hStream) {
    PerThreadDefault scope;
    return cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);
}
CUresult cuMemsetD16Async_ptsz(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
    PerThreadDefault scope;
    return cuMemsetD16Async(dstDevice, us, N, hStream);
}
CUresult cuMemsetD16_v2_ptds(CUdeviceptr dstDevice, unsigned short us, size_t N) {
    PerThreadDefault scope;
    return cuMemsetD16_v2(dstDevice, us, N);
}
CUresult cuMemsetD2D8Async_ptsz(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height, CUstream
                                hStream) {
    PerThreadDefault scope;
    return cuMemsetD2D8Async(dstDevice, dstPitch, uc, Width, Height, hStream);
}
CUresult cuMemsetD2D8_v2_ptds(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height) {
    PerThreadDefault scope;
    return cuMemsetD2D8_v2(dstDevice, dstPitch, uc, Width, Height);
}
CUresult cuMemsetD32Async_ptsz(CUdeviceptr dstDevice, unsigned ui, size_t N, CUstream hStream) {
    PerThreadDefault scope;
    return cuMemsetD32Async(dstDevice, ui, N, hStream);
}
CUresult cuMemsetD32_v2_ptds(CUdeviceptr dstDevice, unsigned ui, size_t N) {
    PerThreadDefault scope;
    return cuMemsetD32_v2(dstDevice, ui, N);
}
CUresult cuMemsetD8Async_ptsz(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
    PerThreadDefault scope;
    return cuMemsetD8Async(dstDevice, uc, N, hStream);
}
CUresult cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
    PerThreadDefault scope;
    return cuMemsetD8_v2(dstDevice, uc, N);
}
CUresult cuStreamAddCallback_ptsz(CUstream hStream, CUstreamCallback callback, void *userData, unsigned flags) {
    PerThreadDefault scope;
    return cuStreamAddCallback(hStream, callback, userData, flags);
}
CUresult cuStreamAttachMemAsync_ptsz(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned flags) {
    PerThreadDefault scope;
    return cuStreamAttachMemAsync(hStream, dptr, length, flags);
}
CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) {
    PerThreadDefault scope;
    return cuStreamBeginCapture_v2(hStream, mode);
}
CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph) {
    PerThreadDefault scope;
    return cuStreamEndCapture(hStream, phGraph);
}
CUresult cuStreamGetCtx_ptsz(CUstream hStream, CUcontext *pctx) {
    PerThreadDefault scope;
    return cuStreamGetCtx(hStream, pctx);
}
CUresult cuStreamGetCtx_v2_ptsz(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx) {
    PerThreadDefault scope;
    return cuStreamGetCtx_v2(hStream, pCtx, pGreenCtx);
}
CUresult cuStreamGetDevice_ptsz(CUstream hStream, CUdevice *device) {
    PerThreadDefault scope;
    return cuStreamGetDevice(hStream, device);
}
CUresult cuStreamGetFlags_ptsz(CUstream hStream, unsigned *flags) {
    PerThreadDefault scope;
    return cuStreamGetFlags(hStream, flags);
}
CUresult cuStreamGetId_ptsz(CUstream hStream, unsigned long long *streamId) {
    PerThreadDefault scope;
    return cuStreamGetId(hStream, streamId);
}
CUresult cuStreamGetPriority_ptsz(CUstream hStream, int *priority) {
    PerThreadDefault scope;
    return cuStreamGetPriority(hStream, priority);
}
CUresult cuStreamIsCapturing_ptsz(CUstream hStream, CUstreamCaptureStatus *captureStatus) {
    PerThreadDefault scope;
    return cuStreamIsCapturing(hStream, captureStatus);
}
CUresult cuStreamQuery_ptsz(CUstream hStream) {
    PerThreadDefault scope;
    return cuStreamQuery(hStream);
}
CUresult cuStreamSynchronize_ptsz(CUstream hStream) {
    PerThreadDefault scope;
    return cuStreamSynchronize(hStream);
}
CUresult cuStreamWaitEvent_ptsz(CUstream hStream, CUevent hEvent, unsigned Flags) {
    PerThreadDefault scope;
    return cuStreamWaitEvent(hStream, hEvent, Flags);
}
