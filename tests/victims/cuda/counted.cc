// Counts on a device, in memory of the kinds that it is told, and says what it has counted after each step: a checksum of all of it.
//
//   counted STEPS PAUSE_US KERNELS KIND...
//
// Each step changes every kind by kernels, copies and fills in two streams with an event between them, or by a graph. What is printed
// does not depend on time: of any two runs, lines with the same number are the same.
#include "expect.h"
#include "paced.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#define ok EXPECT_OK

namespace {

constexpr size_t WORDS = 1 << 18;
constexpr size_t BYTES = WORDS * 4;

// Takes a step, and gives a checksum of what there is then.
using Counter = std::function<uint64_t(uint32_t step)>;

struct Device {
    int number;
    CUcontext context;
    CUstream first, second;
    CUevent event;
    CUmodule module;
    CUfunction add_one, fill_words;
};

std::string kernels;

uint64_t mixed(uint64_t sum, const uint32_t *words, size_t count) {
    for (size_t at = 0; at < count; ++at) sum = sum * 1000003 + words[at];
    return sum;
}

Device begin(int number, bool primary) {
    Device device = {};
    device.number = number;
    if (primary) {
        ok(cuDevicePrimaryCtxRetain(&device.context, number));
        ok(cuCtxSetCurrent(device.context));
    } else {
        ok(cuCtxCreate(&device.context, nullptr, 0, number));
    }
    ok(cuStreamCreate(&device.first, CU_STREAM_NON_BLOCKING));
    ok(cuStreamCreate(&device.second, CU_STREAM_NON_BLOCKING));
    ok(cuEventCreate(&device.event, CU_EVENT_DISABLE_TIMING));
    ok(cuModuleLoad(&device.module, kernels.c_str()));
    ok(cuModuleGetFunction(&device.add_one, device.module, "add_one"));
    ok(cuModuleGetFunction(&device.fill_words, device.module, "fill_words"));
    return device;
}

void launch(const Device &device, CUfunction function, CUstream stream, std::vector<void *> parameters) {
    (void)device;
    ok(cuLaunchKernel(function, 4, 1, 1, 32, 1, 1, 0, stream, parameters.data(), nullptr));
}

// Waits until what the default stream was given is there: the other streams do not, and a copy may return before its bytes are.
void wait_for_default() { ok(cuStreamSynchronize(nullptr)); }

void put(CUdeviceptr memory, const void *content, size_t bytes) {
    ok(cuMemcpyHtoD(memory, content, bytes));
    wait_for_default();
}

// A part that moves on with the steps is filled in one stream; then all is added to in the other.
Counter of_memory(Device device, CUdeviceptr memory, size_t words) {
    ok(cuMemsetD32(memory, 7, words));
    wait_for_default();
    return [=](uint32_t step) {
        ok(cuCtxSetCurrent(device.context));
        size_t part = words / 16, from = step % 16 * part;
        CUdeviceptr place = memory + from * 4;
        uint64_t count = part, all = words;
        uint32_t value = step * 2654435761u;
        launch(device, device.fill_words, device.first, {&place, &count, &value});
        ok(cuEventRecord(device.event, device.first));
        ok(cuStreamWaitEvent(device.second, device.event, 0));
        CUdeviceptr start = memory;
        launch(device, device.add_one, device.second, {&start, &all});
        std::vector<uint32_t> words_there(words);
        ok(cuMemcpyDtoHAsync(words_there.data(), memory, words * 4, device.second));
        ok(cuStreamSynchronize(device.second));
        return mixed(0, words_there.data(), words);
    };
}

Counter plain(Device device) {
    CUdeviceptr memory;
    ok(cuMemAlloc(&memory, BYTES));
    return of_memory(device, memory, WORDS);
}

// Much memory, of which each step changes a little. Hardly two words of it are equal.
Counter large(Device device) {
    constexpr size_t MANY = 16 << 20, PART = 1 << 12;
    CUdeviceptr memory;
    ok(cuMemAlloc(&memory, MANY * 4));
    std::vector<uint32_t> words(MANY);
    uint32_t state = 1;
    for (uint32_t &word : words) word = state = state * 1664525 + 1013904223;
    put(memory, words.data(), MANY * 4);
    return [=](uint32_t step) {
        ok(cuCtxSetCurrent(device.context));
        CUdeviceptr place = memory + size_t(step % 64) * PART * 16;
        uint64_t count = PART;
        launch(device, device.add_one, device.first, {&place, &count});
        std::vector<uint32_t> there(MANY / 16);
        ok(cuStreamSynchronize(device.first));
        ok(cuMemcpyDtoH(there.data(), memory + size_t(step % 16) * MANY / 16 * 4, MANY / 16 * 4));
        return mixed(0, there.data(), there.size());
    };
}

Counter small(Device device) {
    CUdeviceptr memory;
    ok(cuMemAlloc(&memory, 3200));
    return of_memory(device, memory, 800);
}

Counter pitched(Device device) {
    CUdeviceptr memory;
    size_t pitch;
    ok(cuMemAllocPitch(&memory, &pitch, 1000, 64, 4));
    return of_memory(device, memory, pitch * 64 / 4);
}

Counter pooled(Device device) {
    CUdeviceptr memory;
    ok(cuMemAllocAsync(&memory, BYTES, device.first));
    ok(cuStreamSynchronize(device.first));
    return of_memory(device, memory, WORDS);
}

// Memory that two pools keep for later, the device's own and another one: nothing is in it, and it is used again at each step.
Counter idle(Device device) {
    CUmemoryPool own, other;
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device.number}};
    ok(cuDeviceGetDefaultMemPool(&own, device.number));
    ok(cuMemPoolCreate(&other, &properties));
    for (CUmemoryPool pool : {own, other}) {
        cuuint64_t all = UINT64_MAX;
        ok(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    }
    return [=](uint32_t step) {
        ok(cuCtxSetCurrent(device.context));
        uint64_t sum = 0;
        for (CUmemoryPool pool : {own, other}) {
            CUdeviceptr memory;
            uint32_t words[4];
            ok(cuMemAllocFromPoolAsync(&memory, 40 << 20, pool, device.first));
            ok(cuMemsetD32Async(memory, step, 10 << 20, device.first));
            ok(cuMemcpyDtoHAsync(words, memory + (39 << 20), sizeof words, device.first));
            ok(cuMemFreeAsync(memory, device.first));
            ok(cuStreamSynchronize(device.first));
            sum = mixed(sum, words, 4);
        }
        return sum;
    };
}

