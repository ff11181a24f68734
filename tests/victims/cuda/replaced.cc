// Managed memory that a program frees, and ordinary memory that it puts in its place: what the double does then, as
// CKPT_DOUBLE_MANAGED says. One case by name; it ends with the status 0 if all is as it should be.
//
//   replaced WORDS.ptx CASE
#include "cases.h"
#include "controls.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr size_t PAGE = 4096, MIB = 1 << 20;
// Those that are small share 2 MiB, and some of them a page.
const std::vector<size_t> SIZES = {3000, 5000, 8192, 1, 4 * MIB, 5 * MIB + 1};
std::string ptx_path;

struct Range {
    uint64_t start, end;
};

Range pages_of(CUdeviceptr address, size_t bytes) { return {address / PAGE * PAGE, (address + bytes + PAGE - 1) / PAGE * PAGE}; }

bool overlap(Range one, Range other) { return one.start < other.end && other.start < one.end; }

CUdeviceptr allocated(size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_OK(cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL));
    return address;
}

std::vector<CUdeviceptr> all_allocated() {
    std::vector<CUdeviceptr> all;
    for (size_t bytes : SIZES) all.push_back(allocated(bytes));
    return all;
}

void free_all(const std::vector<CUdeviceptr> &all) {
    for (CUdeviceptr address : all) EXPECT_OK(cuMemFree(address));
}

// The pages of all of them, each once, those that are next to each other together.
std::vector<Range> pages_of_all(const std::vector<CUdeviceptr> &all) {
    std::vector<Range> pages, joined;
    for (size_t at = 0; at < all.size(); ++at) pages.push_back(pages_of(all[at], SIZES[at]));
    std::sort(pages.begin(), pages.end(), [](Range one, Range other) { return one.start < other.start; });
    for (Range one : pages) {
        if (joined.empty() || joined.back().end < one.start) joined.push_back(one);
        joined.back().end = std::max(joined.back().end, one.end);
    }
    return joined;
}

enum What { NOTHING, HELD, MEMORY };

// The most that lies anywhere in a range.
What lies_in(Range range) {
    std::ifstream maps("/proc/self/maps");
    What found = NOTHING;
    for (std::string line; std::getline(maps, line);) {
        unsigned long long start, end, inode;
        char access[5], offset[20], device[20];
        EXPECT(sscanf(line.c_str(), "%llx-%llx %4s %19s %19s %llu", &start, &end, access, offset, device, &inode) == 6);
        if (!overlap(range, {start, end})) continue;
        bool is_held = strcmp(access, "---p") == 0 && inode == 0 && line.find('[') == std::string::npos;
        found = std::max(found, is_held ? HELD : MEMORY);
    }
    return found;
}

void *place(uint64_t address) { return reinterpret_cast<void *>(address); }

// Moves ordinary memory there whose words are all the same.
void put(Range range, uint32_t word) {
    size_t bytes = range.end - range.start;
    void *elsewhere = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(elsewhere != MAP_FAILED);
    std::fill_n(static_cast<uint32_t *>(elsewhere), bytes / 4, word);
    EXPECT(mremap(elsewhere, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place(range.start)) == place(range.start));
}

bool has(Range range, uint32_t word) {
    const uint32_t *words = pointer<uint32_t>(range.start);
    return std::all_of(words, words + (range.end - range.start) / 4, [&](uint32_t one) { return one == word; });
}

void take_along() {
    CUcheckpointLockArgs how = {};
    how.timeoutMs = 10000;
    EXPECT_OK(cuCheckpointProcessLock(getpid(), &how));
    EXPECT_OK(cuCheckpointProcessCheckpoint(getpid(), nullptr));
    EXPECT_OK(cuCheckpointProcessRestore(getpid(), nullptr));
    EXPECT_OK(cuCheckpointProcessUnlock(getpid(), nullptr));
}

void leaves_behind(What wanted) {
    auto all = all_allocated();
    auto pages = pages_of_all(all);
    for (size_t at = 0; at + 1 < all.size(); ++at) { // what shares a unit stays mapped for as long as one of them is there
        EXPECT(lies_in(pages_of(all[at], SIZES[at])) == MEMORY);
        EXPECT_OK(cuMemFree(all[at]));
        if (at < 3) EXPECT(lies_in(pages_of(all[at], SIZES[at])) == MEMORY);
    }
    EXPECT_OK(cuMemFree(all.back()));
    for (Range range : pages) EXPECT(lies_in(range) == wanted);
}

void nothing_is_left() { leaves_behind(NOTHING); }
void addresses_are_held() { leaves_behind(HELD); }

void memory_is_kept() {
    take_along();
    leaves_behind(MEMORY);
    EXPECT_OK(cuCheckpointProcessLock(getpid(), nullptr));
    EXPECT_RESULT(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessCheckpoint(getpid(), nullptr));
    EXPECT_OK(cuCheckpointProcessUnlock(getpid(), nullptr));
}

// Other memory of the device, before them and behind them, stays where it is.
void it_comes_back_where_it_was() {
    CUdeviceptr before, behind;
    EXPECT_OK(cuMemAlloc(&before, 3 * MIB));
    auto all = all_allocated();
    EXPECT_OK(cuMemAlloc(&behind, MIB));
    free_all(all);
    for (Range range : pages_of_all(all)) put(range, 1);
    take_along();
    for (Range range : pages_of_all(all)) EXPECT(munmap(place(range.start), range.end - range.start) == 0);
    EXPECT(all_allocated() == all);
    EXPECT_OK(cuMemFree(before));
    EXPECT_OK(cuMemFree(behind));
}

