// Allocates memory of every kind through the CUDA driver, whose functions it gets in the way that the first argument
// says; the second is the driver's path. After each line of output but the last it waits for SIGUSR2.
#include "waits.h"

#include <cuda.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

static const char *way, *driver;
static void *library;

static bool is(const char *name) { return strcmp(way, name) == 0; }

// A function by the name of its symbol, or by the name and version that cuGetProcAddress wants.
static void *find(const char *symbol, const char *base, int version, void *linked) {
    void *found = nullptr;
    if (is("linked")) return linked;
    if (is("dlsym")) return dlsym(library, symbol);
    if (is("default")) return dlsym(RTLD_DEFAULT, symbol);
    if (is("dlvsym")) return dlvsym(library, symbol, "DOUBLE_1");
    if (is("first")) {
        using First = CUresult (*)(const char *, void **, int, cuuint64_t);
        auto get = reinterpret_cast<First>(dlsym(library, "cuGetProcAddress"));
        expect(get && get(base, &found, version, 0) == CUDA_SUCCESS);
        return found;
    }
    // By way of the function that it gives for its own name, as the runtime does.
    using Second = CUresult (*)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    auto get = reinterpret_cast<Second>(dlsym(library, "cuGetProcAddress_v2"));
    CUdriverProcAddressQueryResult status;
    expect(get && get("cuGetProcAddress", &found, 12000, 0, &status) == CUDA_SUCCESS && found);
    get = reinterpret_cast<Second>(found);
    cuuint64_t flags = is("per thread") ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
    // Streams of one thread came with CUDA 7.
    if (is("per thread") && version < 7000) version = 7000;
    expect(get(base, &found, is("newer") ? 13020 : version, flags, &status) == CUDA_SUCCESS);
    return found;
}

