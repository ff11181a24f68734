// A CUDA runtime in a library of its own, of a few functions, which finds the driver as NVIDIA's does: by its one lookup
// function. For tests of where the program itself has asked.
#include <cuda.h>
#include <dlfcn.h>

#include <cstddef>

#define as_runtime extern "C" __attribute__((visibility("default")))

static CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

template <typename Function> static Function find(const char *name, int version) {
    void *function = nullptr;
    get(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, nullptr);
    return reinterpret_cast<Function>(function);
}

// At the first call, like the runtime's.
static void begin() {
    static const bool begun = [] {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        get = reinterpret_cast<decltype(get)>(dlsym(driver, "cuGetProcAddress_v2"));
        CUcontext context;
        return find<CUresult (*)(unsigned)>("cuInit", 2000)(0) == CUDA_SUCCESS &&
               find<CUresult (*)(CUcontext *, CUdevice)>("cuDevicePrimaryCtxRetain", 7000)(&context, 0) == CUDA_SUCCESS &&
               find<CUresult (*)(CUcontext)>("cuCtxSetCurrent", 4000)(context) == CUDA_SUCCESS;
    }();
    (void)begun;
}

as_runtime int cudaMalloc(void **place, size_t bytes) {
    begin();
    return find<CUresult (*)(void **, size_t)>("cuMemAlloc", 3020)(place, bytes);
}

as_runtime int cudaMallocManaged(void **place, size_t bytes, unsigned flags) {
    begin();
    return find<CUresult (*)(void **, size_t, unsigned)>("cuMemAllocManaged", 6000)(place, bytes, flags);
}

as_runtime int cudaMallocHost(void **place, size_t bytes) {
    begin();
    return find<CUresult (*)(void **, size_t)>("cuMemAllocHost", 3020)(place, bytes);
}
