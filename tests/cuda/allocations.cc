#include "allocations.h"

#include <stdlib.h>
#include <sys/mman.h>

#include <iterator>
#include <map>
#include <string>

#include "address_space.h"
#include "advice.h"
#include "call.h"
#include "pools.h"

namespace test_double {

namespace {

std::map<uint64_t, Allocation> &all() {
    static auto *all = new std::map<uint64_t, Allocation>;
    return *all;
}

// Of memory of cuMemAllocManaged, as CKPT_DOUBLE_MANAGED says: README.md.
Freed freed_of_managed() {
    const char *text = getenv("CKPT_DOUBLE_MANAGED");
    std::string wanted = text == nullptr ? "" : text;
    if (wanted == "elsewhere") return Freed::ELSEWHERE;
    if (wanted == "kept") return Freed::KEPT;
    return wanted == "reserved" ? Freed::RESERVED : Freed::GONE;
}

} // namespace

bool Allocation::is_managed() const { return physical != nullptr && physical->device == NO_DEVICE; }

void add_allocation(Allocation allocation) {
    static unsigned long long last_id = 0;
    Locked locked;
    allocation.id = ++last_id;
    all().emplace(allocation.start, allocation);
}

Allocation *find_allocation(uint64_t address) {
    Locked locked;
    auto after = all().upper_bound(address);
    if (after == all().begin()) return nullptr;
    Allocation &before = std::prev(after)->second;
    return address - before.start < before.bytes ? &before : nullptr;
}

Allocation *allocation_at(uint64_t address) {
    Locked locked;
    auto found = all().find(address);
    return found == all().end() ? nullptr : &found->second;
}

void remove_allocation(uint64_t address) {
    Locked locked;
    all().erase(address);
}

std::vector<uint64_t> allocations_that(const std::function<bool(const Allocation &)> &are_so) {
    Locked locked;
    std::vector<uint64_t> found;
    for (auto &[address, allocation] : all())
        if (are_so(allocation)) found.push_back(address);
    return found;
}

bool is_allocated(uint64_t address, size_t bytes, unsigned access) {
    Locked locked;
    for (uint64_t end = address + bytes; address < end;) {
        Allocation *found = find_allocation(address);
        if (found == nullptr || (found->access & access) != access) return false;
        address = found->start + found->bytes;
        if (address < end && found->kind != Kind::VIRTUAL) return false;
    }
    return true;
}

bool is_any_allocated(uint64_t address, size_t bytes) {
    Locked locked;
    auto behind = all().lower_bound(address);
    return find_allocation(address) != nullptr || (behind != all().end() && behind->first < address + bytes);
}

void end_allocation(uint64_t address) {
    Locked locked;
    Allocation ended = all().at(address);
    all().erase(address);
    forget_advice(address, ended.bytes);
    switch (ended.kind) {
    case Kind::NATIVE:
    case Kind::GRAPH:
    case Kind::MANAGED:
    case Kind::VARIABLE:
        heap_of(ended.physical->device).release(address);
        heap_of(ended.physical->device).trim(0);
        break;
    case Kind::POOL: give_back_to_pool(ended.pool, address); break;
    case Kind::VIRTUAL: ended.physical->unmap(address); break;
    case Kind::HOST: munmap(at<void>(address), ended.bytes); break;
    case Kind::REGISTERED: break;
    case Kind::IMPORTED:
        ended.physical->unmap(address - ended.offset);
        free_addresses(address - ended.offset);
    }
}

Heap &heap_of(int device) {
    static auto *heaps = new std::map<int, Heap>;
    Locked locked;
    return heaps->try_emplace(device, device, GRANULARITY, device == NO_DEVICE ? freed_of_managed() : Freed::GONE).first->second;
}

Allocation *allocate(Kind kind, int device, int memory_of, CUcontext context, size_t bytes) {
    Locked locked;
    Part part = heap_of(memory_of).allocate(bytes);
    if (part.address == 0) return nullptr;
    Allocation allocation{kind, part.address, bytes, device, context};
    allocation.physical = part.physical;
    allocation.offset = part.offset;
    add_allocation(allocation);
    return allocation_at(part.address);
}

} // namespace test_double
