// Entry points that copy bytes in a row. As the driver says of itself: a copy from or to memory of the host that is not known
// to it has left, or reached, that memory when the call returns.
#include "copies.h"

#include <stdlib.h>
#include <string.h>

#include "allocations.h"
#include "call.h"
#include "contexts.h"
#include "traffic.h"

namespace test_double {

Traffic &traffic() {
    static auto *traffic = new Traffic;
    return *traffic;
}

static bool may(CUdeviceptr address, size_t bytes, bool must_be_device, unsigned access) {
    Locked locked;
    if (!must_be_device && find_allocation(address) == nullptr) return address != 0 || bytes == 0;
    return is_allocated(address, bytes, access);
}

bool is_readable(CUdeviceptr address, size_t bytes, bool must_be_device) {
    return may(address, bytes, must_be_device, CU_MEM_ACCESS_FLAGS_PROT_READ);
}

bool is_writable(CUdeviceptr address, size_t bytes, bool must_be_device) {
    return may(address, bytes, must_be_device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

bool is_on_device(CUdeviceptr address) {
    Locked locked;
    Allocation *found = find_allocation(address);
    return found != nullptr && !found->is_host();
}

Work copying(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return [=, from_device = is_on_device(from), to_device = is_on_device(to)] {
        memmove(at<void>(to), at<void>(from), bytes);
        traffic().count(from_device, to_device, bytes);
    };
}

} // namespace test_double

using namespace test_double;

namespace {

enum Side { HOST, DEVICE, ANY };

bool is_known(CUdeviceptr address) {
    Locked locked;
    return find_allocation(address) != nullptr;
}

// A copy that takes its bytes now and puts them there later.
Work staged(CUdeviceptr to, const void *from, size_t bytes) {
    std::shared_ptr<void> stage(malloc(bytes), free);
    memcpy(stage.get(), from, bytes);
    return [=] {
        memcpy(at<void>(to), stage.get(), bytes);
        traffic().count(false, true, bytes);
    };
}

CUresult copy(CUdeviceptr to, Side to_side, CUdeviceptr from, Side from_side, size_t bytes, CUstream given, bool waits) {
    CUstream stream = stream_meant(given);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (bytes == 0) return CUDA_SUCCESS;
    if (!is_readable(from, bytes, from_side == DEVICE)) return CUDA_ERROR_INVALID_VALUE;
    if (!is_writable(to, bytes, to_side == DEVICE)) return CUDA_ERROR_INVALID_VALUE;
    auto type = CU_GRAPH_NODE_TYPE_MEMCPY;
    if (waits) return submit_and_wait(stream, type, copying(to, from, bytes));
    if (stream->capture != nullptr) return submit(stream, type, copying(to, from, bytes));
    if (!is_known(from) && is_known(to)) return submit(stream, type, staged(to, at<void>(from), bytes));
    if (!is_known(to)) return submit_and_wait(stream, type, copying(to, from, bytes));
    return submit(stream, type, copying(to, from, bytes));
}

CUdeviceptr address_of(const void *place) { return reinterpret_cast<CUdeviceptr>(place); }

} // namespace

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    ENTER(A_CONTEXT);
    return copy(to, ANY, from, ANY, bytes, nullptr, true);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER(A_CONTEXT);
    return copy(to, ANY, from, ANY, bytes, stream, false);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    ENTER(A_CONTEXT);
    return copy(to, DEVICE, address_of(from), HOST, bytes, nullptr, true);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    ENTER(A_CONTEXT);
    return copy(to, DEVICE, address_of(from), HOST, bytes, stream, false);
}
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    ENTER(A_CONTEXT);
    return copy(address_of(to), HOST, from, DEVICE, bytes, nullptr, true);
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER(A_CONTEXT);
    return copy(address_of(to), HOST, from, DEVICE, bytes, stream, false);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    ENTER(A_CONTEXT);
    return copy(to, DEVICE, from, DEVICE, bytes, nullptr, true);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER(A_CONTEXT);
    return copy(to, DEVICE, from, DEVICE, bytes, stream, false);
}
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes) {
    ENTER(A_CONTEXT);
    return copy(to, DEVICE, from, DEVICE, bytes, nullptr, true);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream stream) {
    ENTER(A_CONTEXT);
    return copy(to, DEVICE, from, DEVICE, bytes, stream, false);
}
