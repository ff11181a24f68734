// Counts on a device what children bring that were forked behind its context, as the workers of PyTorch's DataLoader do.
//
//   loaders STEPS PAUSE_US
//
// At each step one of them is asked by a pipe, and writes a batch to shared memory that follows from all that it was asked before. It
// goes to the device by pinned memory. Printed is a checksum of all that is there: of any two runs, lines with the same number are the
// same. The driver carries out no call of a child.
#include "expect.h"
#include "paced.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#define ok EXPECT_OK

namespace {

constexpr int LOADERS = 4, BATCHES = 8;
constexpr size_t WORDS = 1 << 16;

struct Loader {
    pid_t pid;
    int asked, answers;
    uint32_t *batch;
};

void no_call_is_carried_out(CUdeviceptr of_parent) {
    CUdeviceptr memory;
    CUcontext context;
    size_t bytes;
    EXPECT(cuMemAlloc(&memory, 1000) != CUDA_SUCCESS);
    EXPECT(cuMemFree(of_parent) != CUDA_SUCCESS);
    EXPECT(cuMemsetD8(of_parent, 1, 1) != CUDA_SUCCESS);
    EXPECT(cuMemGetAddressRange(nullptr, &bytes, of_parent) != CUDA_SUCCESS);
    EXPECT(cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS);
}

[[noreturn]] void load(const Loader &loader, CUdeviceptr of_parent) {
    no_call_is_carried_out(of_parent);
    uint32_t sum = 1;
    for (uint32_t step; read(loader.asked, &step, sizeof step) == sizeof step;) {
        for (size_t at = 0; at < WORDS; ++at) loader.batch[at] = sum = sum * 1664525u + step + uint32_t(at);
        EXPECT(write(loader.answers, &sum, sizeof sum) == sizeof sum);
    }
    exit(0);
}

} // namespace

int main(int count, char **arguments) {
    EXPECT(count == 3);
    int steps = atoi(arguments[1]), pause_us = atoi(arguments[2]);
    CUcontext context;
    CUdeviceptr memory;
    void *pinned;
    ok(cuInit(0));
    ok(cuDevicePrimaryCtxRetain(&context, 0));
    ok(cuCtxSetCurrent(context));
    ok(cuMemAlloc(&memory, BATCHES * WORDS * 4));
    ok(cuMemsetD32(memory, 5, BATCHES * WORDS));
    ok(cuMemAllocHost(&pinned, WORDS * 4));
    std::vector<Loader> loaders;
    for (int number = 0; number < LOADERS; ++number) {
        int to[2], from[2];
        EXPECT(pipe(to) == 0 && pipe(from) == 0);
        void *batch = mmap(nullptr, WORDS * 4, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        EXPECT(batch != MAP_FAILED);
        Loader loader = {fork(), to[0], from[1], static_cast<uint32_t *>(batch)};
        EXPECT(loader.pid >= 0);
        if (loader.pid == 0) {
            // Its siblings' would keep them from seeing the end.
            for (const Loader &other : loaders) close(other.asked);
            close(to[1]);
            load(loader, memory);
        }
        close(to[0]);
        close(from[1]);
        loaders.push_back({loader.pid, to[1], from[0], loader.batch});
    }
    std::vector<uint32_t> all(BATCHES * WORDS);
    for (int step = 1; step <= steps; ++step) {
        const Loader &loader = loaders[size_t(step) % LOADERS];
        uint32_t asked = uint32_t(step), sum;
        EXPECT(write(loader.asked, &asked, sizeof asked) == sizeof asked);
        EXPECT(read(loader.answers, &sum, sizeof sum) == sizeof sum);
        memcpy(pinned, loader.batch, WORDS * 4);
        ok(cuMemcpyHtoD(memory + size_t(step % BATCHES) * WORDS * 4, pinned, WORDS * 4));
        ok(cuMemcpyDtoH(all.data(), memory, all.size() * 4));
        uint64_t mixed = sum;
        for (uint32_t word : all) mixed = mixed * 1000003 + word;
        printf("%d %016lx\n", step, mixed);
        fflush(stdout);
        pause_after(step, pause_us);
    }
    for (const Loader &loader : loaders) close(loader.asked);
    for (const Loader &loader : loaders) {
        int status = -1;
        EXPECT(waitpid(loader.pid, &status, 0) == loader.pid && status == 0);
    }
    return 7;
}
