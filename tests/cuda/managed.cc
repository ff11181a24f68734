// Entry points for managed memory. Host and devices see the same bytes at the same address here anyway, so nothing moves.
#include "allocations.h"
#include "call.h"
#include "contexts.h"
#include "devices.h"
#include "queues.h"

using namespace test_double;

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags) {
    ENTER(A_CONTEXT);
    bool may = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
    if (address == nullptr || bytes == 0 || !may) return CUDA_ERROR_INVALID_VALUE;
    CUcontext context = current_context();
    Allocation *allocation = allocate(Kind::MANAGED, context->device, NO_DEVICE, context, bytes);
    if (allocation == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = allocation->start;
    return CUDA_SUCCESS;
}

static bool is_managed(CUdeviceptr address, size_t bytes) {
    Locked locked;
    Allocation *found = find_allocation(address);
    return found != nullptr && found->is_managed() && is_allocated(address, bytes, 0);
}

static CUresult check_place(CUmemLocation location) {
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) return is_device(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    bool is_host = location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
                   location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    return is_host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags, CUstream given) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (flags != 0 || bytes == 0 || !is_managed(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return check_place(location);
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location) {
    ENTER(INITIALISED);
    bool is_advice = advice >= CU_MEM_ADVISE_SET_READ_MOSTLY && advice <= CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    if (!is_advice || bytes == 0 || !is_managed(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    bool has_place = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                     advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    return has_place ? check_place(location) : CUDA_SUCCESS;
}

CUresult cuStreamAttachMemAsync(CUstream given, CUdeviceptr address, size_t bytes, unsigned flags) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    bool may = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE;
    if (!may || !is_managed(address, bytes == 0 ? 1 : bytes)) return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
