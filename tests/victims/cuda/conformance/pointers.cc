// What is said of a pointer.
#include "groups.h"

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
    number("its type", type);
    fact("it begins nowhere", start == 0);
    MUST(cuMemFree(one));
    MUST(cuMemFree(two));
    MUST(cuMemFreeHost(pinned));
}
