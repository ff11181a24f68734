// What a program has: every allocation, by its address, whatever kind of memory it is. Copies, fills and questions about
// pointers look here, and an address that lies in none of them is refused.
#pragma once

#include <cuda.h>

#include <functional>
#include <memory>
#include <vector>

#include "heap.h"

namespace test_double {

enum class Kind { NATIVE, VIRTUAL, POOL, GRAPH, MANAGED, HOST, REGISTERED, IMPORTED, VARIABLE };

struct Allocation {
    Kind kind;
    uint64_t start;
    size_t bytes;
    int device;
    CUcontext context = nullptr; // that it goes with; null if it outlives contexts
    std::shared_ptr<Physical> physical = nullptr;
    size_t offset = 0; // in it
    CUmemoryPool pool = nullptr;
    unsigned flags = 0; // as the program gave them, for the host's
    unsigned access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    unsigned handle_types = 0; // that it may be exported as
    std::map<int, unsigned> access_by = {}; // of each device, where the program gives access itself
    bool is_exported = false; // by a handle of legacy IPC
    unsigned opened = 1; // how often, of imported memory
    bool sync_memops = false;
    unsigned long long id = 0; // set when it is added

    bool is_managed() const;
    // The host's own, which devices may use.
    bool is_host() const { return kind == Kind::HOST || kind == Kind::REGISTERED; }
};

void add_allocation(Allocation allocation);
// The one that an address lies in; null if there is none.
Allocation *find_allocation(uint64_t address);
// The one that begins there.
Allocation *allocation_at(uint64_t address);
void remove_allocation(uint64_t address);
std::vector<uint64_t> allocations_that(const std::function<bool(const Allocation &)> &are_so);

// Whether all these bytes lie in one allocation, or in several mapped one behind the other, that have this access.
bool is_allocated(uint64_t address, size_t bytes, unsigned access);
// Whether anything is allocated in these bytes.
bool is_any_allocated(uint64_t address, size_t bytes);
// Ends an allocation of whatever kind: its memory is free.
void end_allocation(uint64_t address);

// What all but pools take memory from, also managed memory.
Heap &heap_of(int device);
// Memory of this kind from there; null where there is not as much left.
Allocation *allocate(Kind kind, int device, int memory_of, CUcontext context, size_t bytes);

template <typename T> T *at(CUdeviceptr address) { return reinterpret_cast<T *>(address); }

} // namespace test_double
