// cuGetProcAddress: the entry points by name without suffix and by the version of CUDA that the program was made for, which
// says which of several it means. Each entry's type is checked against that version's.
#include <cudaTypedefs.h>

#include <string.h>

#include "call.h"

namespace {

struct Entry {
    const char *name;
    int version; // that it came with
    bool is_per_thread;
    void *function;
};

#define ENTRY(name, version, symbol) {#name, version, false, reinterpret_cast<void *>(static_cast<PFN_##name##_v##version>(symbol))}
#define PER_THREAD_ENTRY(name, version, symbol, suffix)                                                                         \
    {#name, version, true, reinterpret_cast<void *>(static_cast<PFN_##name##_v##version##suffix>(symbol))}

const Entry ENTRIES[] = {
    ENTRY(cuArray3DCreate, 3020, cuArray3DCreate_v2),
    ENTRY(cuArray3DGetDescriptor, 3020, cuArray3DGetDescriptor_v2),
    ENTRY(cuArrayCreate, 3020, cuArrayCreate_v2),
    ENTRY(cuArrayDestroy, 2000, cuArrayDestroy),
    ENTRY(cuArrayGetDescriptor, 3020, cuArrayGetDescriptor_v2),
    ENTRY(cuCheckpointProcessCheckpoint, 12080, cuCheckpointProcessCheckpoint),
    ENTRY(cuCheckpointProcessGetRestoreThreadId, 12080, cuCheckpointProcessGetRestoreThreadId),
    ENTRY(cuCheckpointProcessGetState, 12080, cuCheckpointProcessGetState),
    ENTRY(cuCheckpointProcessLock, 12080, cuCheckpointProcessLock),
    ENTRY(cuCheckpointProcessRestore, 12080, cuCheckpointProcessRestore),
    ENTRY(cuCheckpointProcessUnlock, 12080, cuCheckpointProcessUnlock),
    ENTRY(cuCtxCreate, 3020, cuCtxCreate_v2),
    ENTRY(cuCtxCreate, 12050, cuCtxCreate_v4),
    ENTRY(cuCtxDestroy, 4000, cuCtxDestroy_v2),
    ENTRY(cuCtxDisablePeerAccess, 4000, cuCtxDisablePeerAccess),
    ENTRY(cuCtxEnablePeerAccess, 4000, cuCtxEnablePeerAccess),
    ENTRY(cuCtxGetApiVersion, 3020, cuCtxGetApiVersion),
    ENTRY(cuCtxGetCurrent, 4000, cuCtxGetCurrent),
    ENTRY(cuCtxGetDevice, 2000, cuCtxGetDevice),
    ENTRY(cuCtxGetDevice, 13000, cuCtxGetDevice_v2),
    ENTRY(cuCtxGetFlags, 7000, cuCtxGetFlags),
    ENTRY(cuCtxGetId, 12000, cuCtxGetId),
    ENTRY(cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange),
    ENTRY(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2),
    ENTRY(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2),
    ENTRY(cuCtxSetCurrent, 4000, cuCtxSetCurrent),
    ENTRY(cuCtxSynchronize, 2000, cuCtxSynchronize),
    ENTRY(cuCtxSynchronize, 13000, cuCtxSynchronize_v2),
    ENTRY(cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer),
    ENTRY(cuDeviceGet, 2000, cuDeviceGet),
    ENTRY(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute),
    ENTRY(cuDeviceGetCount, 2000, cuDeviceGetCount),
    ENTRY(cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool),
    ENTRY(cuDeviceGetMemPool, 11020, cuDeviceGetMemPool),
    ENTRY(cuDeviceGetName, 2000, cuDeviceGetName),
    ENTRY(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId),
    ENTRY(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2),
    ENTRY(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState),
    ENTRY(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2),
    ENTRY(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2),
    ENTRY(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain),
    ENTRY(cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2),
    ENTRY(cuDeviceSetMemPool, 11020, cuDeviceSetMemPool),
    ENTRY(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2),
    ENTRY(cuDriverGetVersion, 2020, cuDriverGetVersion),
    ENTRY(cuEventCreate, 2000, cuEventCreate),
    ENTRY(cuEventDestroy, 4000, cuEventDestroy_v2),
    ENTRY(cuEventElapsedTime, 2000, cuEventElapsedTime),
    ENTRY(cuEventElapsedTime, 12080, cuEventElapsedTime_v2),
    ENTRY(cuEventQuery, 2000, cuEventQuery),
    ENTRY(cuEventRecord, 2000, cuEventRecord),
    ENTRY(cuEventRecordWithFlags, 11010, cuEventRecordWithFlags),
    ENTRY(cuEventSynchronize, 2000, cuEventSynchronize),
    ENTRY(cuFuncGetAttribute, 2020, cuFuncGetAttribute),
    ENTRY(cuFuncGetModule, 11000, cuFuncGetModule),
    ENTRY(cuFuncSetAttribute, 9000, cuFuncSetAttribute),
    ENTRY(cuGetErrorName, 6000, cuGetErrorName),
    ENTRY(cuGetErrorString, 6000, cuGetErrorString),
    ENTRY(cuGraphAddEmptyNode, 10000, cuGraphAddEmptyNode),
    ENTRY(cuGraphAddKernelNode, 12000, cuGraphAddKernelNode_v2),
    ENTRY(cuGraphAddMemAllocNode, 11040, cuGraphAddMemAllocNode),
    ENTRY(cuGraphAddMemFreeNode, 11040, cuGraphAddMemFreeNode),
    ENTRY(cuGraphAddNode, 12020, cuGraphAddNode),
    ENTRY(cuGraphAddNode, 12030, cuGraphAddNode_v2),
    ENTRY(cuDeviceGraphMemTrim, 11040, cuDeviceGraphMemTrim),
    ENTRY(cuGraphAddMemcpyNode, 10000, cuGraphAddMemcpyNode),
    ENTRY(cuGraphAddMemsetNode, 10000, cuGraphAddMemsetNode),
    ENTRY(cuGraphCreate, 10000, cuGraphCreate),
    ENTRY(cuGraphDestroy, 10000, cuGraphDestroy),
    ENTRY(cuGraphExecDestroy, 10000, cuGraphExecDestroy),
    ENTRY(cuGraphGetNodes, 10000, cuGraphGetNodes),
    ENTRY(cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags),
    ENTRY(cuGraphLaunch, 10000, cuGraphLaunch),
    ENTRY(cuGraphNodeGetType, 10000, cuGraphNodeGetType),
    ENTRY(cuGraphUpload, 11010, cuGraphUpload),
    ENTRY(cuInit, 2000, cuInit),
    ENTRY(cuIpcCloseMemHandle, 4010, cuIpcCloseMemHandle),
    ENTRY(cuIpcGetEventHandle, 4010, cuIpcGetEventHandle),
    ENTRY(cuIpcGetMemHandle, 4010, cuIpcGetMemHandle),
    ENTRY(cuIpcOpenMemHandle, 11000, cuIpcOpenMemHandle_v2),
    ENTRY(cuKernelGetFunction, 12000, cuKernelGetFunction),
    ENTRY(cuLaunchHostFunc, 10000, cuLaunchHostFunc),
    ENTRY(cuLaunchKernel, 4000, cuLaunchKernel),
    ENTRY(cuLaunchKernelEx, 11060, cuLaunchKernelEx),
    ENTRY(cuLibraryGetGlobal, 12000, cuLibraryGetGlobal),
    ENTRY(cuLibraryGetKernel, 12000, cuLibraryGetKernel),
    ENTRY(cuLibraryGetManaged, 12000, cuLibraryGetManaged),
    ENTRY(cuLibraryGetModule, 12000, cuLibraryGetModule),
    ENTRY(cuLibraryLoadData, 12000, cuLibraryLoadData),
    ENTRY(cuLibraryLoadFromFile, 12000, cuLibraryLoadFromFile),
    ENTRY(cuLibraryUnload, 12000, cuLibraryUnload),
    ENTRY(cuMemAddressFree, 10020, cuMemAddressFree),
    ENTRY(cuMemAddressReserve, 10020, cuMemAddressReserve),
    ENTRY(cuMemAdvise, 8000, cuMemAdvise),
    ENTRY(cuMemAdvise, 12020, cuMemAdvise_v2),
    ENTRY(cuMemAllocAsync, 11020, cuMemAllocAsync),
    ENTRY(cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync),
    ENTRY(cuMemAllocHost, 3020, cuMemAllocHost_v2),
    ENTRY(cuMemAllocManaged, 6000, cuMemAllocManaged),
    ENTRY(cuMemAllocPitch, 3020, cuMemAllocPitch_v2),
    ENTRY(cuMemAlloc, 3020, cuMemAlloc_v2),
    ENTRY(cuMemCreate, 10020, cuMemCreate),
    ENTRY(cuMemDiscardBatchAsync, 13000, cuMemDiscardBatchAsync),
    ENTRY(cuMemExportToShareableHandle, 10020, cuMemExportToShareableHandle),
    ENTRY(cuMemFreeAsync, 11020, cuMemFreeAsync),
    ENTRY(cuMemFreeHost, 2000, cuMemFreeHost),
    ENTRY(cuMemFree, 3020, cuMemFree_v2),
    ENTRY(cuMemGetAccess, 10020, cuMemGetAccess),
    ENTRY(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2),
    ENTRY(cuMemGetAllocationGranularity, 10020, cuMemGetAllocationGranularity),
    ENTRY(cuMemGetAllocationPropertiesFromHandle, 10020, cuMemGetAllocationPropertiesFromHandle),
    ENTRY(cuMemGetDefaultMemPool, 13000, cuMemGetDefaultMemPool),
    ENTRY(cuMemGetHandleForAddressRange, 11070, cuMemGetHandleForAddressRange),
    ENTRY(cuMemGetInfo, 3020, cuMemGetInfo_v2),
    ENTRY(cuMemGetMemPool, 13000, cuMemGetMemPool),
    ENTRY(cuMemHostAlloc, 2020, cuMemHostAlloc),
    ENTRY(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer_v2),
    ENTRY(cuMemHostGetFlags, 2030, cuMemHostGetFlags),
    ENTRY(cuMemHostRegister, 6050, cuMemHostRegister_v2),
    ENTRY(cuMemHostUnregister, 4000, cuMemHostUnregister),
    ENTRY(cuMemImportFromShareableHandle, 10020, cuMemImportFromShareableHandle),
    ENTRY(cuMemMap, 10020, cuMemMap),
    ENTRY(cuMemPoolCreate, 11020, cuMemPoolCreate),
    ENTRY(cuMemPoolDestroy, 11020, cuMemPoolDestroy),
    ENTRY(cuMemPoolExportPointer, 11020, cuMemPoolExportPointer),
    ENTRY(cuMemPoolExportToShareableHandle, 11020, cuMemPoolExportToShareableHandle),
    ENTRY(cuMemPoolGetAccess, 11020, cuMemPoolGetAccess),
    ENTRY(cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute),
    ENTRY(cuMemPoolImportFromShareableHandle, 11020, cuMemPoolImportFromShareableHandle),
    ENTRY(cuMemPoolImportPointer, 11020, cuMemPoolImportPointer),
    ENTRY(cuMemPoolSetAccess, 11020, cuMemPoolSetAccess),
    ENTRY(cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute),
    ENTRY(cuMemPoolTrimTo, 11020, cuMemPoolTrimTo),
    ENTRY(cuMemPrefetchAsync, 12020, cuMemPrefetchAsync_v2),
    ENTRY(cuMemPrefetchBatchAsync, 13000, cuMemPrefetchBatchAsync),
    ENTRY(cuMemRangeGetAttribute, 8000, cuMemRangeGetAttribute),
    ENTRY(cuMemRangeGetAttributes, 8000, cuMemRangeGetAttributes),
    ENTRY(cuMemRelease, 10020, cuMemRelease),
    ENTRY(cuMemRetainAllocationHandle, 11000, cuMemRetainAllocationHandle),
    ENTRY(cuMemSetAccess, 10020, cuMemSetAccess),
    ENTRY(cuMemSetMemPool, 13000, cuMemSetMemPool),
    ENTRY(cuMemUnmap, 10020, cuMemUnmap),
    ENTRY(cuMemcpy, 4000, cuMemcpy),
    ENTRY(cuMemcpy2DAsync, 3020, cuMemcpy2DAsync_v2),
    ENTRY(cuMemcpy2DUnaligned, 3020, cuMemcpy2DUnaligned_v2),
    ENTRY(cuMemcpy2D, 3020, cuMemcpy2D_v2),
    ENTRY(cuMemcpy3DAsync, 3020, cuMemcpy3DAsync_v2),
    ENTRY(cuMemcpy3D, 3020, cuMemcpy3D_v2),
    ENTRY(cuMemcpyAsync, 4000, cuMemcpyAsync),
    ENTRY(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2),
    ENTRY(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2),
    ENTRY(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2),
    ENTRY(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2),
    ENTRY(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2),
    ENTRY(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2),
    ENTRY(cuMemcpyPeer, 4000, cuMemcpyPeer),
    ENTRY(cuMemcpyPeerAsync, 4000, cuMemcpyPeerAsync),
    ENTRY(cuMemsetD16Async, 3020, cuMemsetD16Async),
    ENTRY(cuMemsetD16, 3020, cuMemsetD16_v2),
    ENTRY(cuMemsetD2D8Async, 3020, cuMemsetD2D8Async),
    ENTRY(cuMemsetD2D8, 3020, cuMemsetD2D8_v2),
    ENTRY(cuMemsetD32Async, 3020, cuMemsetD32Async),
    ENTRY(cuMemsetD32, 3020, cuMemsetD32_v2),
    ENTRY(cuMemsetD8Async, 3020, cuMemsetD8Async),
    ENTRY(cuMemsetD8, 3020, cuMemsetD8_v2),
    ENTRY(cuMipmappedArrayCreate, 5000, cuMipmappedArrayCreate),
    ENTRY(cuMipmappedArrayDestroy, 5000, cuMipmappedArrayDestroy),
    ENTRY(cuMipmappedArrayGetLevel, 5000, cuMipmappedArrayGetLevel),
    ENTRY(cuModuleGetFunction, 2000, cuModuleGetFunction),
    ENTRY(cuModuleGetGlobal, 3020, cuModuleGetGlobal_v2),
    ENTRY(cuModuleGetLoadingMode, 11070, cuModuleGetLoadingMode),
    ENTRY(cuModuleLoad, 2000, cuModuleLoad),
    ENTRY(cuModuleLoadData, 2000, cuModuleLoadData),
    ENTRY(cuModuleLoadDataEx, 2010, cuModuleLoadDataEx),
    ENTRY(cuModuleLoadFatBinary, 2000, cuModuleLoadFatBinary),
    ENTRY(cuModuleUnload, 2000, cuModuleUnload),
    ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, cuOccupancyMaxActiveBlocksPerMultiprocessor),
    ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags),
    ENTRY(cuOccupancyMaxPotentialBlockSize, 6050, cuOccupancyMaxPotentialBlockSize),
    ENTRY(cuPointerGetAttribute, 4000, cuPointerGetAttribute),
    ENTRY(cuPointerGetAttributes, 7000, cuPointerGetAttributes),
    ENTRY(cuPointerSetAttribute, 6000, cuPointerSetAttribute),
    ENTRY(cuStreamAddCallback, 5000, cuStreamAddCallback),
    ENTRY(cuStreamAttachMemAsync, 6000, cuStreamAttachMemAsync),
    ENTRY(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2),
    ENTRY(cuStreamCreate, 2000, cuStreamCreate),
    ENTRY(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority),
    ENTRY(cuStreamDestroy, 4000, cuStreamDestroy_v2),
    ENTRY(cuStreamEndCapture, 10000, cuStreamEndCapture),
    ENTRY(cuStreamGetCtx, 9020, cuStreamGetCtx),
    ENTRY(cuStreamGetCtx, 12050, cuStreamGetCtx_v2),
    ENTRY(cuStreamGetDevice, 12080, cuStreamGetDevice),
    ENTRY(cuStreamGetFlags, 5050, cuStreamGetFlags),
    ENTRY(cuStreamGetId, 12000, cuStreamGetId),
    ENTRY(cuStreamGetPriority, 5050, cuStreamGetPriority),
    ENTRY(cuStreamIsCapturing, 10000, cuStreamIsCapturing),
    ENTRY(cuStreamQuery, 2000, cuStreamQuery),
    ENTRY(cuStreamSynchronize, 2000, cuStreamSynchronize),
    ENTRY(cuStreamWaitEvent, 3020, cuStreamWaitEvent),
    ENTRY(cuGetProcAddress, 11030, cuGetProcAddress),
    ENTRY(cuGetProcAddress, 12000, cuGetProcAddress_v2),
    ENTRY(cuGetExportTable, 3000, cuGetExportTable),
    PER_THREAD_ENTRY(cuEventRecord, 7000, cuEventRecord_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuEventRecordWithFlags, 11010, cuEventRecordWithFlags_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuGraphLaunch, 10000, cuGraphLaunch_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuGraphUpload, 11010, cuGraphUpload_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuLaunchHostFunc, 10000, cuLaunchHostFunc_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuLaunchKernel, 7000, cuLaunchKernel_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuLaunchKernelEx, 11060, cuLaunchKernelEx_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuMemAllocAsync, 11020, cuMemAllocAsync_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuMemDiscardBatchAsync, 13000, cuMemDiscardBatchAsync_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuMemFreeAsync, 11020, cuMemFreeAsync_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuMemPrefetchAsync, 12020, cuMemPrefetchAsync_v2_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuMemPrefetchBatchAsync, 13000, cuMemPrefetchBatchAsync_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuMemcpy, 7000, cuMemcpy_ptds, _ptds),
    PER_THREAD_ENTRY(cuMemcpy2DAsync, 7000, cuMemcpy2DAsync_v2_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuMemcpy2DUnaligned, 7000, cuMemcpy2DUnaligned_v2_ptds, _ptds),
    PER_THREAD_ENTRY(cuMemcpy2D, 7000, cuMemcpy2D_v2_ptds, _ptds),
    PER_THREAD_ENTRY(cuMemcpy3DAsync, 7000, cuMemcpy3DAsync_v2_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuMemcpy3D, 7000, cuMemcpy3D_v2_ptds, _ptds),
    PER_THREAD_ENTRY(cuMemcpyAsync, 7000, cuMemcpyAsync_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuMemcpyDtoDAsync, 7000, cuMemcpyDtoDAsync_v2_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuMemcpyDtoD, 7000, cuMemcpyDtoD_v2_ptds, _ptds),
    PER_THREAD_ENTRY(cuMemcpyDtoHAsync, 7000, cuMemcpyDtoHAsync_v2_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuMemcpyDtoH, 7000, cuMemcpyDtoH_v2_ptds, _ptds),
    PER_THREAD_ENTRY(cuMemcpyHtoDAsync, 7000, cuMemcpyHtoDAsync_v2_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuMemcpyHtoD, 7000, cuMemcpyHtoD_v2_ptds, _ptds),
    PER_THREAD_ENTRY(cuMemcpyPeer, 7000, cuMemcpyPeer_ptds, _ptds),
    PER_THREAD_ENTRY(cuMemcpyPeerAsync, 7000, cuMemcpyPeerAsync_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuMemsetD16Async, 7000, cuMemsetD16Async_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuMemsetD16, 7000, cuMemsetD16_v2_ptds, _ptds),
    PER_THREAD_ENTRY(cuMemsetD2D8Async, 7000, cuMemsetD2D8Async_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuMemsetD2D8, 7000, cuMemsetD2D8_v2_ptds, _ptds),
    PER_THREAD_ENTRY(cuMemsetD32Async, 7000, cuMemsetD32Async_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuMemsetD32, 7000, cuMemsetD32_v2_ptds, _ptds),
    PER_THREAD_ENTRY(cuMemsetD8Async, 7000, cuMemsetD8Async_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuMemsetD8, 7000, cuMemsetD8_v2_ptds, _ptds),
    PER_THREAD_ENTRY(cuStreamAddCallback, 7000, cuStreamAddCallback_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuStreamAttachMemAsync, 7000, cuStreamAttachMemAsync_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuStreamEndCapture, 10000, cuStreamEndCapture_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuStreamGetCtx, 9020, cuStreamGetCtx_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuStreamGetCtx, 12050, cuStreamGetCtx_v2_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuStreamGetDevice, 12080, cuStreamGetDevice_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuStreamGetFlags, 7000, cuStreamGetFlags_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuStreamGetId, 12000, cuStreamGetId_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuStreamGetPriority, 7000, cuStreamGetPriority_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuStreamIsCapturing, 10000, cuStreamIsCapturing_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuStreamQuery, 7000, cuStreamQuery_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuStreamSynchronize, 7000, cuStreamSynchronize_ptsz, _ptsz),
    PER_THREAD_ENTRY(cuStreamWaitEvent, 7000, cuStreamWaitEvent_ptsz, _ptsz),
};

