// Device memory of so many MiB, of which so many words change every 10 ms, anywhere. Says "ready", and ends by SIGTERM:
// tests/cuda/gpu/check_data.py. Arguments: MIB WORDS.
#include "waits.h"

#include <cuda.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#define good(call) expect((call) == CUDA_SUCCESS)

static uint64_t next() {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

int main(int count, char **arguments) {
    expect(count == 3);
    const size_t bytes = size_t(atoi(arguments[1])) << 20;
    const int changes = atoi(arguments[2]);
    CUcontext context;
    CUdeviceptr memory;
    good(cuInit(0));
    good(cuDevicePrimaryCtxRetain(&context, 0));
    good(cuCtxSetCurrent(context));
    good(cuMemAlloc(&memory, bytes));
    std::vector<uint64_t> piece(size_t(1) << 17);
    for (size_t at = 0; at < bytes; at += piece.size() * 8) {
        for (uint64_t &word : piece) word = next();
        good(cuMemcpyHtoD(memory + at, piece.data(), piece.size() * 8));
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        for (int n = 0; n < changes; ++n) good(cuMemsetD32Async(memory + next() % (bytes / 4) * 4, uint32_t(next()), 1, nullptr));
        good(cuStreamSynchronize(nullptr));
        usleep(10000);
    }
}
