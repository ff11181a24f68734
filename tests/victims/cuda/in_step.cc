// Three buffers that a stream fills one after the other with the same number, and a thread that allocates and frees: whoever
// looks while the device stands still finds each of one number, and the later ones at most one round behind.
#include "waits.h"

#include <cuda.h>

#include <atomic>
#include <thread>

static const size_t BYTES = size_t(4) << 20;

#define good(call) expect((call) == CUDA_SUCCESS)

int main() {
    wait_by_signal();
    CUcontext context;
    CUdeviceptr buffers[3];
    good(cuInit(0));
    good(cuDevicePrimaryCtxRetain(&context, 0));
    good(cuCtxSetCurrent(context));
    for (CUdeviceptr &buffer : buffers) {
        good(cuMemAlloc(&buffer, BYTES));
        good(cuMemsetD32(buffer, 0, BYTES / 4));
    }
    std::atomic<bool> ends{false};
    std::thread filler([&] {
        CUstream stream;
        good(cuCtxSetCurrent(context));
        good(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        // A driver queues so much and then waits; the double queues without end.
        for (unsigned round = 1; !ends; ++round) {
            for (CUdeviceptr buffer : buffers) good(cuMemsetD32Async(buffer, round, BYTES / 4, stream));
            if (round % 8 == 0) good(cuStreamSynchronize(stream));
        }
        good(cuStreamSynchronize(stream));
    });
    std::thread allocator([&] {
        good(cuCtxSetCurrent(context));
        for (unsigned round = 1; !ends; ++round) {
            CUdeviceptr fleeting;
            good(cuMemAlloc(&fleeting, 1000 + round % 7 * 300000));
            good(cuMemsetD8(fleeting, 1, 1000));
            good(cuMemFree(fleeting));
        }
    });
    wait_after("running");
    ends = true;
    filler.join();
    allocator.join();
    puts("done");
}