// Its symbol is what the header makes of the name.
#define TEXT(name) #name
#define SYMBOL(name) TEXT(name)
#define GET(name, version)                                                                                             \
    auto my_##name = reinterpret_cast<decltype(&name)>(                                                                \
        find(SYMBOL(name), #name, version, is("linked") ? reinterpret_cast<void *>(&name) : nullptr));                 \
    expect(my_##name)

static const char image[] = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .global .align 8 .b8 table[4096];\n";

int main(int argc, char **argv) {
    expect(argc == 3);
    way = argv[1], driver = argv[2];
    wait_by_signal();
    library = dlopen(driver, RTLD_NOW | (is("default") ? RTLD_GLOBAL : RTLD_LOCAL));
    expect(library);
    GET(cuInit, 2000);
    GET(cuDevicePrimaryCtxRetain, 7000);
    GET(cuDevicePrimaryCtxRelease, 11000);
    GET(cuCtxSetCurrent, 4000);
    GET(cuMemAlloc, 3020);
    GET(cuMemAllocPitch, 3020);
    GET(cuMemAllocManaged, 6000);
    GET(cuMemFree, 3020);
    GET(cuMemAllocHost, 3020);
    GET(cuMemHostAlloc, 2020);
    GET(cuMemFreeHost, 2000);
    GET(cuMemHostRegister, 6050);
    GET(cuMemHostUnregister, 4000);
    GET(cuMemAllocAsync, 11020);
    GET(cuMemPoolCreate, 11020);
    GET(cuMemPoolDestroy, 11020);
    GET(cuMemAllocFromPoolAsync, 11020);
    GET(cuMemFreeAsync, 11020);
    GET(cuMemAddressReserve, 10020);
    GET(cuMemAddressFree, 10020);
    GET(cuMemCreate, 10020);
    GET(cuMemRelease, 10020);
    GET(cuMemMap, 10020);
    GET(cuMemUnmap, 10020);
    GET(cuMemSetAccess, 10020);
    GET(cuArrayCreate, 3020);
    GET(cuArrayDestroy, 2000);
    GET(cuModuleLoadData, 2000);
    GET(cuModuleGetGlobal, 3020);
    GET(cuModuleUnload, 2000);
    GET(cuStreamCreate, 2000);
    GET(cuStreamSynchronize, 2000);
    GET(cuStreamDestroy, 4000);
    GET(cuMemcpyHtoD, 3020);
    GET(cuMemcpyDtoH, 3020);

    CUcontext context;
    CUdeviceptr plain, small, pitched, managed, pooled, of_pool, managed_pooled, reserved, global;
    size_t pitch, global_bytes;
    void *pinned, *pinned_too, *own = aligned_alloc(4096, 40960);
    CUstream stream;
    CUmemoryPool pool, managed_pool;
    CUmemGenericAllocationHandle physical;
    CUarray array;
    CUmodule module;
    expect(my_cuInit(0) == CUDA_SUCCESS && my_cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    // What fails is recorded nowhere: there is no context yet.
    expect(my_cuMemAlloc(&plain, 1000) == CUDA_ERROR_INVALID_CONTEXT);
    expect(my_cuCtxSetCurrent(context) == CUDA_SUCCESS && my_cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
    expect(my_cuMemAlloc(&plain, size_t(1) << 50) == CUDA_ERROR_OUT_OF_MEMORY);
    expect(my_cuMemAlloc(&plain, 0) == CUDA_ERROR_INVALID_VALUE);

    expect(my_cuMemAlloc(&plain, 10000000) == CUDA_SUCCESS);
    expect(my_cuMemAlloc(&small, 100) == CUDA_SUCCESS);
    expect(my_cuMemAllocPitch(&pitched, &pitch, 1000, 300, 4) == CUDA_SUCCESS);
    expect(my_cuMemAllocManaged(&managed, 3000000, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    expect(my_cuMemAllocHost(&pinned, 200000) == CUDA_SUCCESS);
    expect(my_cuMemHostAlloc(&pinned_too, 300000, CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS);
    expect(my_cuMemHostRegister(own, 40960, 0) == CUDA_SUCCESS);
    expect(my_cuMemAllocAsync(&pooled, 500000, stream) == CUDA_SUCCESS);
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 };
    expect(my_cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS);
    expect(my_cuMemAllocFromPoolAsync(&of_pool, 600000, pool, stream) == CUDA_SUCCESS);
    properties.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
    expect(my_cuMemPoolCreate(&managed_pool, &properties) == CUDA_SUCCESS);
    expect(my_cuMemAllocFromPoolAsync(&managed_pooled, 700000, managed_pool, stream) == CUDA_SUCCESS);
    const size_t mapped_bytes = size_t(4) << 20;
    CUmemAllocationProp physical_properties = {};
    physical_properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    physical_properties.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 };
    CUmemAccessDesc access = { physical_properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    expect(my_cuMemAddressReserve(&reserved, 2 * mapped_bytes, 0, 0, 0) == CUDA_SUCCESS);
    expect(my_cuMemCreate(&physical, mapped_bytes, &physical_properties, 0) == CUDA_SUCCESS);
    expect(my_cuMemMap(reserved, mapped_bytes, 0, physical, 0) == CUDA_SUCCESS);
    expect(my_cuMemSetAccess(reserved, mapped_bytes, &access, 1) == CUDA_SUCCESS);
    CUDA_ARRAY_DESCRIPTOR shape = { 64, 32, CU_AD_FORMAT_FLOAT, 1 };
    expect(my_cuArrayCreate(&array, &shape) == CUDA_SUCCESS);
    expect(my_cuModuleLoadData(&module, image) == CUDA_SUCCESS);
    expect(my_cuModuleGetGlobal(&global, &global_bytes, module, "table") == CUDA_SUCCESS && global_bytes == 4096);

    // It is memory: what is written is read.
    const CUdeviceptr places[] = { plain, small, pitched, managed, pooled, of_pool, managed_pooled, reserved, global };
    expect(my_cuStreamSynchronize(stream) == CUDA_SUCCESS);
    for (CUdeviceptr place : places) {
        uint64_t written = place ^ 0x123456789, read = 0;
        expect(my_cuMemcpyHtoD(place, &written, sizeof written) == CUDA_SUCCESS);
        expect(my_cuMemcpyDtoH(&read, place, sizeof read) == CUDA_SUCCESS && read == written);
    }
    // A pointer into an allocation frees nothing.
    expect(my_cuMemFree(plain + 512) == CUDA_ERROR_INVALID_VALUE);
    wait_after("allocated");

    expect(my_cuMemFree(plain) == CUDA_SUCCESS && my_cuMemFree(small) == CUDA_SUCCESS);
    expect(my_cuMemFree(pitched) == CUDA_SUCCESS && my_cuMemFree(managed) == CUDA_SUCCESS);
    expect(my_cuMemFreeHost(pinned) == CUDA_SUCCESS && my_cuMemFreeHost(pinned_too) == CUDA_SUCCESS);
    expect(my_cuMemHostUnregister(own) == CUDA_SUCCESS);
    expect(my_cuMemFreeAsync(pooled, stream) == CUDA_SUCCESS && my_cuMemFreeAsync(of_pool, stream) == CUDA_SUCCESS);
    expect(my_cuMemFreeAsync(managed_pooled, stream) == CUDA_SUCCESS);
    expect(my_cuStreamSynchronize(stream) == CUDA_SUCCESS);
    expect(my_cuMemUnmap(reserved, mapped_bytes) == CUDA_SUCCESS && my_cuMemRelease(physical) == CUDA_SUCCESS);
    expect(my_cuMemAddressFree(reserved, 2 * mapped_bytes) == CUDA_SUCCESS);
    expect(my_cuArrayDestroy(array) == CUDA_SUCCESS && my_cuModuleUnload(module) == CUDA_SUCCESS);
    expect(my_cuMemPoolDestroy(pool) == CUDA_SUCCESS && my_cuMemPoolDestroy(managed_pool) == CUDA_SUCCESS);
    wait_after("freed");

    // What is not freed goes with its context.
    expect(my_cuMemAlloc(&plain, 1 << 20) == CUDA_SUCCESS);
    wait_after("one more");
    expect(my_cuStreamDestroy(stream) == CUDA_SUCCESS && my_cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
    wait_after("no context");
    puts("done");
}
