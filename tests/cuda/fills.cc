// Entry points that fill.
#include "fills.h"

#include <string.h>

#include <algorithm>

#include "allocations.h"
#include "call.h"
#include "contexts.h"

namespace test_double {

CUresult check(const Fill &fill) {
    bool is_element = fill.element_bytes == 1 || fill.element_bytes == 2 || fill.element_bytes == 4;
    size_t row = fill.width * fill.element_bytes;
    if (!is_element || fill.to % fill.element_bytes != 0) return CUDA_ERROR_INVALID_VALUE;
    if (fill.height > 1 && (fill.pitch < row || fill.pitch % fill.element_bytes != 0)) return CUDA_ERROR_INVALID_VALUE;
    if (row == 0 || fill.height == 0) return CUDA_SUCCESS;
    size_t bytes = (fill.height - 1) * fill.pitch + row;
    return is_allocated(fill.to, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

Work filling(const Fill &fill) {
    return [fill] {
        for (size_t row = 0; row < fill.height; ++row) {
            CUdeviceptr start = fill.to + row * fill.pitch;
            switch (fill.element_bytes) {
            case 1: memset(at<void>(start), int(fill.value), fill.width); break;
            case 2: std::fill_n(at<uint16_t>(start), fill.width, uint16_t(fill.value)); break;
            case 4: std::fill_n(at<uint32_t>(start), fill.width, fill.value); break;
            }
        }
    };
}

} // namespace test_double

using namespace test_double;

static CUresult fill(const Fill &fill, CUstream given, bool waits) {
    CUstream stream = stream_meant(given);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = check(fill);
    if (result != CUDA_SUCCESS) return result;
    auto put = waits ? submit_and_wait : submit;
    return put(stream, CU_GRAPH_NODE_TYPE_MEMSET, filling(fill));
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
    ENTER(A_CONTEXT);
    return fill({to, value, 1, count, 1, 0}, nullptr, true);
}
CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
    ENTER(A_CONTEXT);
    return fill({to, value, 2, count, 1, 0}, nullptr, true);
}
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
    ENTER(A_CONTEXT);
    return fill({to, value, 4, count, 1, 0}, nullptr, true);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    ENTER(A_CONTEXT);
    return fill({to, value, 1, count, 1, 0}, stream, false);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
    ENTER(A_CONTEXT);
    return fill({to, value, 2, count, 1, 0}, stream, false);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    ENTER(A_CONTEXT);
    return fill({to, value, 4, count, 1, 0}, stream, false);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height) {
    ENTER(A_CONTEXT);
    return fill({to, value, 1, width, height, pitch}, nullptr, true);
}
CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream) {
    ENTER(A_CONTEXT);
    return fill({to, value, 1, width, height, pitch}, stream, false);
}
