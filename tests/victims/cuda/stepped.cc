// Memory of every kind on a device, whose content follows from the step (tests/suites/cuda_data.rs has the same formulas).
// Each step but the first waits for SIGUSR2.
#include "waits.h"

#include <cuda.h>

#include <cstdint>
#include <vector>

static const char image[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                            ".visible .global .align 8 .b8 table[4096];\n";

static const size_t MIB = size_t(1) << 20;
static const uint32_t WORDS = 1 << 21;

#define good(call) expect((call) == CUDA_SUCCESS)

struct Memory {
    CUdeviceptr address;
    size_t bytes;
    int factor;
};

static void fill(const Memory &memory, int step) {
    std::vector<uint8_t> content(memory.bytes);
    for (size_t n = 0; n < memory.bytes; ++n) content[n] = uint8_t(n * memory.factor + (n >> 8) + step);
    good(cuMemcpyHtoD(memory.address, content.data(), memory.bytes));
}

// Physical memory of the program's own, which may be exportable.
static CUdeviceptr map(size_t bytes, bool exportable) {
    CUmemAllocationProp about = {};
    about.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    about.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 };
    about.requestedHandleTypes = exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    CUmemGenericAllocationHandle physical;
    CUdeviceptr address;
    good(cuMemCreate(&physical, bytes, &about, 0));
    good(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    good(cuMemMap(address, bytes, 0, physical, 0));
    CUmemAccessDesc access = { about.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    good(cuMemSetAccess(address, bytes, &access, 1));
    good(cuMemRelease(physical));
    return address;
}

int main() {
    wait_by_signal();
    CUcontext context;
    good(cuInit(0));
    good(cuDevicePrimaryCtxRetain(&context, 0));
    good(cuCtxSetCurrent(context));

    CUdeviceptr grid, small, managed, pooled, table, twin;
    good(cuMemAlloc(&grid, WORDS * 4));
    good(cuMemAlloc(&small, 3000));
    good(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
    good(cuMemAllocAsync(&pooled, 500000, nullptr));
    good(cuStreamSynchronize(nullptr));
    CUmodule module;
    size_t table_bytes;
    good(cuModuleLoadData(&module, image));
    good(cuModuleGetGlobal(&table, &table_bytes, module, "table"));
    void *pinned;
    good(cuMemAllocHost(&pinned, 300000));
    CUDA_ARRAY_DESCRIPTOR shape = { 32, 16, CU_AD_FORMAT_FLOAT, 1 };
    CUarray array;
    good(cuArrayCreate(&array, &shape));
    twin = map(2 * MIB, true);
    CUdeviceptr hidden = map(4 * MIB, false);

    std::vector<uint32_t> first(WORDS);
    for (uint32_t word = 0; word < WORDS; ++word) first[word] = word * 2654435761u;
    good(cuMemcpyHtoD(grid, first.data(), WORDS * 4));
    good(cuMemcpyHtoD(twin, first.data(), 2 * MIB));
    std::vector<Memory> others = { { small, 3000, 31 }, { managed, MIB, 7 }, { pooled, 500000, 13 },
                                   { table, table_bytes, 3 }, { hidden, 4 * MIB, 5 } };
    for (const Memory &other : others) fill(other, 1);
    for (int n = 0; n < 300000; ++n) static_cast<uint8_t *>(pinned)[n] = uint8_t(n * 11 + 1);
    wait_after("step 1");

    for (uint32_t step = 2; step <= 6; ++step) {
        for (uint32_t n = 0; n < 50; ++n) {
            uint32_t word = step * 1000 + n;
            good(cuMemcpyHtoD(grid + (step * 7919u + n * 104729u) % WORDS * 4, &word, 4));
        }
        if (step >= 3)
            for (const Memory &other : others) fill(other, int(step));
        if (step == 4) {
            good(cuMemFree(small));
            others.erase(others.begin());
            good(cuMemAlloc(&small, 5000));
            others.push_back({ small, 5000, 31 });
            fill(others.back(), 4);
        }
        char line[16];
        snprintf(line, sizeof line, "step %u", step);
        wait_after(line);
    }
    uint32_t last;
    good(cuMemcpyDtoH(&last, grid + (6 * 7919u) % WORDS * 4, 4));
    expect(last == 6000);
    puts("done");
}
