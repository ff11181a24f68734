// Entry points that say what a pointer points to, anywhere in an allocation.
#include <string.h>

#include <utility>

#include "address_space.h"
#include "allocations.h"
#include "call.h"
#include "contexts.h"
#include "queues.h"

using namespace test_double;

namespace {

template <typename T> CUresult say(void *answer, T value) {
    memcpy(answer, &value, sizeof value);
    return CUDA_SUCCESS;
}

// The addresses that memory could be mapped at together with this: of virtual memory, those that were reserved.
std::pair<uint64_t, size_t> range_of(const Allocation &one) {
    if (one.kind != Kind::VIRTUAL) return {one.start, one.bytes};
    uint64_t start = reservation_around(one.start, one.bytes);
    return {start, reserved_at(start)};
}

unsigned memory_type(const Allocation &one) { return one.is_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE; }

CUresult answer(void *to, CUpointer_attribute attribute, const Allocation &one, CUdeviceptr address) {
    bool is_managed = one.is_managed(), host_sees = one.is_host() || is_managed;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return say(to, one.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: return say(to, memory_type(one));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return say(to, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        say(to, host_sees ? address : CUdeviceptr(0));
        return host_sees ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return say(to, unsigned(one.sync_memops));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return say(to, one.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return say(to, unsigned(is_managed));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return say(to, one.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return say(to, unsigned(one.kind == Kind::NATIVE));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return say(to, CUdeviceptr(range_of(one).first));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return say(to, range_of(one).second);
    case CU_POINTER_ATTRIBUTE_MAPPED: return say(to, unsigned(1));
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return say(to, one.handle_types);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return say(to, unsigned(0));
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return say(to, one.access);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return say(to, one.pool);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return say(to, one.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return say(to, CUdeviceptr(one.start));
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return say(to, one.id);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: return say(to, unsigned(0));
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

// How long the answer to a question is; 0 for those that have none here.
size_t answer_bytes(CUpointer_attribute attribute) {
    Allocation nothing{};
    unsigned char answered[16];
    memset(answered, 0xee, sizeof answered);
    answer(answered, attribute, nothing, 0);
    return answered[0] == 0xee ? 0 : answered[7] == 0xee ? 4 : 8;
}

} // namespace

CUresult cuPointerGetAttribute(void *to, CUpointer_attribute attribute, CUdeviceptr address) {
    ENTER(A_CONTEXT);
    if (to == nullptr || answer_bytes(attribute) == 0) return CUDA_ERROR_INVALID_VALUE;
    Locked locked;
    Allocation *found = find_allocation(address);
    return found == nullptr ? CUDA_ERROR_INVALID_VALUE : answer(to, attribute, *found, address);
}

// What there is no answer for is zero; for a device's number the one that there is none of, and for where it begins something else.
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **to, CUdeviceptr address) {
    ENTER(A_CONTEXT);
    if (count == 0 || attributes == nullptr || to == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned number = 0; number < count; ++number)
        if (answer_bytes(attributes[number]) == 0) return CUDA_ERROR_INVALID_VALUE;
    Locked locked;
    Allocation *found = find_allocation(address);
    for (unsigned number = 0; number < count; ++number) {
        memset(to[number], 0, answer_bytes(attributes[number]));
        if (found != nullptr)
            answer(to[number], attributes[number], *found, address);
        else if (attributes[number] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            say(to[number], int(CU_DEVICE_INVALID));
        else if (attributes[number] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
            say(to[number], address);
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address) {
    ENTER(A_CONTEXT);
    if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
    Locked locked;
    Allocation *found = find_allocation(address);
    if (found == nullptr || found->is_host() || found->is_managed()) return CUDA_ERROR_INVALID_VALUE;
    if (found->kind == Kind::VIRTUAL) return CUDA_ERROR_NOT_SUPPORTED;
    found->sync_memops = *static_cast<const unsigned *>(value) != 0;
    return CUDA_SUCCESS;
}
