// Entry points for memory of the host that devices may use: allocated, or the program's own that it registers.
#include <stdint.h>
#include <sys/mman.h>

#include "allocations.h"
#include "call.h"
#include "contexts.h"

using namespace test_double;

static CUresult allocate_host(void **place, size_t bytes, unsigned flags) {
    unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (place == nullptr || bytes == 0 || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
    size_t mapped = round_up(bytes, 4096);
    void *got = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    Allocation allocation{Kind::HOST, reinterpret_cast<uint64_t>(got), bytes, current_context()->device, current_context()};
    allocation.flags = flags | CU_MEMHOSTALLOC_DEVICEMAP; // as where host and devices share their addresses
    add_allocation(allocation);
    *place = got;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **place, size_t bytes) {
    ENTER(A_CONTEXT);
    return allocate_host(place, bytes, 0);
}

CUresult cuMemHostAlloc(void **place, size_t bytes, unsigned flags) {
    ENTER(A_CONTEXT);
    return allocate_host(place, bytes, flags);
}

static Allocation *at_start(const void *place, Kind kind) {
    Allocation *found = allocation_at(reinterpret_cast<uint64_t>(place));
    return found != nullptr && found->kind == kind ? found : nullptr;
}

CUresult cuMemFreeHost(void *place) {
    ENTER(A_CONTEXT);
    Locked locked;
    if (at_start(place, Kind::HOST) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    end_allocation(reinterpret_cast<uint64_t>(place));
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *place, size_t bytes, unsigned flags) {
    ENTER(A_CONTEXT);
    unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
    if (place == nullptr || bytes == 0 || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
    uint64_t start = reinterpret_cast<uint64_t>(place);
    Locked locked;
    auto overlaps = [&](const Allocation &one) { return one.start < start + bytes && start < one.start + one.bytes; };
    if (!allocations_that(overlaps).empty()) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    Allocation allocation{Kind::REGISTERED, start, bytes, current_context()->device, current_context()};
    allocation.flags = flags | CU_MEMHOSTREGISTER_DEVICEMAP;
    add_allocation(allocation);
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *place) {
    ENTER(A_CONTEXT);
    Locked locked;
    if (place == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (at_start(place, Kind::REGISTERED) == nullptr) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    end_allocation(reinterpret_cast<uint64_t>(place));
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *place, unsigned flags) {
    ENTER(A_CONTEXT);
    if (address == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    Locked locked;
    Allocation *found = find_allocation(reinterpret_cast<uint64_t>(place));
    if (found == nullptr || !found->is_host()) return CUDA_ERROR_INVALID_VALUE;
    *address = reinterpret_cast<uint64_t>(place);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned *flags, void *place) {
    ENTER(A_CONTEXT);
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked locked;
    Allocation *found = find_allocation(reinterpret_cast<uint64_t>(place));
    if (found == nullptr || found->kind != Kind::HOST) return CUDA_ERROR_INVALID_VALUE;
    // With one address space for all, memory is portable without saying so.
    *flags = found->flags & ~unsigned(CU_MEMHOSTALLOC_PORTABLE);
    return CUDA_SUCCESS;
}