void what_is_allocated_later_is_elsewhere() {
    std::vector<Range> ever;
    CUdeviceptr stays = allocated(1000);
    for (int time = 0; time < 50; ++time) {
        auto all = all_allocated();
        std::vector<Range> now;
        for (size_t at = 0; at < all.size(); ++at) now.push_back({all[at], all[at] + SIZES[at]});
        for (Range one : now)
            for (Range other : ever) EXPECT(!overlap(one, other));
        ever.insert(ever.end(), now.begin(), now.end());
        free_all(all);
        if (time == 25) EXPECT_OK(cuMemFree(stays));
    }
}

CUfunction kernel(CUmodule *module) {
    CUfunction function;
    EXPECT_OK(cuModuleLoad(module, ptx_path.c_str()));
    EXPECT_OK(cuModuleGetFunction(&function, *module, "add_one"));
    return function;
}

void is_used_by_devices(Range range, uint32_t word, CUfunction add_one) {
    CUdeviceptr address, plain;
    size_t count = (range.end - range.start) / 4;
    EXPECT_OK(cuMemHostGetDevicePointer(&address, place(range.start), 0));
    EXPECT(address == range.start && all_are(address, count, word));
    void *parameters[] = {&address, &count};
    EXPECT_OK(cuLaunchKernel(add_one, 2, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT(has(range, word + 1));
    EXPECT_OK(cuMemAlloc(&plain, count * 4));
    EXPECT_OK(cuMemcpyDtoD(plain, address, count * 4));
    EXPECT(all_are(plain, count, word + 1));
    EXPECT_OK(cuMemsetD32(address, word, count));
    EXPECT(has(range, word));
    EXPECT_OK(cuMemFree(plain));
}

void lies_beside(const std::vector<Range> &taken, CUdeviceptr address, size_t bytes) {
    for (Range range : taken) EXPECT(!overlap(range, {address, address + bytes}));
}

// Whatever is allocated lies beside what is registered, also what is wanted there.
void nothing_is_allocated_in(const std::vector<Range> &taken) {
    std::vector<CUdeviceptr> plain;
    for (size_t bytes : {size_t(1), 2 * MIB, 9 * MIB}) {
        CUdeviceptr address, pooled, space;
        EXPECT_OK(cuMemAlloc(&address, bytes));
        lies_beside(taken, address, bytes);
        plain.push_back(address);
        EXPECT_OK(cuMemAllocAsync(&pooled, bytes, nullptr));
        lies_beside(taken, pooled, bytes);
        EXPECT_OK(cuMemFreeAsync(pooled, nullptr));
        EXPECT_OK(cuMemAddressReserve(&space, 4 * MIB, 0, taken.front().start / (2 * MIB) * (2 * MIB), 0));
        lies_beside(taken, space, 4 * MIB);
        EXPECT_OK(cuMemAddressFree(space, 4 * MIB));
    }
    auto managed = all_allocated();
    for (size_t at = 0; at < managed.size(); ++at) lies_beside(taken, managed[at], SIZES[at]);
    free_all(managed);
    free_all(plain);
}

void ordinary_memory_can_take_its_place() {
    CUmodule module;
    CUfunction add_one = kernel(&module);
    auto all = all_allocated();
    auto taken = pages_of_all(all);
    free_all(all);
    for (Range range : taken) put(range, 5);
    take_along();
    nothing_is_allocated_in(taken);
    for (Range range : taken) EXPECT_OK(cuMemHostRegister(place(range.start), range.end - range.start, 3));
    for (int time = 0; time < 3; ++time) {
        for (Range range : taken) is_used_by_devices(range, 5, add_one);
        nothing_is_allocated_in(taken);
        take_along();
    }
    for (Range range : taken) EXPECT_OK(cuMemHostUnregister(place(range.start)));
    nothing_is_allocated_in(taken); // it is the program's until it unmaps it
    for (Range range : taken) EXPECT(has(range, 5));
}

void held_addresses_are_used_whatever_lies_there() {
    CUdeviceptr first = allocated(4 * MIB);
    Range range = pages_of(first, 4 * MIB);
    EXPECT_OK(cuMemFree(first));
    put(range, 5);
    EXPECT_OK(cuMemHostRegister(place(range.start), range.end - range.start, 3));
    EXPECT(has(range, 5));
    EXPECT(allocated(5 * MIB) != first);
    EXPECT(allocated(4 * MIB) == first && has(range, 0xa5a5a5a5));
}

const std::map<std::string, void (*)()> CASES = {
#define CASE(name) {#name, name}
    CASE(nothing_is_left),
    CASE(addresses_are_held),
    CASE(memory_is_kept),
    CASE(it_comes_back_where_it_was),
    CASE(what_is_allocated_later_is_elsewhere),
    CASE(ordinary_memory_can_take_its_place),
    CASE(held_addresses_are_used_whatever_lies_there),
};

} // namespace

int main(int count, char **arguments) {
    auto found = count == 3 ? CASES.find(arguments[2]) : CASES.end();
    if (found == CASES.end()) return fprintf(stderr, "usage: replaced WORDS.ptx CASE\n"), 2;
    ptx_path = arguments[1];
    CUcontext context;
    begin_with_device(context);
    found->second();
    end_well();
}
