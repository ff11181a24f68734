// Entry points that copy rows and slices, between any two of host, device and array.
#include <string.h>

#include "allocations.h"
#include "arrays.h"
#include "call.h"
#include "contexts.h"
#include "copies.h"
#include "live.h"
#include "traffic.h"

using namespace test_double;

namespace {

// One side of such a copy: where its first byte is, and how far from row to row and from slice to slice.
struct Side {
    CUdeviceptr start = 0;
    size_t pitch = 0, slice = 0;
    bool is_array = false, must_be_device = false;
};

struct Block {
    size_t width, height, depth; // bytes, rows, slices

    size_t span(const Side &side) const { return (depth - 1) * side.slice + (height - 1) * side.pitch + width; }
};

bool side_of(Side &side, CUmemorytype type, const void *host, CUdeviceptr device, CUarray array, size_t pitch, size_t rows,
             size_t x, size_t y, size_t z, const Block &block) {
    side.is_array = type == CU_MEMORYTYPE_ARRAY;
    side.must_be_device = type == CU_MEMORYTYPE_DEVICE;
    if (side.is_array) {
        if (!Live<CUarray_st>::has(array)) return false;
        if (x + block.width > array->row_bytes() || y + block.height > array->rows()) return false;
        if (z + block.depth > array->slices()) return false;
        device = array->address, pitch = array->row_bytes(), rows = array->rows();
    } else if (type == CU_MEMORYTYPE_HOST) {
        device = reinterpret_cast<CUdeviceptr>(host);
    } else if (type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED) {
        return false;
    }
    side.pitch = pitch == 0 ? x + block.width : pitch; // one row, or rows behind one another
    side.slice = side.pitch * (rows == 0 ? y + block.height : rows);
    side.start = device + z * side.slice + y * side.pitch + x;
    return side.pitch >= x + block.width;
}

CUresult copy(const CUDA_MEMCPY3D &wanted, CUstream given, bool waits) {
    Block block{wanted.WidthInBytes, wanted.Height, wanted.Depth};
    CUstream stream = stream_meant(given);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (block.width == 0 || block.height == 0 || block.depth == 0) return CUDA_SUCCESS;
    Side from, to;
    {
        Locked locked;
        bool has_sides = side_of(from, wanted.srcMemoryType, wanted.srcHost, wanted.srcDevice, wanted.srcArray, wanted.srcPitch,
                                 wanted.srcHeight, wanted.srcXInBytes, wanted.srcY, wanted.srcZ, block) &&
                         side_of(to, wanted.dstMemoryType, wanted.dstHost, wanted.dstDevice, wanted.dstArray, wanted.dstPitch,
                                 wanted.dstHeight, wanted.dstXInBytes, wanted.dstY, wanted.dstZ, block);
        if (!has_sides || wanted.srcLOD != 0 || wanted.dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
        if (!from.is_array && !is_readable(from.start, block.span(from), from.must_be_device)) return CUDA_ERROR_INVALID_VALUE;
        if (!to.is_array && !is_writable(to.start, block.span(to), to.must_be_device)) return CUDA_ERROR_INVALID_VALUE;
    }
    bool from_device = from.is_array || is_on_device(from.start), to_device = to.is_array || is_on_device(to.start);
    auto work = [=] {
        for (size_t slice = 0; slice < block.depth; ++slice)
            for (size_t row = 0; row < block.height; ++row)
                memmove(at<void>(to.start + slice * to.slice + row * to.pitch),
                        at<void>(from.start + slice * from.slice + row * from.pitch), block.width);
        traffic().count(from_device, to_device, block.width * block.height * block.depth);
    };
    // As copies in a row do with memory of the host that is not known.
    bool is_known = (from_device || is_readable(from.start, 1, true)) && (to_device || is_readable(to.start, 1, true));
    auto put = waits || (!is_known && stream->capture == nullptr) ? submit_and_wait : submit;
    return put(stream, CU_GRAPH_NODE_TYPE_MEMCPY, work);
}

CUDA_MEMCPY3D with_depth(const CUDA_MEMCPY2D &flat) {
    CUDA_MEMCPY3D block = {};
    block.srcXInBytes = flat.srcXInBytes, block.srcY = flat.srcY, block.srcMemoryType = flat.srcMemoryType;
    block.srcHost = flat.srcHost, block.srcDevice = flat.srcDevice, block.srcArray = flat.srcArray, block.srcPitch = flat.srcPitch;
    block.dstXInBytes = flat.dstXInBytes, block.dstY = flat.dstY, block.dstMemoryType = flat.dstMemoryType;
    block.dstHost = flat.dstHost, block.dstDevice = flat.dstDevice, block.dstArray = flat.dstArray, block.dstPitch = flat.dstPitch;
    block.WidthInBytes = flat.WidthInBytes, block.Height = flat.Height, block.Depth = 1;
    return block;
}

} // namespace

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *wanted) {
    ENTER(A_CONTEXT);
    return wanted == nullptr ? CUDA_ERROR_INVALID_VALUE : copy(with_depth(*wanted), nullptr, true);
}
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *wanted) {
    ENTER(A_CONTEXT);
    return wanted == nullptr ? CUDA_ERROR_INVALID_VALUE : copy(with_depth(*wanted), nullptr, true);
}
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *wanted, CUstream stream) {
    ENTER(A_CONTEXT);
    return wanted == nullptr ? CUDA_ERROR_INVALID_VALUE : copy(with_depth(*wanted), stream, false);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *wanted) {
    ENTER(A_CONTEXT);
    return wanted == nullptr ? CUDA_ERROR_INVALID_VALUE : copy(*wanted, nullptr, true);
}
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *wanted, CUstream stream) {
    ENTER(A_CONTEXT);
    return wanted == nullptr ? CUDA_ERROR_INVALID_VALUE : copy(*wanted, stream, false);
}
