// A CUDA driver that only writes down what it is asked for: name, version and flags of each query, and the library that
// asks. What it gives out does nothing and fails.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

static CUresult nothing() { return CUDA_ERROR_NOT_SUPPORTED; }
static CUresult newer() { return CUDA_ERROR_UNKNOWN; }

static void write_down(const char *name, int version, cuuint64_t flags, const void *caller) {
    static FILE *file = getenv("QUERIES") ? fopen(getenv("QUERIES"), "w") : nullptr;
    if (!file) return;
    Dl_info object = {};
    dladdr(caller, &object);
    const char *slash = object.dli_fname ? strrchr(object.dli_fname, '/') : nullptr;
    fprintf(file, "%s %d %llu %s\n", name, version, static_cast<unsigned long long>(flags), slash ? slash + 1 : "-");
    fflush(file);
}

#undef cuGetProcAddress
extern "C" {
CUresult cuGetProcAddress_v2(const char *name, void **address, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    write_down(name, version, flags, __builtin_return_address(0));
    *address = reinterpret_cast<void *>(nothing);
    if (strcmp(name, "cuGetProcAddress") == 0) *address = reinterpret_cast<void *>(cuGetProcAddress_v2);
    // One that is another function from some version on.
    if (strcmp(name, "cuMemFree") == 0 && version > 13000) *address = reinterpret_cast<void *>(newer);
    if (status) *status = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
}
CUresult cuGetProcAddress(const char *name, void **address, int version, cuuint64_t flags) {
    return cuGetProcAddress_v2(name, address, version, flags, nullptr);
}
CUresult cuInit(unsigned) { return CUDA_ERROR_NO_DEVICE; }
}
