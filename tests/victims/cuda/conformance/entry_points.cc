// Entry points by name and version.
#include "groups.h"

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
