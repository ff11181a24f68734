// Asks a CUDA driver for everything that the double has, and says what it answers: the same on the double and on a real driver.
//
//   conformance KERNELS.ptx
//
// What is not the same on every machine is not said: addresses, times, names, how much there is of what. Nor is what the
// documentation leaves open. The groups that no driver's checkpoint takes with it come after those that are checkpointed.
#include <semaphore.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "trace.h"

extern char **environ;

namespace {

constexpr size_t MIB = 1 << 20;
CUdevice device;
CUcontext context;
std::string ptx_path, ptx;

void initialisation() {
    begin("initialisation");
    int count, version;
    CUcontext current;
    fact("the version is known before cuInit", cuDriverGetVersion(&version) == CUDA_SUCCESS && version >= 13000);
    SAY(cuDeviceGetCount(&count));
    SAY(cuCtxGetCurrent(&current));
    SAY(cuInit(1));
    SAY(cuInit(0));
    SAY(cuDeviceGetCount(&count));
    fact("there is a device", count > 0);
    SAY(cuDeviceGet(&device, 0));
    SAY(cuDeviceGet(&device, count));
    MUST(cuDeviceGet(&device, 0));
}

int device_attribute(CUdevice_attribute attribute) {
    int value = -1;
    MUST(cuDeviceGetAttribute(&value, attribute, device));
    return value;
}

void devices() {
    begin("devices");
    size_t total;
    char name[100];
    CUuuid uuid = {}, again = {};
    SAY(cuDeviceTotalMem(&total, device));
    fact("it has memory", total > 256 * MIB);
    SAY(cuDeviceGetName(name, sizeof name, device));
    fact("it has a name", name[0] != 0);
    SAY(cuDeviceGetUuid(&uuid, device));
    MUST(cuDeviceGetUuid(&again, device));
    fact("it is always the same", memcmp(&uuid, &again, sizeof uuid) == 0);
    number("unified addressing", device_attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING));
    number("virtual memory", device_attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED));
    number("descriptors as handles", device_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED));
    number("pools", device_attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED));
    number("managed memory", device_attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY));
    number("of host and device at once", device_attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS));
    number("compute mode", device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE));
    number("integrated", device_attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED));
    number("lanes of a warp", device_attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE));
}

void contexts() {
    begin("contexts");
    CUdeviceptr address;
    CUcontext first, second, popped;
    CUdevice which;
    unsigned flags;
    int is_active;
    size_t free, total;
    SAY(cuMemAlloc(&address, 256));
    SAY(cuMemGetInfo(&free, &total));
    SAY(cuCtxSynchronize());
    SAY(cuCtxPopCurrent(&popped));
    SAY(cuDevicePrimaryCtxGetState(device, &flags, &is_active));
    number("active", is_active);
    SAY(cuDevicePrimaryCtxRetain(&first, device));
    MUST(cuDevicePrimaryCtxGetState(device, &flags, &is_active));
    number("active", is_active);
    SAY(cuDevicePrimaryCtxRelease(device));
    MUST(cuDevicePrimaryCtxGetState(device, &flags, &is_active));
    number("active", is_active);

    SAY(cuCtxCreate(&first, nullptr, 0, device));
    SAY(cuCtxGetCurrent(&popped));
    fact("a new context is current", popped == first);
    MUST(cuCtxCreate(&second, nullptr, 0, device));
    SAY(cuCtxPopCurrent(&popped));
    fact("the newest comes off first", popped == second);
    SAY(cuCtxGetDevice(&which));
    fact("on its device", which == device);
    SAY(cuCtxPushCurrent(second));
    SAY(cuCtxDestroy(second));
    MUST(cuCtxGetCurrent(&popped));
    fact("below it is the one before", popped == first);
    SAY(cuCtxSetCurrent(nullptr));
    MUST(cuCtxGetCurrent(&popped));
    fact("then there is none", popped == nullptr);
    SAY(cuCtxDestroy(first));

    SAY(cuDevicePrimaryCtxRetain(&context, device));
    SAY(cuCtxSetCurrent(context));
    MUST(cuDevicePrimaryCtxRetain(&second, device));
    fact("a primary context is one for all", context == second);
    MUST(cuDevicePrimaryCtxRelease(device));
    SAY(cuCtxSynchronize());
}

void memory() {
    begin("memory");
    CUdeviceptr small, other, large, start;
    size_t before, after, total, bytes, pitch;
    SAY(cuMemAlloc(&small, 0));
    SAY(cuMemAlloc(&small, 1000));
    SAY(cuMemAlloc(&other, 1));
    fact("aligned", small % 256 == 0 && other % 256 == 0);
    MUST(cuMemGetInfo(&before, &total));
    fact("less is free than there is", before < total);
    SAY(cuMemAlloc(&large, 64 * MIB));
    MUST(cuMemGetInfo(&after, &total));
    fact("what is allocated is not free", before - after >= 64 * MIB);
    SAY(cuMemGetAddressRange(&start, &bytes, large + 5 * MIB));
    fact("found from inside", start == large && bytes >= 64 * MIB);
    SAY(cuMemFree(large + 512));
    SAY(cuMemFree(large));
    SAY(cuMemFree(large));
    MUST(cuMemGetInfo(&after, &total));
    fact("what was freed is free", after >= before);
    SAY(cuMemAlloc(&large, total + 1024 * MIB));
    SAY(cuMemAllocPitch(&large, &pitch, 1001, 7, 4));
    fact("rows fit and are aligned", pitch >= 1001 && pitch % 32 == 0);
    SAY(cuMemAllocPitch(&start, &pitch, 1001, 7, 3));
    MUST(cuMemFree(large));
    MUST(cuMemFree(small));
    MUST(cuMemFree(other));
}

