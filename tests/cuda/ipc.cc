// Entry points that give memory to another process by a handle of 64 bytes. The other one opens the file in memory of the first
// through /proc, so that it must be allowed to.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "address_space.h"
#include "allocations.h"
#include "call.h"
#include "contexts.h"
#include "devices.h"
#include "live.h"
#include "queues.h"

using namespace test_double;

namespace {

struct Handle {
    char mark[8];
    int pid, descriptor;
    uint64_t offset, bytes;
    char rest[CU_IPC_HANDLE_SIZE - 32];
};
static_assert(sizeof(Handle) == sizeof(CUipcMemHandle));

constexpr char MARK[8] = "ckptdbl";

} // namespace

CUresult cuIpcGetMemHandle(CUipcMemHandle *given, CUdeviceptr address) {
    ENTER(A_CONTEXT);
    Locked locked;
    Allocation *found = find_allocation(address);
    if (given == nullptr || found == nullptr || found->kind != Kind::NATIVE) return CUDA_ERROR_INVALID_VALUE;
    Handle handle = {};
    memcpy(handle.mark, MARK, sizeof MARK);
    handle.pid = getpid();
    handle.descriptor = found->physical->descriptor;
    handle.offset = found->offset;
    handle.bytes = found->bytes;
    found->is_exported = true;
    memcpy(given, &handle, sizeof handle);
    return CUDA_SUCCESS;
}

// Nobody opens one here.
CUresult cuIpcGetEventHandle(CUipcEventHandle *given, CUevent event) {
    ENTER(INITIALISED);
    Locked locked;
    if (given == nullptr || !Live<CUevent_st>::has(event)) return CUDA_ERROR_INVALID_VALUE;
    if ((event->flags & CU_EVENT_INTERPROCESS) == 0) return CUDA_ERROR_INVALID_HANDLE;
    event->is_exported = true;
    *given = {};
    return CUDA_SUCCESS;
}

// The file is the one that all of the memory is in.
CUresult cuMemGetHandleForAddressRange(void *file, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
                                       unsigned long long flags) {
    ENTER(A_CONTEXT);
    Locked locked;
    Allocation *found = find_allocation(address);
    if (file == nullptr || found == nullptr || bytes == 0 || address + bytes > found->start + found->bytes || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD) return CUDA_ERROR_INVALID_VALUE;
    if (found->physical == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    int descriptor = fcntl(found->physical->descriptor, F_DUPFD_CLOEXEC, 3);
    if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    found->is_exported = true;
    *static_cast<int *>(file) = descriptor;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle given, unsigned flags) {
    ENTER(A_CONTEXT);
    Handle handle;
    memcpy(&handle, &given, sizeof handle);
    if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || memcmp(handle.mark, MARK, sizeof MARK) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (handle.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT; // its own
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.pid, handle.descriptor);
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return CUDA_ERROR_INVALID_VALUE;
    Locked locked;
    auto physical = Physical::of_descriptor(descriptor);
    close(descriptor);
    if (physical == nullptr || !is_device(physical->device)) return CUDA_ERROR_INVALID_VALUE;
    auto is_it = [&](const Allocation &one) {
        bool is_same = one.physical == physical && one.offset == handle.offset && one.context == current_context();
        return one.kind == Kind::IMPORTED && is_same;
    };
    for (uint64_t opened : allocations_that(is_it)) { // once more
        ++allocation_at(opened)->opened;
        *address = opened;
        return CUDA_SUCCESS;
    }
    uint64_t start = reserve_addresses(physical->bytes, GRANULARITY);
    if (start == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    physical->map(start, 0, physical->bytes, PROT_READ | PROT_WRITE);
    Allocation allocation{Kind::IMPORTED, start + handle.offset, handle.bytes, physical->device, current_context()};
    allocation.physical = physical;
    allocation.offset = handle.offset;
    add_allocation(allocation);
    *address = allocation.start;
    return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    ENTER(A_CONTEXT);
    for (auto &queue : queues_of(current_context())) queue->wait(); // what still runs may use it
    Locked locked;
    Allocation *found = allocation_at(address);
    if (found == nullptr || found->kind != Kind::IMPORTED) return CUDA_ERROR_INVALID_VALUE;
    if (--found->opened == 0) end_allocation(address);
    return CUDA_SUCCESS;
}
