// Entry points for managed memory. Host and devices see the same bytes at the same address here anyway, so nothing moves.
#include <algorithm>

#include "advice.h"
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

static CUresult prefetch(CUdeviceptr address, size_t bytes, CUmemLocation location) {
    if (bytes == 0 || !is_managed(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_place(location);
    if (result == CUDA_SUCCESS) advise_pages(address, bytes, [&](Advice &known) { known.prefetched = location; });
    return result;
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags, CUstream given) {
    ENTER(INITIALISED);
    Locked locked;
    if (stream_meant(given) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : prefetch(address, bytes, location);
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *places, size_t *begin_at,
                                 size_t place_count, unsigned long long flags, CUstream given) {
    ENTER(INITIALISED);
    Locked locked;
    if (stream_meant(given) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    bool is_good = addresses != nullptr && sizes != nullptr && count != 0 && places != nullptr && begin_at != nullptr;
    if (!is_good || place_count == 0 || place_count > count || begin_at[0] != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    for (size_t number = 0, place = 0; number < count; ++number) {
        while (place + 1 < place_count && begin_at[place + 1] <= number) ++place;
        CUresult result = prefetch(addresses[number], sizes[number], places[place]);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemDiscardBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count, unsigned long long flags, CUstream given) {
    ENTER(INITIALISED);
    Locked locked;
    if (stream_meant(given) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (addresses == nullptr || sizes == nullptr || count == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    for (size_t number = 0; number < count; ++number)
        if (sizes[number] == 0 || !is_managed(addresses[number], sizes[number])) return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

// The number of a device, as answers about places have it.
static int number_of(CUmemLocation location) {
    if (location.type == CU_MEM_LOCATION_TYPE_INVALID) return CU_DEVICE_INVALID;
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : CU_DEVICE_CPU;
}

static void note(Advice &known, CUmem_advise advice, CUmemLocation location) {
    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY: known.is_read_mostly = true; break;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY: known.is_read_mostly = false; break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION: known.preferred = location; break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION: known.preferred = Advice().preferred; break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY: known.accessed_by.insert(number_of(location)); break;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY: known.accessed_by.erase(number_of(location));
    }
}

static CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location) {
    Locked locked;
    bool is_advice = advice >= CU_MEM_ADVISE_SET_READ_MOSTLY && advice <= CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    if (!is_advice || bytes == 0 || !is_managed(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    bool has_place = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                     advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    CUresult result = has_place ? check_place(location) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) advise_pages(address, bytes, [&](Advice &known) { note(known, advice, location); });
    return result;
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location) {
    ENTER(INITIALISED);
    return advise(address, bytes, advice, location);
}

CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device) {
    ENTER(INITIALISED);
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    if (device == CU_DEVICE_CPU) location = {CU_MEM_LOCATION_TYPE_HOST, {0}};
    return advise(address, bytes, advice, location);
}

static CUresult answer(int *to, size_t bytes, CUmem_range_attribute attribute, const Advice &known) {
    if (to == nullptr || bytes == 0 || bytes % sizeof *to != 0) return CUDA_ERROR_INVALID_VALUE;
    size_t room = bytes / sizeof *to;
    if (room != 1 && attribute != CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY: *to = known.is_read_mostly; break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION: *to = number_of(known.preferred); break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION: *to = number_of(known.prefetched); break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE: *to = known.preferred.type; break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID: *to = known.preferred.id; break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE: *to = known.prefetched.type; break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID: *to = known.prefetched.id; break;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        std::fill_n(to, room, CU_DEVICE_INVALID);
        std::copy_n(known.accessed_by.begin(), std::min(room, known.accessed_by.size()), to);
        break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemRangeGetAttribute(void *to, size_t bytes, CUmem_range_attribute attribute, CUdeviceptr address, size_t count) {
    ENTER(INITIALISED);
    Locked locked;
    if (count == 0 || !is_managed(address, count)) return CUDA_ERROR_INVALID_VALUE;
    return answer(static_cast<int *>(to), bytes, attribute, advice_of(address, count));
}

CUresult cuMemRangeGetAttributes(void **to, size_t *bytes, CUmem_range_attribute *attributes, size_t number, CUdeviceptr address,
                                 size_t count) {
    ENTER(INITIALISED);
    Locked locked;
    if (to == nullptr || bytes == nullptr || attributes == nullptr || number == 0) return CUDA_ERROR_INVALID_VALUE;
    if (count == 0 || !is_managed(address, count)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t at = 0; at < number; ++at) {
        CUresult result = answer(static_cast<int *>(to[at]), bytes[at], attributes[at], advice_of(address, count));
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

CUresult cuStreamAttachMemAsync(CUstream given, CUdeviceptr address, size_t bytes, unsigned flags) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    bool may = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE;
    if (!may || !is_managed(address, bytes == 0 ? 1 : bytes)) return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