void copies_and_fills() {
    begin("copies and fills");
    constexpr size_t COUNT = 10000;
    CUdeviceptr one, two;
    MUST(cuMemAlloc(&one, COUNT * 4));
    MUST(cuMemAlloc(&two, COUNT * 4));
    std::vector<uint32_t> words(COUNT);
    for (size_t at = 0; at < COUNT; ++at) words[at] = uint32_t(at * 2654435761u);
    SAY(cuMemcpyHtoD(one, words.data(), COUNT * 4));
    SAY(cuMemcpyDtoD(two, one, COUNT * 4));
    std::vector<uint32_t> back(COUNT);
    SAY(cuMemcpyDtoH(back.data(), two, COUNT * 4));
    fact("the same", back == words);
    SAY(cuMemcpy(one + 400, two, 4000));
    fact("the same, shifted", words_at(one + 400, 1000) == std::vector<uint32_t>(words.begin(), words.begin() + 1000));
    std::fill(back.begin(), back.end(), 0);
    SAY(cuMemcpy(reinterpret_cast<CUdeviceptr>(back.data()), two, COUNT * 4));
    fact("the same, at an address of the host", back == words);

    SAY(cuMemsetD32(one, 0x12345678, COUNT));
    fact("words", all_are(one, COUNT, 0x12345678));
    SAY(cuMemsetD16(one, 0xabcd, COUNT * 2));
    fact("halves", all_are(one, COUNT, 0xabcdabcd));
    SAY(cuMemsetD8(one, 0x5a, COUNT * 4));
    fact("bytes", all_are(one, COUNT, 0x5a5a5a5a));
    SAY(cuMemsetD2D8(one, 400, 0x11, 40, 3));
    fact("rows", all_are(one, 10, 0x11111111) && all_are(one + 40, 90, 0x5a5a5a5a) && all_are(one + 800, 10, 0x11111111) &&
                     all_are(one + 1200, 100, 0x5a5a5a5a));
    SAY(cuMemsetD32(one + 1, 0, 1));

    uint32_t word = 0;
    CUdeviceptr nowhere = 0x1000;
    SAY(cuMemcpyDtoH(&word, nowhere, 4));
    SAY(cuMemcpyHtoD(nowhere, &word, 4));
    MUST(cuMemFree(one));
    MUST(cuMemFree(two));
}

// A host function of a stream that waits until it is let go.
struct Brake {
    sem_t semaphore;
    Brake() { sem_init(&semaphore, 0, 0); }
    ~Brake() { sem_destroy(&semaphore); }
    void release() { sem_post(&semaphore); }
    static void wait(void *brake) {
        while (sem_wait(&static_cast<Brake *>(brake)->semaphore) != 0) {
        }
    }
};

void count_up(void *count) { ++*static_cast<int *>(count); }
void CUDA_CB count_callback(CUstream, CUresult, void *count) { ++*static_cast<int *>(count); }

