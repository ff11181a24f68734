// Managed memory, and pools of both kinds.
#include "groups.h"

#include <algorithm>

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

static uint64_t pool_number(CUmemoryPool pool, CUmemPool_attribute which) {
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
