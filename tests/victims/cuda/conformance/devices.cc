// Devices and contexts.
#include "groups.h"

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

static int device_attribute(CUdevice_attribute attribute) {
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
