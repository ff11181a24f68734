// Device memory from the driver's virtual-memory calls: an address that stays, and physical memory that comes and goes.
#pragma once

#include "experiment.h"

struct Region {
    CUdeviceptr address = 0;
    size_t bytes = 0;
    CUmemGenericAllocationHandle handle = 0;

    template <typename T> T *as() const { return reinterpret_cast<T *>(address); }
};

inline CUmemAllocationProp device_memory(CUmemAllocationHandleType handle_type = CU_MEM_HANDLE_TYPE_NONE) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.requestedHandleTypes = handle_type;
    return properties;
}

inline size_t granularity(const CUmemAllocationProp &properties) {
    size_t bytes;
    CU(driver().cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    return bytes;
}

// Maps `region.handle` at `region.address` for reading and writing.
inline void map(const Region &region) {
    CU(driver().cuMemMap(region.address, region.bytes, 0, region.handle, 0));
    CUmemAccessDesc access = {};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CU(driver().cuMemSetAccess(region.address, region.bytes, &access, 1));
}

inline void back(Region &region, const CUmemAllocationProp &properties) {
    CU(driver().cuMemCreate(&region.handle, region.bytes, &properties, 0));
    map(region);
}

inline Region reserve(size_t bytes, const CUmemAllocationProp &properties) {
    size_t unit = granularity(properties);
    Region region;
    region.bytes = (bytes + unit - 1) / unit * unit;
    CU(driver().cuMemAddressReserve(&region.address, region.bytes, 0, 0, 0));
    return region;
}

// Takes the physical memory away. The address stays reserved.
inline void release(Region &region) {
    CU(driver().cuMemUnmap(region.address, region.bytes));
    CU(driver().cuMemRelease(region.handle));
    region.handle = 0;
}
