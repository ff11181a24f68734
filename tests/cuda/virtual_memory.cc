// Entry points for addresses and physical memory that the program puts together itself. A handle holds the memory, and so does
// every mapping: it is free when the last of them is gone. What is mapped faults until access is given.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "address_space.h"
#include "allocations.h"
#include "call.h"
#include "devices.h"

using namespace test_double;

namespace {

// What a handle stands for: a program may retain it more than once.
struct Handle {
    std::shared_ptr<Physical> physical;
    int handle_types; // that it may be exported as
    unsigned references;
};

std::map<CUmemGenericAllocationHandle, Handle> &handles() {
    static auto *handles = new std::map<CUmemGenericAllocationHandle, Handle>;
    return *handles;
}

CUmemGenericAllocationHandle new_handle(std::shared_ptr<Physical> physical, int handle_types) {
    static CUmemGenericAllocationHandle last = 0x10000;
    handles()[++last] = {std::move(physical), handle_types, 1};
    return last;
}

CUresult check(const CUmemAllocationProp *about) {
    if (about == nullptr || about->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (about->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_device(about->location.id)) return CUDA_ERROR_INVALID_DEVICE;
    int types = about->requestedHandleTypes;
    if ((types & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

// The mappings that these addresses consist of; none if one reaches over an end, or some address is not mapped.
std::vector<uint64_t> mappings_of(CUdeviceptr address, size_t bytes) {
    std::vector<uint64_t> found;
    for (uint64_t end = address + bytes; address < end;) {
        Allocation *one = allocation_at(address);
        if (one == nullptr || one->kind != Kind::VIRTUAL || one->start + one->bytes > end) return {};
        found.push_back(address);
        address += one->bytes;
    }
    return found;
}

// Whether it lies in one reservation.
bool is_reserved(CUdeviceptr address, size_t bytes) { return reservation_around(address, bytes) != 0; }

int protection_of(unsigned access) {
    if (access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return PROT_READ | PROT_WRITE;
    return access == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : PROT_NONE;
}

} // namespace

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *about, CUmemAllocationGranularity_flags flags) {
    ENTER(INITIALISED);
    if (bytes == nullptr || flags > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check(about);
    if (result == CUDA_SUCCESS) *bytes = GRANULARITY;
    return result;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags) {
    ENTER(INITIALISED);
    bool is_aligned = bytes != 0 && bytes % GRANULARITY == 0 && (alignment & (alignment - 1)) == 0;
    if (address == nullptr || !is_aligned || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    *address = reserve_addresses(bytes, alignment < GRANULARITY ? GRANULARITY : alignment, wanted);
    return *address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    ENTER(INITIALISED);
    Locked locked;
    if (bytes == 0 || reserved_at(address) != bytes) return CUDA_ERROR_INVALID_VALUE;
    auto is_inside = [&](const Allocation &one) { return one.start >= address && one.start < address + bytes; };
    if (!allocations_that(is_inside).empty()) return CUDA_ERROR_INVALID_VALUE;
    free_addresses(address);
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *about,
                     unsigned long long flags) {
    ENTER(INITIALISED);
    if (handle == nullptr || bytes == 0 || bytes % GRANULARITY != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check(about);
    if (result != CUDA_SUCCESS) return result;
    static const char *wanted = getenv("CKPT_DOUBLE_CREATE_RESULT");
    if (wanted != nullptr) return CUresult(atoi(wanted));
    Locked locked;
    auto physical = Physical::create(bytes, about->location.id);
    if (physical == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    physical->fill(0xa5); // nothing may rely on zeros
    *handle = new_handle(physical, about->requestedHandleTypes);
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    ENTER(INITIALISED);
    Locked locked;
    auto found = handles().find(handle);
    if (found == handles().end()) return CUDA_ERROR_INVALID_VALUE;
    if (--found->second.references == 0) handles().erase(found);
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
    ENTER(INITIALISED);
    Locked locked;
    auto found = handles().find(handle);
    if (found == handles().end() || flags != 0 || offset != 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    auto &physical = found->second.physical;
    bool fits = address % GRANULARITY == 0 && bytes % GRANULARITY == 0 && bytes <= physical->bytes && is_reserved(address, bytes);
    auto overlaps = [&](const Allocation &one) { return one.start < address + bytes && address < one.start + one.bytes; };
    if (!fits || !allocations_that(overlaps).empty()) return CUDA_ERROR_INVALID_VALUE;
    physical->map(address, offset, bytes, PROT_NONE);
    Allocation mapping{Kind::VIRTUAL, address, bytes, physical->device};
    mapping.physical = physical;
    mapping.access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    mapping.handle_types = unsigned(found->second.handle_types);
    add_allocation(mapping);
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    ENTER(INITIALISED);
    Locked locked;
    auto mappings = mappings_of(address, bytes);
    if (mappings.empty()) return CUDA_ERROR_INVALID_VALUE;
    for (uint64_t one : mappings) end_allocation(one);
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *wanted, size_t count) {
    ENTER(INITIALISED);
    Locked locked;
    auto mappings = mappings_of(address, bytes);
    if (wanted == nullptr || count == 0 || mappings.empty()) return CUDA_ERROR_INVALID_VALUE;
    for (const CUmemAccessDesc *one = wanted; one < wanted + count; ++one) {
        bool may = one->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || one->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                   one->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if (!may || one->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
        if (!is_device(one->location.id)) return CUDA_ERROR_INVALID_DEVICE;
    }
    for (uint64_t start : mappings) {
        Allocation &mapping = *allocation_at(start);
        for (const CUmemAccessDesc *one = wanted; one < wanted + count; ++one) mapping.access_by[one->location.id] = one->flags;
        // One address has one protection here: the most that any device may do.
        mapping.access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        for (auto [device, access] : mapping.access_by) mapping.access |= access;
        mapping.physical->protect(start, protection_of(mapping.access));
    }
    return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address) {
    ENTER(INITIALISED);
    if (flags == nullptr || location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    Locked locked;
    Allocation *found = find_allocation(address);
    if (found == nullptr || found->kind != Kind::VIRTUAL) return CUDA_ERROR_INVALID_VALUE;
    auto access = found->access_by.find(location->id);
    *flags = access == found->access_by.end() ? unsigned(CU_MEM_ACCESS_FLAGS_PROT_NONE) : access->second;
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                      unsigned long long flags) {
    ENTER(INITIALISED);
    Locked locked;
    auto found = handles().find(handle);
    if (shared == nullptr || flags != 0 || found == handles().end()) return CUDA_ERROR_INVALID_VALUE;
    bool may = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && (found->second.handle_types & type) != 0;
    if (!may || found->second.physical->is_imported) return CUDA_ERROR_INVALID_VALUE;
    int copy = fcntl(found->second.physical->descriptor, F_DUPFD_CLOEXEC, 3);
    if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    found->second.physical->is_shared = true;
    *static_cast<int *>(shared) = copy;
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared, CUmemAllocationHandleType type) {
    ENTER(INITIALISED);
    if (handle == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
    Locked locked;
    auto physical = Physical::of_descriptor(int(reinterpret_cast<intptr_t>(shared)));
    if (physical == nullptr || !is_device(physical->device)) return CUDA_ERROR_INVALID_VALUE;
    physical->is_shared = true;
    *handle = new_handle(physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    ENTER(INITIALISED);
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Locked locked;
    Allocation *found = find_allocation(reinterpret_cast<uint64_t>(address));
    if (found == nullptr || found->kind != Kind::VIRTUAL) return CUDA_ERROR_INVALID_VALUE;
    for (auto &[number, one] : handles())
        if (one.physical == found->physical) return ++one.references, *handle = number, CUDA_SUCCESS;
    *handle = new_handle(found->physical, int(found->handle_types));
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *about, CUmemGenericAllocationHandle handle) {
    ENTER(INITIALISED);
    Locked locked;
    auto found = handles().find(handle);
    if (about == nullptr || found == handles().end()) return CUDA_ERROR_INVALID_VALUE;
    *about = {};
    about->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    about->requestedHandleTypes = CUmemAllocationHandleType(found->second.handle_types);
    about->location = {CU_MEM_LOCATION_TYPE_DEVICE, found->second.physical->device};
    return CUDA_SUCCESS;
}
