// What a program has said of managed memory: of pages, as drivers have it.
#pragma once

#include <cuda.h>

#include <stddef.h>
#include <stdint.h>

#include <functional>
#include <set>

namespace test_double {

struct Advice {
    bool is_read_mostly = false;
    CUmemLocation preferred = {CU_MEM_LOCATION_TYPE_INVALID, {0}}, prefetched = {CU_MEM_LOCATION_TYPE_INVALID, {0}};
    std::set<int> accessed_by = {}; // as questions have it: the host is CU_DEVICE_CPU
};

// Changes what is said of each page that these bytes are on.
void advise_pages(uint64_t address, size_t bytes, const std::function<void(Advice &)> &change);
// What holds of all of them.
Advice advice_of(uint64_t address, size_t bytes);
// Nothing is said any more of the pages of memory that was freed, but for those on which there is other memory.
void forget_advice(uint64_t address, size_t bytes);

} // namespace test_double
