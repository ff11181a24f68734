// The driver's entry points for modules and kernels.
#include "grid.h"
#include "kernels.h"
#include "results.h"
#include "streams.h"

using namespace on_cpu;

static char the_module;

extern "C" {

// The image is not looked at: the kernels have been compiled into this library.
int cuModuleLoadData(void **module, const void *) { return *module = &the_module, SUCCESS; }
int cuModuleUnload(void *) { return SUCCESS; }
int cuModuleGetFunction(const Kernel **kernel, void *, const char *name) {
    *kernel = kernel_named(name);
    return *kernel == nullptr ? NOT_FOUND : SUCCESS;
}
int cuFuncGetAttribute(int *value, int, const Kernel *) { return *value = BLOCK_THREADS_MAX, SUCCESS; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const Kernel *, int, size_t) {
    return *blocks = 2, SUCCESS;
}
int cuLaunchKernel(const Kernel *kernel, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                   unsigned, Stream *stream, void **parameters, void **) {
    if (blocks == 0 || threads == 0 || threads > BLOCK_THREADS_MAX) return INVALID_VALUE;
    stream->push([=, launch = kernel->with(parameters)] { run_grid(blocks, threads, launch); });
    return SUCCESS;
}
}
