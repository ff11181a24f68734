// Memory pools, of a device or of managed memory.
#pragma once

#include <cuda.h>

#include <map>

#include "allocations.h"
#include "heap.h"

struct CUmemPoolHandle_st {
    CUmemPoolHandle_st(const CUmemPoolProps &properties, bool is_default, int memory_of);

    const CUmemPoolProps properties;
    const bool is_default;
    test_double::Heap heap;
    std::map<CUmemPool_attribute, uint64_t> settings{};
    std::map<int, CUmemAccess_flags> access{}; // of other devices than its own
    bool is_destroyed = false;                 // and goes with its last allocation
    bool is_exported = false;
};

namespace test_double {

// Memory from a pool, at once; no stream is waited for.
CUresult allocate_from(CUmemoryPool pool, size_t bytes, CUdeviceptr *address);
// What end_allocation does with memory of a pool.
void give_back_to_pool(CUmemoryPool pool, uint64_t address);
// Every pool gives back what it holds above its release threshold.
void trim_pools();

} // namespace test_double