// The newest of this name that such a program knows. Where there is none at all with a default stream for each thread, the other one.
const Entry *find(const char *name, int version, bool per_thread, bool &is_known) {
    const Entry *best[2] = {};
    bool is_for_threads = false;
    is_known = false;
    for (const Entry &entry : ENTRIES) {
        if (strcmp(entry.name, name) != 0) continue;
        is_known = true;
        is_for_threads |= entry.is_per_thread;
        const Entry *&found = best[entry.is_per_thread];
        if (entry.version <= version && (found == nullptr || entry.version > found->version)) found = &entry;
    }
    return best[per_thread && is_for_threads];
}

CUresult look_up(const char *name, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status) {
    constexpr cuuint64_t KNOWN = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (name == nullptr || function == nullptr || (flags & ~KNOWN) != 0 || flags == KNOWN) return CUDA_ERROR_INVALID_VALUE;
    if (version > CUDA_VERSION) return CUDA_ERROR_INVALID_VALUE;
    bool is_known;
    const Entry *found = find(name, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, is_known);
    *function = found == nullptr ? nullptr : found->function;
    if (status != nullptr)
        *status = found != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
                  : is_known       ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                   : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

} // namespace

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    ENTER(NOTHING);
    return look_up(name, function, version, flags, status);
}

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags) {
    ENTER(NOTHING);
    CUresult result = look_up(name, function, version, flags, nullptr);
    return result == CUDA_SUCCESS && *function == nullptr ? CUDA_ERROR_NOT_FOUND : result;
}

// The tables by which CUDA's own libraries reach the inside of the driver are not in the double.
CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    ENTER(NOTHING);
    if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *table = nullptr;
    return CUDA_ERROR_NOT_FOUND;
}
