// Addresses and memory that the program puts together itself.
#include "groups.h"

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
    // To unmap does not wait for it.
    MUST(cuStreamSynchronize(nullptr));
    SAY(cuMemUnmap(space + 2 * unit, unit));
    SAY(cuMemMap(space, unit, 0, first, 0));
    MUST(cuMemSetAccess(space, unit, &access, 1));
    fact("bytes go with the memory", all_are(space, unit / 4, 5));
    MUST(cuMemUnmap(space, unit));
    MUST(cuMemRelease(first));
    SAY(cuMemAddressFree(space, 4 * unit));
}