CUdeviceptr map_memory(Device device, bool exports) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device.number}};
    CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory;
    CUdeviceptr address;
    int descriptor;
    const size_t bytes = 2 << 20;
    ok(cuMemAddressReserve(&address, 2 * bytes, 0, 0, 0));
    ok(cuMemCreate(&memory, bytes, &properties, 0));
    if (exports) ok(cuMemExportToShareableHandle(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ok(cuMemMap(address, bytes, 0, memory, 0));
    ok(cuMemSetAccess(address, bytes, &access, 1));
    return address;
}

// Others may open it.
Counter mapped(Device device) { return of_memory(device, map_memory(device, false), WORDS); }

// Others may have opened it.
Counter shared(Device device) { return of_memory(device, map_memory(device, true), WORDS); }

// Allocated and freed in each step; what it holds is made of what was there before.
Counter fleeting(Device device) {
    uint32_t *carried = new uint32_t[WORDS / 4]();
    return [=](uint32_t step) {
        ok(cuCtxSetCurrent(device.context));
        CUdeviceptr memory;
        size_t words = WORDS / 8 + step % 5 * 1000;
        ok(cuMemAlloc(&memory, words * 4));
        put(memory, carried, words * 4);
        CUdeviceptr start = memory;
        uint64_t count = words;
        launch(device, device.add_one, device.first, {&start, &count});
        ok(cuStreamSynchronize(device.first));
        ok(cuMemcpyDtoH(carried, memory, words * 4));
        ok(cuMemFree(memory));
        return mixed(0, carried, words);
    };
}

// Memory of the host, which the device writes to.
Counter of_host(Device device, uint32_t *memory) {
    memset(memory, 0, 65536);
    return [=](uint32_t) {
        ok(cuCtxSetCurrent(device.context));
        CUdeviceptr place;
        ok(cuMemHostGetDevicePointer(&place, memory, 0));
        uint64_t count = 65536 / 4;
        launch(device, device.add_one, device.first, {&place, &count});
        ok(cuStreamSynchronize(device.first));
        return mixed(0, memory, 65536 / 4);
    };
}

Counter pinned(Device device) {
    void *memory;
    ok(cuMemHostAlloc(&memory, 65536, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
    return of_host(device, static_cast<uint32_t *>(memory));
}

Counter registered(Device device) {
    void *memory = aligned_alloc(4096, 65536);
    ok(cuMemHostRegister(memory, 65536, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE));
    return of_host(device, static_cast<uint32_t *>(memory));
}

Counter array(Device device) {
    CUDA_ARRAY_DESCRIPTOR shape = {64, 32, CU_AD_FORMAT_UNSIGNED_INT32, 1};
    CUarray array;
    ok(cuArrayCreate(&array, &shape));
    return [=](uint32_t step) {
        ok(cuCtxSetCurrent(device.context));
        std::vector<uint32_t> there(64 * 32);
        CUDA_MEMCPY2D copy = {};
        copy.WidthInBytes = 64 * 4, copy.Height = 32;
        if (step > 1) {
            copy.srcMemoryType = CU_MEMORYTYPE_ARRAY, copy.srcArray = array;
            copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = there.data(), copy.dstPitch = 64 * 4;
            ok(cuMemcpy2D(&copy));
        }
        for (uint32_t &word : there) word = word * 3 + step;
        CUDA_MEMCPY2D back = {};
        back.WidthInBytes = 64 * 4, back.Height = 32;
        back.srcMemoryType = CU_MEMORYTYPE_HOST, back.srcHost = there.data(), back.srcPitch = 64 * 4;
        back.dstMemoryType = CU_MEMORYTYPE_ARRAY, back.dstArray = array;
        ok(cuMemcpy2D(&back));
        return mixed(0, there.data(), there.size());
    };
}

// A graph that was recorded once and runs in each step, and has memory of its own while it runs.
Counter graph(Device device) {
    CUdeviceptr memory, out, own;
    ok(cuMemAlloc(&memory, BYTES));
    ok(cuMemAlloc(&out, BYTES));
    ok(cuMemsetD32(memory, 1, WORDS));
    wait_for_default();
    CUgraph graph;
    CUgraphExec runnable;
    ok(cuStreamBeginCapture(device.first, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUdeviceptr start = memory;
    uint64_t count = WORDS;
    for (int n = 0; n < 3; ++n) launch(device, device.add_one, device.first, {&start, &count});
    ok(cuMemAllocAsync(&own, BYTES, device.first));
    ok(cuMemcpyDtoDAsync(own, memory, BYTES, device.first));
    launch(device, device.add_one, device.first, {&own, &count});
    ok(cuMemcpyDtoDAsync(out, own, BYTES, device.first));
    ok(cuMemFreeAsync(own, device.first));
    ok(cuStreamEndCapture(device.first, &graph));
    ok(cuGraphInstantiate(&runnable, graph, 0));
    return [=](uint32_t) {
        ok(cuCtxSetCurrent(device.context));
        ok(cuGraphLaunch(runnable, device.second));
        std::vector<uint32_t> there(WORDS), written(WORDS);
        ok(cuMemcpyDtoHAsync(there.data(), memory, BYTES, device.second));
        ok(cuMemcpyDtoHAsync(written.data(), out, BYTES, device.second));
        ok(cuStreamSynchronize(device.second));
        return mixed(mixed(0, there.data(), WORDS), written.data(), WORDS);
    };
}

// Kernels of a second device write to memory of the first.
Counter peer(Device device) {
    Device other = begin(1, true);
    ok(cuCtxEnablePeerAccess(device.context, 0));
    ok(cuCtxSetCurrent(device.context));
    CUdeviceptr memory;
    ok(cuMemAlloc(&memory, BYTES));
    ok(cuMemsetD32(memory, 5, WORDS));
    wait_for_default();
    return [=](uint32_t) {
        ok(cuCtxSetCurrent(other.context));
        CUdeviceptr start = memory;
        uint64_t count = WORDS;
        launch(other, other.add_one, other.first, {&start, &count});
        ok(cuStreamSynchronize(other.first));
        std::vector<uint32_t> there(WORDS);
        ok(cuMemcpyDtoH(there.data(), memory, BYTES));
        ok(cuCtxSetCurrent(device.context));
        return mixed(0, there.data(), WORDS);
    };
}

Counter created(Device device) {
    Device other = begin(device.number, false);
    Counter counter = plain(other);
    ok(cuCtxSetCurrent(device.context));
    return [=](uint32_t step) {
        uint64_t sum = counter(step);
        ok(cuCtxSetCurrent(device.context));
        return sum;
    };
}

Counter managed(Device device) {
    CUdeviceptr memory;
    ok(cuMemAllocManaged(&memory, BYTES, CU_MEM_ATTACH_GLOBAL));
    return of_memory(device, memory, WORDS);
}

// As CUDA 13 has it.
Counter managed_pool(Device device) {
    CUmemPoolProps about = {};
    about.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
    about.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device.number}};
    CUmemoryPool pool;
    CUdeviceptr memory;
    ok(cuMemPoolCreate(&pool, &about));
    ok(cuMemAllocFromPoolAsync(&memory, BYTES, pool, device.first));
    ok(cuStreamSynchronize(device.first));
    return of_memory(device, memory, WORDS);
}

// The second half is a thread's of the host, which uses it all the time and calls nobody. What it finds is what it has left there.
Counter touched(Device device) {
    CUdeviceptr memory;
    ok(cuMemAllocManaged(&memory, BYTES, CU_MEM_ATTACH_GLOBAL));
    std::thread([words = reinterpret_cast<volatile uint32_t *>(memory + BYTES / 2)] {
        for (size_t at = 0; at < WORDS / 2; ++at) words[at] = 0;
        for (uint32_t round = 0;; ++round) {
            for (size_t at = 0; at < WORDS / 2; ++at) {
                EXPECT(words[at] == round);
                words[at] = round + 1;
            }
        }
    }).detach();
    return of_memory(device, memory, WORDS / 2);
}

// Much of it, in every page of which a thread of the host counts, all the time.
Counter wide(Device device) {
    constexpr size_t PAGES = 24 << 8, STEP = 4096 / 4;
    CUdeviceptr memory;
    ok(cuMemAllocManaged(&memory, PAGES * 4096, CU_MEM_ATTACH_GLOBAL));
    std::thread([words = reinterpret_cast<volatile uint32_t *>(memory)] {
        for (size_t page = 0; page < PAGES; ++page) words[page * STEP] = 0;
        for (uint32_t round = 0;; ++round) {
            for (size_t page = 0; page < PAGES; ++page) {
                EXPECT(words[page * STEP] == round);
                words[page * STEP] = round + 1;
            }
        }
    }).detach();
    return of_memory(device, memory + 4096 - 128, 32);
}

// Little of it, several on a page, of which one is freed and allocated again in each step.
Counter churned(Device device) {
    constexpr size_t WORDS_OF_EACH = 300;
    auto *all = new std::vector<CUdeviceptr>(7);
    for (CUdeviceptr &one : *all) {
        ok(cuMemAllocManaged(&one, WORDS_OF_EACH * 4, CU_MEM_ATTACH_GLOBAL));
        std::fill_n(reinterpret_cast<uint32_t *>(one), WORDS_OF_EACH, 3);
    }
    return [=](uint32_t step) {
        ok(cuCtxSetCurrent(device.context));
        CUdeviceptr &one = (*all)[step % all->size()];
        std::vector<uint32_t> carried(reinterpret_cast<uint32_t *>(one), reinterpret_cast<uint32_t *>(one) + WORDS_OF_EACH);
        ok(cuMemFree(one));
        ok(cuMemAllocManaged(&one, WORDS_OF_EACH * 4, CU_MEM_ATTACH_HOST));
        std::copy(carried.begin(), carried.end(), reinterpret_cast<uint32_t *>(one));
        uint64_t sum = 0;
        for (CUdeviceptr each : *all) {
            CUdeviceptr start;
            size_t bytes;
            ok(cuMemGetAddressRange(&start, &bytes, each + 8));
            EXPECT(start == each && bytes == WORDS_OF_EACH * 4);
            uint64_t count = WORDS_OF_EACH;
            launch(device, device.add_one, device.first, {&start, &count});
            ok(cuStreamSynchronize(device.first));
            sum = mixed(sum, reinterpret_cast<uint32_t *>(each), WORDS_OF_EACH);
        }
        return sum;
    };
}

// In a context of its own, which goes on when that of the other kinds ends, near the end.
Counter outlasting(Device device) {
    Device own = begin(device.number, false);
    Counter first = managed(own), second = churned(own);
    ok(cuCtxSetCurrent(device.context));
    return [=](uint32_t step) {
        if (step == 50) ok(cuDevicePrimaryCtxRelease(device.number));
        return first(step) * 31 + second(step);
    };
}

// What is advised of managed memory in each step, of pages and of others than before, and what holds of it.
Counter advised(Device device) {
    constexpr size_t PAGES = 64;
    using Advise = CUresult (*)(CUdeviceptr, size_t, CUmem_advise, int);
    auto older = reinterpret_cast<Advise>(dlsym(RTLD_DEFAULT, "cuMemAdvise"));
    auto *memory = new CUdeviceptr, *small = new CUdeviceptr;
    ok(cuMemAllocManaged(memory, (PAGES + 1) * 4096, CU_MEM_ATTACH_GLOBAL));
    ok(cuMemAllocManaged(small, 100, CU_MEM_ATTACH_GLOBAL));
    return [=](uint32_t step) {
        ok(cuCtxSetCurrent(device.context));
        auto whole_pages = [&] { return (*memory + 4095) / 4096 * 4096; }; // it may share others
        const CUmemLocation places[] = {
            {CU_MEM_LOCATION_TYPE_DEVICE, {0}}, {CU_MEM_LOCATION_TYPE_HOST, {0}}, {CU_MEM_LOCATION_TYPE_HOST_NUMA, {0}}};
        for (uint32_t number = 0; number < 4; ++number) {
            uint32_t chosen = (step * 4 + number) * 2654435761u >> 7;
            size_t first = chosen % PAGES, count = 1 + chosen / PAGES % (PAGES - first);
            auto advice = CUmem_advise(1 + chosen / 4096 % 6);
            bool has_node = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
            CUmemLocation place = places[chosen / 32768 % (has_node ? 3 : 2)];
            CUdeviceptr from = whole_pages() + first * 4096 + chosen % 4000;
            size_t bytes = count * 4096 - 4000;
            if (place.type != CU_MEM_LOCATION_TYPE_HOST_NUMA && chosen % 3 == 0)
                ok(older(from, bytes, advice, place.type == CU_MEM_LOCATION_TYPE_DEVICE ? 0 : CU_DEVICE_CPU));
            else
                ok(cuMemAdvise(from, bytes, advice, place));
        }
        if (step == 42) { // what is allocated here again, nothing was advised of
            ok(cuMemFree(*memory));
            ok(cuMemAllocManaged(memory, (PAGES + 1) * 4096, CU_MEM_ATTACH_GLOBAL));
        }
        ok(cuMemAdvise(*small, 100, step % 8 < 6 ? CU_MEM_ADVISE_SET_READ_MOSTLY : CU_MEM_ADVISE_UNSET_READ_MOSTLY, places[0]));
        uint64_t sum = 0;
        auto ask = [&](CUdeviceptr address, size_t bytes) {
            for (auto which : {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                               CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID}) {
                int answer;
                ok(cuMemRangeGetAttribute(&answer, sizeof answer, which, address, bytes));
                sum = sum * 31 + uint64_t(answer);
            }
            int by[3];
            ok(cuMemRangeGetAttribute(by, sizeof by, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, address, bytes));
            for (int answer : by) sum = sum * 31 + uint64_t(answer);
        };
        for (size_t page = 0; page < PAGES; ++page) ask(whole_pages() + page * 4096 + 3, 5);
        for (size_t page = 0; page + 4 < PAGES; page += 3) ask(whole_pages() + page * 4096, 4 * 4096 + 5);
        ask(whole_pages(), PAGES * 4096);
        ask(*small, 100);
        return sum;
    };
}

Counter advised_once(Device device) {
    CUdeviceptr memory;
    ok(cuMemAllocManaged(&memory, BYTES, CU_MEM_ATTACH_GLOBAL));
    ok(cuMemAdvise(memory, BYTES, CU_MEM_ADVISE_SET_READ_MOSTLY, {CU_MEM_LOCATION_TYPE_DEVICE, {0}}));
    return of_memory(device, memory, WORDS);
}

// So many that whoever looks at all for each of them does not come to an end. All have a page, and each step changes a hundred.
Counter many(Device device) {
    constexpr size_t COUNT = 10000, WORDS_OF_EACH = 1024;
    auto *all = new std::vector<CUdeviceptr>(COUNT);
    for (CUdeviceptr &one : *all) {
        ok(cuMemAllocManaged(&one, WORDS_OF_EACH * 4, CU_MEM_ATTACH_GLOBAL));
        std::fill_n(reinterpret_cast<uint32_t *>(one), WORDS_OF_EACH, uint32_t(&one - all->data()));
    }
    return [=](uint32_t step) {
        ok(cuCtxSetCurrent(device.context));
        for (size_t at = step; at < COUNT; at += COUNT / 100) ok(cuMemsetD32((*all)[at] + 64, step, 8));
        wait_for_default();
        uint64_t sum = 0;
        for (CUdeviceptr one : *all) sum = mixed(sum, reinterpret_cast<uint32_t *>(one + 60), 4);
        return sum;
    };
}

// Little of it, several on a page.
Counter few(Device device) {
    constexpr size_t WORDS_OF_EACH = 300;
    auto *all = new std::vector<CUdeviceptr>(7);
    for (CUdeviceptr &one : *all) {
        ok(cuMemAllocManaged(&one, WORDS_OF_EACH * 4, CU_MEM_ATTACH_GLOBAL));
        ok(cuMemsetD32(one, uint32_t(&one - all->data()), WORDS_OF_EACH));
    }
    wait_for_default();
    return [=](uint32_t step) {
        ok(cuCtxSetCurrent(device.context));
        uint64_t sum = 0;
        for (CUdeviceptr each : *all) {
            CUdeviceptr start = each;
            uint64_t count = WORDS_OF_EACH;
            launch(device, device.add_one, device.first, {&start, &count});
            ok(cuStreamSynchronize(device.first));
            reinterpret_cast<uint32_t *>(each)[step] += step;
            sum = mixed(sum, reinterpret_cast<uint32_t *>(each), WORDS_OF_EACH);
        }
        return sum;
    };
}

// Two threads that are in the heap half of the time, where they hold its locks.
Counter allocating(Device device) {
    for (size_t number = 0; number < 2; ++number) {
        std::thread([number] {
            std::vector<void *> held(64);
            for (size_t round = 0;; ++round) {
                void *&place = held[round * 7 % held.size()];
                free(place);
                size_t bytes = 1100 + (round * 977 + number) % 9000;
                place = malloc(bytes);
                memset(place, int(round), bytes);
            }
        }).detach();
    }
    return managed(device);
}

Counter exported(Device device) {
    CUdeviceptr memory;
    ok(cuMemAlloc(&memory, BYTES));
    CUipcMemHandle handle;
    ok(cuIpcGetMemHandle(&handle, memory));
    return of_memory(device, memory, WORDS);
}

// Others may have a file of it.
Counter in_a_file(Device device) {
    CUdeviceptr memory;
    int file;
    ok(cuMemAlloc(&memory, BYTES));
    ok(cuMemGetHandleForAddressRange(&file, memory, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    close(file);
    return of_memory(device, memory, WORDS);
}

Counter event_handle(Device device) {
    CUevent event;
    CUipcEventHandle handle;
    ok(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    ok(cuIpcGetEventHandle(&handle, event));
    return plain(device);
}

Counter pool_handle(Device device) {
    CUmemPoolProps about = {};
    about.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    about.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    about.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device.number}};
    CUmemoryPool pool;
    int file;
    ok(cuMemPoolCreate(&pool, &about));
    ok(cuMemPoolExportToShareableHandle(&file, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(file);
    return plain(device);
}

// Threads that count for themselves as fast as they can, and all have the same to say: one that has not is wrong.
Counter threads(Device device) {
    struct Worker {
        Counter counter;
        std::thread thread;
    };
    for (int number = 0; number < 3; ++number) {
        std::thread([=] {
            ok(cuCtxSetCurrent(device.context));
            Device own = begin(device.number, true);
            Counter first = plain(own), second = fleeting(own);
            std::vector<uint32_t> expected(WORDS, 7), carried(WORDS / 4);
            for (uint32_t step = 1;; ++step) {
                size_t part = WORDS / 16, from = step % 16 * part;
                for (size_t at = from; at < from + part; ++at) expected[at] = step * 2654435761u;
                for (uint32_t &word : expected) ++word;
                EXPECT(first(step) == mixed(0, expected.data(), WORDS));
                size_t words = WORDS / 8 + step % 5 * 1000;
                for (size_t at = 0; at < words; ++at) ++carried[at];
                EXPECT(second(step) == mixed(0, carried.data(), words));
            }
        }).detach();
    }
    return plain(device);
}

const std::map<std::string, Counter (*)(Device)> KINDS = {
    {"plain", plain},           {"small", small}, {"large", large}, {"pitched", pitched}, {"pooled", pooled},   {"mapped", mapped},
    {"fleeting", fleeting},     {"idle", idle},     {"array", array}, {"pinned", pinned},   {"graph", graph},     {"peer", peer},
    {"registered", registered}, {"created", created}, {"managed", managed}, {"managed_pool", managed_pool}, {"touched", touched},
    {"wide", wide}, {"churned", churned}, {"allocating", allocating}, {"outlasting", outlasting}, {"few", few}, {"many", many}, {"advised", advised}, {"advised_once", advised_once}, {"exported", exported}, {"shared", shared}, {"threads", threads},
    {"in_a_file", in_a_file}, {"event_handle", event_handle}, {"pool_handle", pool_handle},
};

} // namespace

int main(int argc, char **argv) {
    EXPECT(argc > 4);
    int steps = atoi(argv[1]), pause_us = atoi(argv[2]);
    kernels = argv[3];
    ok(cuInit(0));
    Device device = begin(0, true);
    std::vector<Counter> counters;
    for (int at = 4; at < argc; ++at) {
        auto found = KINDS.find(argv[at]);
        EXPECT(found != KINDS.end());
        counters.push_back(found->second(device));
    }
    for (int step = 1; step <= steps; ++step) {
        uint64_t sum = 0;
        for (Counter &counter : counters) sum = sum * 31 + counter(uint32_t(step));
        printf("step %d %016llx\n", step, (unsigned long long)sum);
        fflush(stdout);
        pause_after(step, pause_us);
    }
    puts("done");
    fflush(stdout);
    _exit(7);
}
