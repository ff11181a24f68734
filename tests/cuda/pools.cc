// Entry points for memory pools, and for the memory that streams take from them. An allocation has its address at once. What is
// freed is unknown from then on, and its memory is free when the stream comes to it.
#include "pools.h"

#include <sys/mman.h>

#include <algorithm>

#include "call.h"
#include "contexts.h"
#include "devices.h"
#include "graphs.h"
#include "live.h"
#include "queues.h"

namespace test_double {

namespace {

constexpr size_t PIECE = 32 << 20; // as the driver takes it from the device

// Where memory of a pool is, as far as pools are told apart by it.
using Where = std::pair<CUmemAllocationType, int>;

std::map<Where, CUmemoryPool> &defaults() {
    static auto *defaults = new std::map<Where, CUmemoryPool>;
    return *defaults;
}

std::map<Where, CUmemoryPool> &currents() {
    static auto *currents = new std::map<Where, CUmemoryPool>;
    return *currents;
}

Where where(const CUmemLocation &location, CUmemAllocationType type) {
    return {type, location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : NO_DEVICE - int(location.type)};
}

CUmemoryPool new_pool(const CUmemPoolProps &properties, bool is_default) {
    int memory_of = properties.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED ? NO_DEVICE : properties.location.id;
    auto *pool = Live<CUmemPoolHandle_st>::create(properties, is_default, memory_of);
    for (auto reuse : {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                       CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES})
        pool->settings[reuse] = 1;
    pool->settings[CU_MEMPOOL_ATTR_RELEASE_THRESHOLD] = 0;
    return pool;
}

CUmemoryPool default_pool(const CUmemLocation &location, CUmemAllocationType type) {
    CUmemoryPool &pool = defaults()[where(location, type)];
    if (pool == nullptr) {
        CUmemPoolProps properties = {};
        properties.allocType = type;
        properties.location = location;
        pool = new_pool(properties, true);
    }
    return pool;
}

CUmemoryPool current_pool(const CUmemLocation &location, CUmemAllocationType type) {
    Locked locked;
    auto found = currents().find(where(location, type));
    return found == currents().end() ? default_pool(location, type) : found->second;
}

// Whether there can be a pool there. Pools of the host's own memory are not in the double.
CUresult check_place(const CUmemLocation *location, CUmemAllocationType type) {
    bool is_managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    if (location == nullptr || (type != CU_MEM_ALLOCATION_TYPE_PINNED && !is_managed)) return CUDA_ERROR_INVALID_VALUE;
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE: return is_device(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_NONE: return is_managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA: return is_managed ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

bool exists(CUmemoryPool pool) {
    Locked locked;
    return Live<CUmemPoolHandle_st>::has(pool) && !pool->is_destroyed;
}

void destroy_when_empty(CUmemoryPool pool) {
    if (pool->is_destroyed && pool->heap.used == 0) Live<CUmemPoolHandle_st>::destroy(pool);
}

} // namespace

CUresult allocate_from(CUmemoryPool pool, size_t bytes, CUdeviceptr *address) {
    Locked locked;
    size_t most = pool->properties.maxSize;
    if (most != 0 && (bytes > most || pool->heap.used > most - bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    Part part = pool->heap.allocate(bytes);
    if (part.address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    bool has_device = pool->properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    Allocation allocation{Kind::POOL, part.address, bytes, has_device ? pool->properties.location.id : 0};
    allocation.physical = part.physical;
    allocation.offset = part.offset;
    allocation.pool = pool;
    allocation.handle_types = unsigned(pool->properties.handleTypes);
    add_allocation(allocation);
    *address = part.address;
    return CUDA_SUCCESS;
}

void give_back_to_pool(CUmemoryPool pool, uint64_t address) {
    Locked locked;
    pool->heap.release(address);
    destroy_when_empty(pool);
}

void trim_pools() {
    Locked locked;
    for (CUmemoryPool pool : Live<CUmemPoolHandle_st>::those([](CUmemPoolHandle_st &) { return true; }))
        pool->heap.trim(pool->settings[CU_MEMPOOL_ATTR_RELEASE_THRESHOLD]);
}

} // namespace test_double

using namespace test_double;

CUmemPoolHandle_st::CUmemPoolHandle_st(const CUmemPoolProps &properties, bool is_default, int memory_of)
    : properties(properties), is_default(is_default), heap(memory_of, PIECE) {}

static CUmemLocation on_device(CUdevice device) { return {CU_MEM_LOCATION_TYPE_DEVICE, device}; }

// What was freed in the stream before may be used again, though the stream may not have come to it yet: then it is waited for.
static CUresult allocate_in(CUstream stream, CUmemoryPool pool, size_t bytes, CUdeviceptr *address) {
    if (stream->capture != nullptr) {
        Locked locked;
        return stream->capture->allocate(pool, bytes, address);
    }
    CUresult result = allocate_from(pool, bytes, address);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
    stream->queue->wait();
    trim_pools();
    return allocate_from(pool, bytes, address);
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream given) {
    ENTER(INITIALISED);
    if (given == nullptr && current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    CUstream stream = stream_meant(given);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    return allocate_in(stream, current_pool(on_device(stream->context->device), CU_MEM_ALLOCATION_TYPE_PINNED), bytes, address);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream given) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (address == nullptr || bytes == 0 || !exists(pool)) return CUDA_ERROR_INVALID_VALUE;
    return allocate_in(stream, pool, bytes, address);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream given) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    Locked locked;
    Allocation *found = allocation_at(address);
    if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture != nullptr) return stream->capture->add(CU_GRAPH_NODE_TYPE_MEM_FREE, [] {});
    if (found->kind == Kind::GRAPH) return CUDA_SUCCESS; // stays the graph's, which uses it again
    if (found->kind == Kind::NATIVE) { // plain memory, too, is free behind what is in the stream
        int device = found->physical->device;
        remove_allocation(address);
        return submit(stream, CU_GRAPH_NODE_TYPE_MEM_FREE, [=] { heap_of(device).release(address), heap_of(device).trim(0); });
    }
    if (found->kind != Kind::POOL) return CUDA_ERROR_INVALID_VALUE;
    CUmemoryPool pool = found->pool;
    remove_allocation(address);
    return submit(stream, CU_GRAPH_NODE_TYPE_MEM_FREE, [=] { give_back_to_pool(pool, address); });
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
    ENTER(INITIALISED);
    if (pool == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_place(&properties->location, properties->allocType);
    if (result != CUDA_SUCCESS) return result;
    if ((properties->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    Locked locked;
    *pool = new_pool(*properties, false);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    ENTER(INITIALISED);
    Locked locked;
    if (!exists(pool) || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
    for (auto current = currents().begin(); current != currents().end();)
        current = current->second == pool ? currents().erase(current) : std::next(current);
    pool->is_destroyed = true;
    destroy_when_empty(pool);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    ENTER(INITIALISED);
    Locked locked;
    if (!exists(pool)) return CUDA_ERROR_INVALID_VALUE;
    pool->heap.trim(keep);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    ENTER(INITIALISED);
    Locked locked;
    if (!exists(pool) || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: pool->settings[attribute] = *static_cast<int *>(value) != 0; break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: pool->settings[attribute] = *static_cast<cuuint64_t *>(value); break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*static_cast<cuuint64_t *>(value) != 0) return CUDA_ERROR_INVALID_VALUE; // it can only begin again
        (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? pool->heap.used_high : pool->heap.reserved_high) =
            attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? pool->heap.used : pool->heap.reserved;
        break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    ENTER(INITIALISED);
    Locked locked;
    if (!exists(pool) || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto *number = static_cast<cuuint64_t *>(value);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: *static_cast<int *>(value) = int(pool->settings[attribute]); break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: *number = pool->settings[attribute]; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: *number = pool->heap.reserved; break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: *number = pool->heap.reserved_high; break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: *number = pool->heap.used; break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: *number = pool->heap.used_high; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *wanted, size_t count) {
    ENTER(INITIALISED);
    Locked locked;
    if (!exists(pool) || (wanted == nullptr && count != 0)) return CUDA_ERROR_INVALID_VALUE;
    for (size_t number = 0; number < count; ++number) {
        if (wanted[number].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
        if (!is_device(wanted[number].location.id)) return CUDA_ERROR_INVALID_DEVICE;
        pool->access[wanted[number].location.id] = wanted[number].flags;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location) {
    ENTER(INITIALISED);
    Locked locked;
    if (flags == nullptr || !exists(pool) || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    auto found = pool->access.find(location->id);
    bool is_own = pool->properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE && pool->properties.location.id == location->id;
    *flags = found != pool->access.end() ? found->second
             : is_own                    ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                         : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

// Pools are not shared between processes here: the file leads nowhere.
CUresult cuMemPoolExportToShareableHandle(void *shared, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags) {
    ENTER(INITIALISED);
    Locked locked;
    if (shared == nullptr || flags != 0 || !exists(pool)) return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEM_HANDLE_TYPE_NONE || pool->properties.handleTypes != type) return CUDA_ERROR_INVALID_VALUE;
    int descriptor = memfd_create("pool of the double", MFD_CLOEXEC);
    if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    pool->is_exported = true;
    *static_cast<int *>(shared) = descriptor;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *, CUmemAllocationHandleType, unsigned long long) {
    ENTER(INITIALISED);
    return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *exported, CUdeviceptr) {
    ENTER(INITIALISED);
    return exported == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool, CUmemPoolPtrExportData *) {
    ENTER(INITIALISED);
    return address == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult set_current(const CUmemLocation &location, CUmemAllocationType type, CUmemoryPool pool) {
    Locked locked;
    if (!exists(pool) || where(pool->properties.location, pool->properties.allocType) != where(location, type))
        return CUDA_ERROR_INVALID_VALUE;
    currents()[where(location, type)] = pool;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    ENTER(INITIALISED);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    Locked locked;
    *pool = default_pool(on_device(device), CU_MEM_ALLOCATION_TYPE_PINNED);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
    ENTER(INITIALISED);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    Locked locked;
    *pool = current_pool(on_device(device), CU_MEM_ALLOCATION_TYPE_PINNED);
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
    ENTER(INITIALISED);
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    Locked locked;
    // A managed pool may be the device's too: what cuMemAllocAsync gives is then managed.
    Where here = where(on_device(device), CU_MEM_ALLOCATION_TYPE_PINNED);
    if (!exists(pool) || where(pool->properties.location, CU_MEM_ALLOCATION_TYPE_PINNED) != here) return CUDA_ERROR_INVALID_VALUE;
    currents()[here] = pool;
    return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    ENTER(INITIALISED);
    CUresult result = pool == nullptr ? CUDA_ERROR_INVALID_VALUE : check_place(location, type);
    if (result != CUDA_SUCCESS) return result;
    Locked locked;
    *pool = default_pool(*location, type);
    return CUDA_SUCCESS;
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    ENTER(INITIALISED);
    CUresult result = pool == nullptr ? CUDA_ERROR_INVALID_VALUE : check_place(location, type);
    if (result != CUDA_SUCCESS) return result;
    Locked locked;
    *pool = current_pool(*location, type);
    return CUDA_SUCCESS;
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    ENTER(INITIALISED);
    CUresult result = check_place(location, type);
    return result == CUDA_SUCCESS ? set_current(*location, type, pool) : result;
}
