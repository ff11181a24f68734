// Entry points for plain device memory.
#include "allocations.h"
#include "call.h"
#include "contexts.h"
#include "devices.h"
#include "queues.h"

using namespace test_double;

static CUresult allocate_native(CUdeviceptr *address, size_t bytes) {
    CUcontext context = current_context();
    Allocation *allocation = allocate(Kind::NATIVE, context->device, context->device, context, bytes);
    if (allocation == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = allocation->start;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    ENTER(A_CONTEXT);
    if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    return allocate_native(address, bytes);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element_bytes) {
    ENTER(A_CONTEXT);
    bool is_element = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
    if (address == nullptr || pitch == nullptr || width == 0 || height == 0 || !is_element) return CUDA_ERROR_INVALID_VALUE;
    *pitch = round_up(width, 512);
    return allocate_native(address, *pitch * height);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    ENTER(A_CONTEXT);
    if (address == 0) return CUDA_SUCCESS;
    CUcontext context;
    {
        Locked locked;
        Allocation *found = allocation_at(address);
        if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
        bool is_plain = found->kind == Kind::NATIVE || found->kind == Kind::MANAGED;
        if (!is_plain && found->kind != Kind::POOL && found->kind != Kind::GRAPH) return CUDA_ERROR_INVALID_VALUE;
        context = found->context != nullptr ? found->context : current_context();
    }
    for (auto &queue : queues_of(context)) queue->wait(); // what still runs may use it
    Locked locked;
    if (allocation_at(address) == nullptr) return CUDA_ERROR_INVALID_VALUE; // two threads have freed it
    end_allocation(address);
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    ENTER(A_CONTEXT);
    Locked locked;
    const Device &device = devices()[size_t(current_context()->device)];
    if (free != nullptr) *free = all_is_taken() ? 0 : device.left();
    if (total != nullptr) *total = device.total;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr address) {
    ENTER(A_CONTEXT);
    Locked locked;
    Allocation *found = find_allocation(address);
    if (found == nullptr || found->is_host()) return CUDA_ERROR_NOT_FOUND;
    if (start != nullptr) *start = found->start;
    if (bytes != nullptr) *bytes = found->bytes;
    return CUDA_SUCCESS;
}