void streams() {
    begin("streams and events");
    CUstream blocking, free, urgent;
    CUevent event, timed;
    CUdeviceptr words;
    unsigned flags;
    int least, greatest, priority, count = 0;
    float milliseconds;
    CUcontext of;
    MUST(cuMemAlloc(&words, 4096));
    SAY(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    SAY(cuStreamCreate(&free, CU_STREAM_NON_BLOCKING));
    SAY(cuStreamGetFlags(free, &flags));
    number("flags", flags);
    SAY(cuCtxGetStreamPriorityRange(&least, &greatest));
    fact("there are priorities", greatest < least);
    SAY(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, greatest));
    SAY(cuStreamGetPriority(urgent, &priority));
    fact("it has that", priority == greatest);
    SAY(cuStreamGetCtx(blocking, &of));
    fact("of this context", of == context);
    SAY(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    SAY(cuEventCreate(&timed, CU_EVENT_DEFAULT));
    SAY(cuEventQuery(event));
    SAY(cuStreamQuery(blocking));

    Brake brake;
    SAY(cuLaunchHostFunc(blocking, Brake::wait, &brake));
    SAY(cuStreamQuery(blocking));
    SAY(cuEventRecord(event, blocking));
    SAY(cuEventQuery(event));
    SAY(cuMemsetD32Async(words, 7, 16, free));
    SAY(cuStreamSynchronize(free));
    SAY(cuStreamWaitEvent(free, event, 0));
    SAY(cuMemsetD32Async(words, 8, 16, free));
    SAY(cuStreamQuery(free));
    SAY(cuMemsetD32Async(words + 1024, 9, 16, CU_STREAM_LEGACY));
    SAY(cuStreamQuery(CU_STREAM_LEGACY));
    brake.release();
    SAY(cuStreamSynchronize(free));
    SAY(cuEventSynchronize(event));
    SAY(cuEventQuery(event));
    SAY(cuCtxSynchronize());
    SAY(cuStreamQuery(blocking));
    fact("all was done", all_are(words, 16, 8) && all_are(words + 1024, 16, 9));

    SAY(cuLaunchHostFunc(blocking, count_up, &count));
    SAY(cuStreamAddCallback(blocking, count_callback, &count, 0));
    SAY(cuStreamSynchronize(blocking));
    number("called", count);
    SAY(cuEventElapsedTime(&milliseconds, timed, timed));
    SAY(cuEventRecord(timed, blocking));
    SAY(cuEventSynchronize(timed));
    SAY(cuEventElapsedTime(&milliseconds, timed, timed));
    fact("no time", milliseconds == 0);
    SAY(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    SAY(cuStreamSynchronize(nullptr));
    SAY(cuEventDestroy(event));
    SAY(cuEventDestroy(timed));
    SAY(cuStreamDestroy(blocking));
    SAY(cuStreamDestroy(free));
    SAY(cuStreamDestroy(urgent));
    MUST(cuMemFree(words));
}

void virtual_memory() {
    begin("virtual memory");
    CUmemAllocationProp about = {}, said = {};
    about.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    about.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    about.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemAccessDesc access = {about.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle first, second, retained;
    CUdeviceptr space, wanted;
    size_t unit, before, after, total;
    unsigned long long flags;
    SAY(cuMemGetAllocationGranularity(&unit, &about, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    SAY(cuMemAddressReserve(&space, 4 * unit, 0, 0, 0));
    fact("aligned", space % unit == 0);
    SAY(cuMemAddressReserve(&wanted, unit + 1, 0, 0, 0));
    MUST(cuMemGetInfo(&before, &total));
    SAY(cuMemCreate(&first, unit, &about, 0));
    SAY(cuMemCreate(&second, unit, &about, 0));
    SAY(cuMemCreate(&retained, unit + 1, &about, 0));
    MUST(cuMemGetInfo(&after, &total));
    fact("taken from the device", before - after >= 2 * unit);
    SAY(cuMemMap(space, unit, 0, first, 0));
    SAY(cuMemMap(space + unit, unit, 0, second, 0));
    SAY(cuMemMap(space, unit, 0, second, 0));
    SAY(cuMemGetAccess(&flags, &about.location, space));
    number("access", flags);
    SAY(cuMemSetAccess(space, 2 * unit, &access, 1));
    SAY(cuMemGetAccess(&flags, &about.location, space));
    number("access", flags);
    SAY(cuMemsetD32(space, 3, unit / 2));
    fact("used as one", all_are(space, unit / 2, 3));
    SAY(cuMemGetAllocationPropertiesFromHandle(&said, first));
    fact("as made", said.location.id == device && said.requestedHandleTypes == about.requestedHandleTypes);
    fact("reserved from", attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, space + unit) == space);
    fact("reserved in all", attribute<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, space + unit) == 4 * unit);
    SAY(cuMemRetainAllocationHandle(&retained, pointer<void>(space)));
    SAY(cuMemRelease(retained));
    SAY(cuMemRelease(first));
    SAY(cuMemRelease(second));
    fact("memory lives while it is mapped", all_are(space, unit / 2, 3));
    SAY(cuMemUnmap(space, 2 * unit));
    MUST(cuMemGetInfo(&after, &total));
    fact("then it is free", after >= before);

    MUST(cuMemCreate(&first, unit, &about, 0));
    MUST(cuMemMap(space + 2 * unit, unit, 0, first, 0));
    MUST(cuMemSetAccess(space + 2 * unit, unit, &access, 1));
    MUST(cuMemsetD32(space + 2 * unit, 5, unit / 4));
    SAY(cuMemUnmap(space + 2 * unit, unit));
    SAY(cuMemMap(space, unit, 0, first, 0));
    MUST(cuMemSetAccess(space, unit, &access, 1));
    fact("bytes go with the memory", all_are(space, unit / 4, 5));
    MUST(cuMemUnmap(space, unit));
    MUST(cuMemRelease(first));
    SAY(cuMemAddressFree(space, 4 * unit));
}

void host_memory() {
    begin("host memory");
    void *pinned, *mapped;
    CUdeviceptr seen, there;
    unsigned flags;
    SAY(cuMemAllocHost(&pinned, 5000));
    SAY(cuMemHostAlloc(&mapped, 5000, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    SAY(cuMemHostGetFlags(&flags, mapped));
    fact("portable", (flags & CU_MEMHOSTALLOC_PORTABLE) != 0);
    SAY(cuMemHostGetDevicePointer(&seen, mapped, 0));
    fact("at the same address", seen == reinterpret_cast<CUdeviceptr>(mapped));
    memset(pinned, 1, 5000);
    MUST(cuMemAlloc(&there, 5000));
    SAY(cuMemcpyHtoDAsync(there, pinned, 5000, nullptr));
    SAY(cuMemcpyDtoHAsync(mapped, there, 5000, nullptr));
    SAY(cuStreamSynchronize(nullptr));
    fact("there and back", memcmp(pinned, mapped, 5000) == 0);
    SAY(cuMemsetD8(seen, 2, 5000));
    fact("filled by the device", static_cast<char *>(mapped)[4999] == 2);
    SAY(cuMemFreeHost(pinned));
    SAY(cuMemFreeHost(mapped));

    void *own = aligned_alloc(4096, 8192);
    SAY(cuMemHostRegister(own, 8192, 0));
    SAY(cuMemHostRegister(own, 8192, 0));
    SAY(cuMemHostGetDevicePointer(&seen, own, 0));
    MUST(cuMemsetD8(seen, 3, 8192));
    fact("filled by the device", static_cast<char *>(own)[8191] == 3);
    SAY(cuMemHostUnregister(own));
    free(own);
    MUST(cuMemFree(there));
}

void launch(CUfunction function, unsigned threads, std::vector<void *> parameters, CUstream stream = nullptr) {
    MUST(cuLaunchKernel(function, 8, 1, 1, threads, 1, 1, 0, stream, parameters.data(), nullptr));
}

void modules() {
    begin("modules and kernels");
    CUmodule module, from_file;
    CUfunction fill, add, saxpy, list, none;
    CUdeviceptr words, variable;
    size_t bytes;
    int value;
    uint64_t count = 5000;
    uint32_t first = 41;
    SAY(cuModuleLoadData(&module, ptx.c_str()));
    SAY(cuModuleLoad(&from_file, ptx_path.c_str()));
    SAY(cuModuleUnload(from_file));
    SAY(cuModuleGetFunction(&none, module, "no_such_kernel"));
    SAY(cuModuleGetFunction(&fill, module, "fill_words"));
    SAY(cuModuleGetFunction(&add, module, "add_one"));
    SAY(cuModuleGetFunction(&saxpy, module, "saxpy"));
    SAY(cuModuleGetFunction(&list, module, "sum_list"));
    SAY(cuModuleGetGlobal(&variable, &bytes, module, "launches"));
    number("bytes", (long long)bytes);
    fact("zero at first", all_are(variable, 4, 0));
    SAY(cuModuleGetGlobal(&variable, &bytes, module, "no_such_variable"));
    SAY(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, fill));
    fact("a block of 64", value >= 64);
    SAY(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, fill, 64, 0));
    fact("one at least", value >= 1);

    MUST(cuMemAlloc(&words, count * 4));
    void *parameters[] = {&words, &count, &first};
    SAY(cuLaunchKernel(fill, 8, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr));
    SAY(cuLaunchKernel(fill, 0, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr));
    CUlaunchConfig how = {};
    how.gridDimX = 8, how.gridDimY = how.gridDimZ = 1, how.blockDimX = 32, how.blockDimY = how.blockDimZ = 1;
    SAY(cuLaunchKernelEx(&how, add, parameters, nullptr));
    SAY(cuCtxSynchronize());
    fact("filled, and one more", all_are(words, count, 42));

    CUdeviceptr x, y;
    float a = 2;
    std::vector<float> ones(1000, 1), threes(1000);
    MUST(cuMemAlloc(&x, 4000));
    MUST(cuMemAlloc(&y, 4000));
    MUST(cuMemcpyHtoD(x, ones.data(), 4000));
    MUST(cuMemcpyHtoD(y, ones.data(), 4000));
    count = 1000;
    launch(saxpy, 64, {&y, &x, &a, &count});
    MUST(cuMemcpyDtoH(threes.data(), y, 4000));
    fact("2 * 1 + 1", threes == std::vector<float>(1000, 3));

    // A list whose nodes know one another by their addresses on the device.
    CUdeviceptr nodes[3], sum;
    for (CUdeviceptr &node : nodes) MUST(cuMemAlloc(&node, 16));
    MUST(cuMemAlloc(&sum, 8));
    for (int at = 0; at < 3; ++at) {
        uint64_t node[2] = {at == 2 ? 0 : nodes[at + 1], uint64_t(at + 10)};
        MUST(cuMemcpyHtoD(nodes[at], node, 16));
    }
    launch(list, 1, {&nodes[0], &sum});
    number("sum", words_at(sum, 1)[0]);
    SAY(cuModuleUnload(module));
    for (CUdeviceptr address : {words, x, y, sum, nodes[0], nodes[1], nodes[2]}) MUST(cuMemFree(address));
}

void managed_variables() {
    begin("variables of modules and libraries");
    CUmodule module, of_library;
    CUlibrary library;
    CUfunction count_launch, function;
    CUkernel kernel;
    CUdeviceptr own, managed;
    size_t bytes;
    MUST(cuModuleLoadData(&module, ptx.c_str()));
    MUST(cuModuleGetFunction(&count_launch, module, "count_launch"));
    SAY(cuModuleGetGlobal(&managed, &bytes, module, "launches_managed"));
    number("bytes", (long long)bytes);
    MUST(cuModuleGetGlobal(&own, &bytes, module, "launches"));
    launch(count_launch, 32, {});
    launch(count_launch, 32, {});
    SAY(cuCtxSynchronize());
    number("counted on the device", words_at(own, 1)[0]);
    number("and where the host sees it", *pointer<uint32_t>(managed));
    fact("managed", attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, managed) == 1);
    fact("not managed", attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, own) == 0);

    SAY(cuLibraryLoadData(&library, ptx.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    SAY(cuLibraryGetKernel(&kernel, library, "count_launch"));
    SAY(cuLibraryGetKernel(&kernel, library, "no_such_kernel"));
    MUST(cuLibraryGetKernel(&kernel, library, "count_launch"));
    SAY(cuKernelGetFunction(&function, kernel));
    SAY(cuLibraryGetModule(&of_library, library));
    SAY(cuLibraryGetGlobal(&own, &bytes, library, "launches"));
    SAY(cuLibraryGetManaged(&managed, &bytes, library, "launches_managed"));
    number("bytes", (long long)bytes);
    launch(function, 32, {});
    launch(reinterpret_cast<CUfunction>(kernel), 32, {});
    launch(reinterpret_cast<CUfunction>(kernel), 32, {});
    SAY(cuCtxSynchronize());
    number("counted for the library", words_at(own, 1)[0]);
    number("and where the host sees it", *pointer<uint32_t>(managed));
    SAY(cuLibraryUnload(library));
    SAY(cuModuleUnload(module));
}

void managed() {
    begin("managed memory");
    CUmodule module;
    CUfunction add;
    CUdeviceptr words;
    uint64_t count = 1000;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, device}, host = {CU_MEM_LOCATION_TYPE_HOST, 0};
    MUST(cuModuleLoadData(&module, ptx.c_str()));
    MUST(cuModuleGetFunction(&add, module, "add_one"));
    SAY(cuMemAllocManaged(&words, 4000, CU_MEM_ATTACH_GLOBAL));
    SAY(cuMemAllocManaged(&words, 4000, 77));
    MUST(cuMemAllocManaged(&words, 4000, CU_MEM_ATTACH_GLOBAL));
    std::fill_n(pointer<uint32_t>(words), 1000, 6);
    SAY(cuMemAdvise(words, 4000, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
    SAY(cuMemPrefetchAsync(words, 4000, here, 0, nullptr));
    launch(add, 64, {&words, &count});
    SAY(cuMemPrefetchAsync(words, 4000, host, 0, nullptr));
    SAY(cuStreamSynchronize(nullptr));
    fact("the host sees what the device did", std::count(pointer<uint32_t>(words), pointer<uint32_t>(words) + 1000, 7u) == 1000);
    fact("managed", attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, words) == 1);
    fact("the host may use it", attribute<void *>(CU_POINTER_ATTRIBUTE_HOST_POINTER, words + 8) == pointer<void>(words + 8));
    SAY(cuMemFree(words));
    MUST(cuModuleUnload(module));
}

uint64_t pool_number(CUmemoryPool pool, CUmemPool_attribute which) {
    uint64_t value = 0;
    MUST(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

void pools() {
    begin("pools");
    CUmemoryPool standard, current, own;
    CUdeviceptr first, second;
    CUstream stream;
    CUmemPoolProps about = {};
    about.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    about.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    SAY(cuDeviceGetDefaultMemPool(&standard, device));
    SAY(cuDeviceGetMemPool(&current, device));
    fact("the default pool at first", current == standard);
    SAY(cuMemAllocAsync(&first, 10000, stream));
    SAY(cuMemsetD32Async(first, 4, 2500, stream));
    SAY(cuStreamSynchronize(stream));
    fact("usable", all_are(first, 2500, 4));
    fact("counted", pool_number(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= 10000);
    fact("reserved", pool_number(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 10000);
    fact("of this pool", attribute<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, first) == standard);
    SAY(cuMemFreeAsync(first, stream));
    SAY(cuStreamSynchronize(stream));
    number("used", (long long)pool_number(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    number("kept", (long long)pool_number(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));

    SAY(cuMemPoolCreate(&own, &about));
    uint64_t threshold = UINT64_MAX;
    SAY(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    fact("set", pool_number(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == threshold);
    SAY(cuMemAllocFromPoolAsync(&first, 4 * MIB, own, stream));
    SAY(cuMemFreeAsync(first, stream));
    MUST(cuStreamSynchronize(stream));
    fact("kept", pool_number(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 4 * MIB);
    SAY(cuMemPoolTrimTo(own, 0));
    number("kept", (long long)pool_number(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    CUmemAccess_flags access;
    SAY(cuMemPoolGetAccess(&access, own, &about.location));
    number("access", access);
    SAY(cuDeviceSetMemPool(device, own));
    SAY(cuMemAllocAsync(&first, 1000, stream));
    fact("of this pool", attribute<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, first) == own);
    SAY(cuMemAllocFromPoolAsync(&second, 1000, standard, stream));
    SAY(cuStreamSynchronize(stream));
    SAY(cuMemFree(first));
    SAY(cuMemFreeAsync(second, stream));
    SAY(cuMemPoolDestroy(own));
    MUST(cuDeviceGetMemPool(&current, device));
    fact("the default pool again", current == standard);
    SAY(cuStreamSynchronize(stream));
    MUST(cuStreamDestroy(stream));
}

void managed_pools() {
    begin("pools of managed memory");
    CUmemoryPool standard, plain, pool;
    CUdeviceptr words;
    CUmemLocation nowhere = {CU_MEM_LOCATION_TYPE_NONE, 0}, here = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    SAY(cuMemGetDefaultMemPool(&standard, &nowhere, CU_MEM_ALLOCATION_TYPE_MANAGED));
    SAY(cuMemGetMemPool(&pool, &nowhere, CU_MEM_ALLOCATION_TYPE_MANAGED));
    fact("the default pool at first", pool == standard);
    SAY(cuMemGetDefaultMemPool(&pool, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED));
    SAY(cuMemGetDefaultMemPool(&pool, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
    MUST(cuDeviceGetDefaultMemPool(&plain, device));
    fact("that of the device", pool == plain);
    SAY(cuMemAllocFromPoolAsync(&words, 4000, standard, nullptr));
    SAY(cuStreamSynchronize(nullptr));
    fact("managed", attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, words) == 1);
    *pointer<uint32_t>(words) = 12;
    number("the device reads what the host wrote", words_at(words, 1)[0]);
    SAY(cuMemFreeAsync(words, nullptr));
    SAY(cuStreamSynchronize(nullptr));
}

void pointers() {
    begin("pointers");
    CUdeviceptr one, two;
    void *pinned;
    unsigned on = 1;
    int local = 0;
    MUST(cuMemAlloc(&one, 3 * MIB));
    MUST(cuMemAlloc(&two, 3 * MIB));
    MUST(cuMemAllocHost(&pinned, 4096));
    CUdeviceptr inside = one + MIB, host = reinterpret_cast<CUdeviceptr>(pinned), unknown = reinterpret_cast<CUdeviceptr>(&local);
    number("memory of a device", attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
    number("memory of the host", attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host + 7));
    number("device", attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
    fact("its context", attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, inside) == context);
    fact("its address there", attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside) == inside);
    fact("its address here", attribute<void *>(CU_POINTER_ATTRIBUTE_HOST_POINTER, host + 7) == pointer<void>(host + 7));
    void *place;
    say("the host's address of memory of a device", cuPointerGetAttribute(&place, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside));
    fact("where it begins", attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside) == one);
    fact("how long it is", attribute<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside) >= 3 * MIB);
    fact("not managed", attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, inside) == 0);
    fact("of no pool", attribute<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, inside) == nullptr);
    fact("to be given to others", attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside) == 1);
    auto id = [](CUdeviceptr address) { return attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, address); };
    fact("one id for one allocation", id(one) == id(inside) && id(one) != id(two));
    SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, one));

    unsigned type = 5;
    CUdeviceptr start = 5;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    void *to[] = {&type, &start};
    SAY(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, unknown));
    SAY(cuPointerGetAttributes(2, which, to, inside));
    fact("both", type == CU_MEMORYTYPE_DEVICE && start == one);
    SAY(cuPointerGetAttributes(2, which, to, unknown));
    fact("zeros", type == 0 && start == 0);
    MUST(cuMemFree(one));
    MUST(cuMemFree(two));
    MUST(cuMemFreeHost(pinned));
}

void arrays() {
    begin("arrays");
    CUarray flat, block, level;
    CUmipmappedArray levels;
    CUDA_ARRAY_DESCRIPTOR shape = {50, 20, CU_AD_FORMAT_UNSIGNED_INT32, 1}, said = {};
    SAY(cuArrayCreate(&flat, &shape));
    SAY(cuArrayGetDescriptor(&said, flat));
    fact("as made", said.Width == 50 && said.Height == 20 && said.Format == shape.Format && said.NumChannels == 1);
    std::vector<uint32_t> there(1000), back(1000);
    for (size_t at = 0; at < 1000; ++at) there[at] = uint32_t(at);
    CUDA_MEMCPY2D in = {};
    in.srcMemoryType = CU_MEMORYTYPE_HOST, in.srcHost = there.data(), in.srcPitch = 200;
    in.dstMemoryType = CU_MEMORYTYPE_ARRAY, in.dstArray = flat, in.WidthInBytes = 200, in.Height = 20;
    SAY(cuMemcpy2D(&in));
    CUdeviceptr rows;
    size_t pitch;
    MUST(cuMemAllocPitch(&rows, &pitch, 200, 20, 4));
    CUDA_MEMCPY2D out = {};
    out.srcMemoryType = CU_MEMORYTYPE_ARRAY, out.srcArray = flat;
    out.dstMemoryType = CU_MEMORYTYPE_DEVICE, out.dstDevice = rows, out.dstPitch = pitch, out.WidthInBytes = 200, out.Height = 20;
    SAY(cuMemcpy2DAsync(&out, nullptr));
    SAY(cuStreamSynchronize(nullptr));
    number("a word of the last row", words_at(rows + 19 * pitch, 50)[7]);
    CUDA_MEMCPY2D part = {};
    part.srcMemoryType = CU_MEMORYTYPE_ARRAY, part.srcArray = flat, part.srcXInBytes = 40, part.srcY = 3;
    part.dstMemoryType = CU_MEMORYTYPE_HOST, part.dstHost = back.data(), part.dstPitch = 200, part.WidthInBytes = 8, part.Height = 2;
    SAY(cuMemcpy2D(&part));
    fact("a part", back[0] == 160 && back[1] == 161 && back[50] == 210 && back[51] == 211 && back[2] == 0);
    part.srcY = 19;
    SAY(cuMemcpy2D(&part));

    CUDA_ARRAY3D_DESCRIPTOR solid = {10, 10, 10, CU_AD_FORMAT_FLOAT, 1, 0};
    SAY(cuArray3DCreate(&block, &solid));
    CUDA_MEMCPY3D cube = {};
    cube.srcMemoryType = CU_MEMORYTYPE_HOST, cube.srcHost = there.data(), cube.srcPitch = 40, cube.srcHeight = 10;
    cube.dstMemoryType = CU_MEMORYTYPE_ARRAY, cube.dstArray = block, cube.WidthInBytes = 40, cube.Height = cube.Depth = 10;
    SAY(cuMemcpy3D(&cube));
    CUDA_MEMCPY3D core = {};
    core.srcMemoryType = CU_MEMORYTYPE_ARRAY, core.srcArray = block, core.srcXInBytes = 8, core.srcY = 3, core.srcZ = 4;
    core.dstMemoryType = CU_MEMORYTYPE_HOST, core.dstHost = back.data(), core.dstPitch = 40, core.dstHeight = 10;
    core.WidthInBytes = 4, core.Height = 1, core.Depth = 2;
    SAY(cuMemcpy3D(&core));
    fact("two of its words", back[0] == 432 && back[100] == 532);
    SAY(cuMipmappedArrayCreate(&levels, &solid, 2));
    SAY(cuMipmappedArrayGetLevel(&level, levels, 1));
    MUST(cuArray3DGetDescriptor(&solid, level));
    number("half as wide", (long long)solid.Width);
    SAY(cuMipmappedArrayDestroy(levels));
    SAY(cuArrayDestroy(flat));
    SAY(cuArrayDestroy(block));
    MUST(cuMemFree(rows));
}

void graphs() {
    begin("graphs");
    CUmodule module;
    CUfunction add;
    CUdeviceptr words, copy, inner;
    CUstream stream;
    CUgraph graph, captured;
    CUgraphExec exec;
    CUgraphNode fill_node, kernel_node, copy_node, alloc_node, free_node;
    CUstreamCaptureStatus status;
    uint64_t count = 100;
    size_t nodes;
    MUST(cuModuleLoadData(&module, ptx.c_str()));
    MUST(cuModuleGetFunction(&add, module, "add_one"));
    MUST(cuMemAlloc(&words, 400));
    MUST(cuMemAlloc(&copy, 400));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    SAY(cuGraphCreate(&graph, 0));
    CUDA_MEMSET_NODE_PARAMS fill = {words, 0, 20, 4, 100, 1};
    SAY(cuGraphAddMemsetNode(&fill_node, graph, nullptr, 0, &fill, context));
    void *parameters[] = {&words, &count};
    CUDA_KERNEL_NODE_PARAMS kernel = {};
    kernel.func = add, kernel.gridDimX = 2, kernel.gridDimY = kernel.gridDimZ = 1;
    kernel.blockDimX = 32, kernel.blockDimY = kernel.blockDimZ = 1, kernel.kernelParams = parameters;
    SAY(cuGraphAddKernelNode(&kernel_node, graph, &fill_node, 1, &kernel));
    CUDA_MEMCPY3D moved = {};
    moved.srcMemoryType = moved.dstMemoryType = CU_MEMORYTYPE_DEVICE, moved.srcDevice = words, moved.dstDevice = copy;
    moved.WidthInBytes = 400, moved.Height = moved.Depth = 1;
    SAY(cuGraphAddMemcpyNode(&copy_node, graph, &kernel_node, 1, &moved, context));
    SAY(cuGraphInstantiate(&exec, graph, 0));
    SAY(cuGraphLaunch(exec, stream));
    SAY(cuStreamSynchronize(stream));
    fact("filled, one more, copied", all_are(copy, 100, 21));
    SAY(cuGraphExecDestroy(exec));
    SAY(cuGraphDestroy(graph));

    MUST(cuGraphCreate(&graph, 0));
    CUDA_MEM_ALLOC_NODE_PARAMS memory = {};
    memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    memory.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    memory.bytesize = 400;
    SAY(cuGraphAddMemAllocNode(&alloc_node, graph, nullptr, 0, &memory));
    fact("it has an address", memory.dptr != 0);
    SAY(cuGraphAddMemFreeNode(&free_node, graph, &alloc_node, 1, memory.dptr));
    SAY(cuGraphInstantiate(&exec, graph, 0));
    SAY(cuGraphLaunch(exec, stream));
    SAY(cuStreamSynchronize(stream));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));

    SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY(cuStreamIsCapturing(stream, &status));
    number("status", status);
    SAY(cuMemsetD32Async(words, 30, 100, stream));
    SAY(cuLaunchKernel(add, 2, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
    SAY(cuMemAllocAsync(&inner, 400, stream));
    SAY(cuMemcpyDtoDAsync(inner, words, 400, stream));
    SAY(cuMemcpyDtoDAsync(copy, inner, 400, stream));
    SAY(cuMemFreeAsync(inner, stream));
    SAY(cuStreamEndCapture(stream, &captured));
    SAY(cuGraphGetNodes(captured, nullptr, &nodes));
    number("nodes", (long long)nodes);
    MUST(cuStreamIsCapturing(stream, &status));
    number("status", status);
    fact("nothing has run", all_are(copy, 100, 21));
    SAY(cuGraphInstantiate(&exec, captured, 0));
    SAY(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    SAY(cuGraphLaunch(exec, stream));
    SAY(cuStreamSynchronize(stream));
    fact("what was captured has run", all_are(copy, 100, 31));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(captured));
    MUST(cuStreamDestroy(stream));
    MUST(cuModuleUnload(module));
    MUST(cuMemFree(words));
    MUST(cuMemFree(copy));
}

void entry_points() {
    begin("entry points");
    void *function;
    CUdriverProcAddressQueryResult status;
    auto status_of = [&](const char *name, int version, cuuint64_t flags) {
        status = CUdriverProcAddressQueryResult(9);
        cuGetProcAddress(name, &function, version, flags, &status);
        return int(status);
    };
    constexpr cuuint64_t PER_THREAD = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    number("cuMemAlloc for 13.0", status_of("cuMemAlloc", 13000, 0));
    CUdeviceptr address = 0;
    SAY(reinterpret_cast<CUresult (*)(CUdeviceptr *, size_t)>(function)(&address, 1000));
    MUST(cuMemFree(address));
    number("cuMemAllocAsync for 11.1", status_of("cuMemAllocAsync", 11010, 0));
    number("cuMemAllocAsync for 11.2", status_of("cuMemAllocAsync", 11020, 0));
    number("no such name", status_of("cuNoSuchName", 13000, 0));
    status_of("cuMemcpyHtoD", 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    void *legacy = function;
    number("cuMemcpyHtoD", status_of("cuMemcpyHtoD", 13000, PER_THREAD));
    fact("another for a default stream of each thread", function != legacy);
    status_of("cuCtxCreate", 11000, 0);
    void *older = function;
    number("cuCtxCreate", status_of("cuCtxCreate", 13000, 0));
    fact("another for a newer version", function != older);
    const char *name;
    SAY(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
    fact("its name", strcmp(name, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
    SAY(cuGetErrorName(CUresult(99999), &name));
}

CUprocessState state() {
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    MUST(cuCheckpointProcessGetState(getpid(), &state));
    return state;
}

void checkpoints() {
    begin("checkpoint");
    CUdeviceptr words;
    void *pinned;
    CUstream stream;
    CUcheckpointLockArgs lock = {};
    CUcheckpointCheckpointArgs checkpoint = {};
    CUcheckpointRestoreArgs restore = {};
    CUcheckpointUnlockArgs unlock = {};
    int tid = 0, pid = getpid();
    MUST(cuMemAlloc(&words, 40000));
    MUST(cuMemsetD32(words, 0xfeed, 10000));
    MUST(cuMemAllocHost(&pinned, 4096));
    memset(pinned, 9, 4096);
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    number("state", state());
    SAY(cuCheckpointProcessGetRestoreThreadId(pid, &tid));
    fact("there is one", tid != 0);
    SAY(cuCheckpointProcessUnlock(pid, &unlock));
    SAY(cuCheckpointProcessCheckpoint(pid, &checkpoint));
    lock.timeoutMs = 10000;
    SAY(cuCheckpointProcessLock(pid, &lock));
    number("state", state());
    SAY(cuCheckpointProcessRestore(pid, &restore));
    SAY(cuCheckpointProcessCheckpoint(pid, &checkpoint));
    number("state", state());
    SAY(cuCheckpointProcessUnlock(pid, &unlock));
    SAY(cuCheckpointProcessRestore(pid, &restore));
    number("state", state());
    SAY(cuCheckpointProcessUnlock(pid, &unlock));
    number("state", state());
    fact("memory as before", all_are(words, 10000, 0xfeed));
    fact("pinned memory as before", static_cast<char *>(pinned)[4095] == 9);
    SAY(cuMemsetD32Async(words, 1, 10000, stream));
    SAY(cuStreamSynchronize(stream));
    fact("the stream still works", all_are(words, 10000, 1));
    MUST(cuStreamDestroy(stream));
    MUST(cuMemFreeHost(pinned));
    MUST(cuMemFree(words));
}

// The other process: has a handle of legacy IPC, and a descriptor.
int other_process(const char *handle_in_hex, int descriptor) {
    CUipcMemHandle handle;
    for (size_t at = 0; at < sizeof handle; ++at) {
        unsigned byte;
        sscanf(handle_in_hex + 2 * at, "%2x", &byte);
        handle.reserved[at] = char(byte);
    }
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    CUdeviceptr words, space;
    say("other: cuIpcOpenMemHandle", cuIpcOpenMemHandle(&words, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    fact("other: it reads what was written", all_are(words, 250, 0xabc));
    MUST(cuMemsetD32(words, 0xdef, 250));
    say("other: cuIpcCloseMemHandle", cuIpcCloseMemHandle(words));

    CUmemGenericAllocationHandle memory;
    void *shared = reinterpret_cast<void *>(intptr_t(descriptor));
    say("other: cuMemImportFromShareableHandle",
        cuMemImportFromShareableHandle(&memory, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemAddressReserve(&space, 2 * MIB, 0, 0, 0));
    MUST(cuMemMap(space, 2 * MIB, 0, memory, 0));
    MUST(cuMemSetAccess(space, 2 * MIB, &access, 1));
    fact("other: it reads what was written", all_are(space, 250, 0x123));
    MUST(cuMemsetD32(space, 0x456, 250));
    MUST(cuCtxSynchronize());
    return 0;
}

void other_processes() {
    begin("another process");
    CUdeviceptr words, space;
    CUipcMemHandle handle;
    CUmemGenericAllocationHandle memory, imported;
    int descriptor = -1;
    MUST(cuMemAlloc(&words, 1000));
    MUST(cuMemsetD32(words, 0xabc, 250));
    SAY(cuIpcGetMemHandle(&handle, words));
    CUmemAllocationProp about = {};
    about.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    about.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    about.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemAccessDesc access = {about.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemAddressReserve(&space, 4 * MIB, 0, 0, 0));
    MUST(cuMemCreate(&memory, 2 * MIB, &about, 0));
    MUST(cuMemMap(space, 2 * MIB, 0, memory, 0));
    MUST(cuMemSetAccess(space, 2 * MIB, &access, 1));
    MUST(cuMemsetD32(space, 0x123, 250));
    fact("not for legacy IPC", attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, space) == 0);
    SAY(cuMemExportToShareableHandle(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    void *shared = reinterpret_cast<void *>(intptr_t(descriptor));
    SAY(cuMemImportFromShareableHandle(&imported, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    SAY(cuMemMap(space + 2 * MIB, 2 * MIB, 0, imported, 0));
    MUST(cuMemSetAccess(space + 2 * MIB, 2 * MIB, &access, 1));
    fact("the same memory twice", all_are(space + 2 * MIB, 250, 0x123));

    std::string hex;
    for (char byte : handle.reserved) {
        char digits[3];
        snprintf(digits, sizeof digits, "%02x", (unsigned char)byte);
        hex += digits;
    }
    MUST(cuCtxSynchronize());
    fflush(stdout);
    std::string number = std::to_string(dup(descriptor)); // one that the other process inherits
    std::string words_of[] = {"conformance", "--other", hex, number};
    char *arguments[] = {words_of[0].data(), words_of[1].data(), words_of[2].data(), words_of[3].data(), nullptr};
    pid_t other;
    int status = -1;
    fact("it starts", posix_spawn(&other, "/proc/self/exe", nullptr, nullptr, arguments, environ) == 0);
    fact("it ends", waitpid(other, &status, 0) == other && status == 0);
    fact("what it wrote is here", all_are(words, 250, 0xdef) && all_are(space, 250, 0x456));
    close(descriptor);
    MUST(cuMemUnmap(space, 4 * MIB));
    MUST(cuMemRelease(memory));
    MUST(cuMemRelease(imported));
    MUST(cuMemAddressFree(space, 4 * MIB));
    MUST(cuMemFree(words));
}

// False if it cannot be read.
bool read_kernels(const char *path) {
    FILE *file = fopen(path, "r");
    if (file == nullptr) return false;
    ptx_path = path;
    for (int letter; (letter = fgetc(file)) != EOF;) ptx += char(letter);
    return fclose(file) == 0;
}

} // namespace

int main(int count, char **arguments) {
    if (count == 4 && strcmp(arguments[1], "--other") == 0) return other_process(arguments[2], atoi(arguments[3]));
    if (count != 2 || !read_kernels(arguments[1])) return fprintf(stderr, "usage: conformance KERNELS.ptx\n"), 2;
    initialisation();
    devices();
    contexts();
    memory();
    copies_and_fills();
    streams();
    host_memory();
    virtual_memory();
    pointers();
    arrays();
    pools();
    entry_points();
    checkpoints();
    modules();
    graphs();
    managed();
    managed_pools();
    managed_variables();
    other_processes();
    begin("end");
    SAY(cuDevicePrimaryCtxRelease(device));
    return 0;
}
