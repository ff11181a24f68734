// Entry points that launch kernels, or say how they can be launched. The CPU runs one kernel at a time.
#include "launches.h"

#include <mutex>

#include "call.h"
#include "contexts.h"
#include "grid.h"
#include "live.h"
#include "modules.h"

namespace test_double {

CUresult prepare(const Launch &launch, Work &work) {
    CUfunction function = function_meant(launch.function);
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (function->kernel == nullptr) return CUDA_ERROR_NO_BINARY_FOR_GPU; // in the image, but not in the double
    auto [blocks, threads] = std::pair(launch.blocks, launch.threads);
    bool is_flat = blocks[1] == 1 && blocks[2] == 1 && threads[1] == 1 && threads[2] == 1;
    bool fits = blocks[0] != 0 && threads[0] != 0 && threads[0] <= on_cpu::BLOCK_THREADS_MAX;
    if (!is_flat || !fits) return CUDA_ERROR_INVALID_VALUE;
    work = [blocks = blocks[0], threads = threads[0], module = function->module, run = function->kernel->with(launch.parameters)] {
        static auto *one_kernel = new std::mutex; // whose variables are bound
        std::lock_guard<std::mutex> lock(*one_kernel);
        bind_variables(module);
        on_cpu::run_grid(blocks, threads, run);
    };
    return CUDA_SUCCESS;
}

} // namespace test_double

using namespace test_double;

static CUresult launch(const Launch &wanted, CUstream given) {
    CUstream stream = stream_meant(given);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    Within context(stream->context);
    Work work;
    CUresult result = prepare(wanted, work);
    return result == CUDA_SUCCESS ? submit(stream, CU_GRAPH_NODE_TYPE_KERNEL, std::move(work)) : result;
}

CUresult cuLaunchKernel(CUfunction function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,
                        unsigned threads_y, unsigned threads_z, unsigned, CUstream stream, void **parameters, void **extra) {
    ENTER(A_CONTEXT);
    if (extra != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    return launch({function, {blocks_x, blocks_y, blocks_z}, {threads_x, threads_y, threads_z}, parameters}, stream);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *how, CUfunction function, void **parameters, void **extra) {
    ENTER(A_CONTEXT);
    if (how == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (extra != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    return launch({function,
                   {how->gridDimX, how->gridDimY, how->gridDimZ},
                   {how->blockDimX, how->blockDimY, how->blockDimZ},
                   parameters},
                  how->hStream);
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction given) {
    ENTER(A_CONTEXT);
    if (value == nullptr || attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    if (function_meant(given) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = on_cpu::BLOCK_THREADS_MAX; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION: *value = 80; break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = 90; break;
    default: *value = 0;
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction given, CUfunction_attribute, int) {
    ENTER(A_CONTEXT);
    return function_meant(given) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult say_occupancy(int *blocks, CUfunction given, int threads) {
    if (blocks == nullptr || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (function_meant(given) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *blocks = threads <= int(on_cpu::BLOCK_THREADS_MAX) ? 2 : 0;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t) {
    ENTER(A_CONTEXT);
    return say_occupancy(blocks, function, threads);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int threads, size_t, unsigned) {
    ENTER(A_CONTEXT);
    return say_occupancy(blocks, function, threads);
}

CUresult cuOccupancyMaxPotentialBlockSize(int *blocks, int *threads, CUfunction given, CUoccupancyB2DSize, size_t, int limit) {
    ENTER(A_CONTEXT);
    if (blocks == nullptr || threads == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (function_meant(given) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    int most = on_cpu::BLOCK_THREADS_MAX;
    *threads = limit > 0 && limit < most ? limit : most;
    *blocks = 4; // two multiprocessors with two each
    return CUDA_SUCCESS;
}
