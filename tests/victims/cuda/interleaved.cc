// Threads that allocate, free, fill, copy and compute on a device in an order that a seed decides, and know of each word what it
// must be: one that is not makes the program end. What it prints says how far all of them are.
//
//   interleaved STEPS SEED KERNELS
#include "expect.h"
#include "paced.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#define ok EXPECT_OK

namespace {

constexpr int THREADS = 3, CALLS_OF_A_STEP = 25;
constexpr size_t REGIONS = 12;

std::string kernels;
// The step that all threads may take, and how many have taken it.
std::atomic<int> allowed{0}, taken[THREADS];

struct Region {
    CUdeviceptr place;
    bool is_pooled;
    std::vector<uint32_t> words; // what must be there when the stream is done
};

class Worker {
  public:
    Worker(CUcontext context, uint32_t seed) : context(context), state(seed) {}

    void run(int number, int steps) {
        ok(cuCtxSetCurrent(context));
        ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        ok(cuModuleLoad(&module, kernels.c_str()));
        ok(cuModuleGetFunction(&add_one, module, "add_one"));
        ok(cuModuleGetFunction(&fill_words, module, "fill_words"));
        for (int step = 1; step <= steps; ++step) {
            while (allowed < step) usleep(200);
            for (int call = 0; call < CALLS_OF_A_STEP; ++call) take_a_call();
            taken[number] = step;
        }
        for (const Region &region : regions) check(region);
    }

  private:
    CUcontext context;
    uint64_t state;
    CUstream stream;
    CUmodule module;
    CUfunction add_one, fill_words;
    std::vector<Region> regions;

    // A number below `end`.
    size_t any(size_t end) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return (state >> 33) % end;
    }

    Region &any_region() { return regions[any(regions.size())]; }

    struct Part {
        size_t from, count;
    };
    Part any_part(const Region &region) {
        size_t from = any(region.words.size());
        return {from, 1 + any(region.words.size() - from)};
    }

    void launch(CUfunction function, std::vector<void *> parameters) {
        ok(cuLaunchKernel(function, 2, 1, 1, 32, 1, 1, 0, stream, parameters.data(), nullptr));
    }

    void add(Region &region, Part part) {
        CUdeviceptr place = region.place + part.from * 4;
        uint64_t count = part.count;
        launch(add_one, {&place, &count});
    }

    static void count_up(Region &region, Part part) {
        for (size_t at = part.from; at < part.from + part.count; ++at) ++region.words[at];
    }

    void fill(Region &region, Part part, uint32_t value) {
        for (size_t at = part.from; at < part.from + part.count; ++at) region.words[at] = value;
    }

    void check(const Region &region) {
        std::vector<uint32_t> there(region.words.size());
        ok(cuMemcpyDtoHAsync(there.data(), region.place, there.size() * 4, stream));
        ok(cuStreamSynchronize(stream));
        EXPECT(there == region.words);
    }

    void make() {
        // Small ones, those that fill a granule, and larger ones.
        size_t words = 1 + any(any(3) == 0 ? 900'000 : 20'000);
        Region region = {0, any(3) == 0, std::vector<uint32_t>(words, 0)};
        if (region.is_pooled)
            ok(cuMemAllocAsync(&region.place, words * 4, stream));
        else
            ok(cuMemAlloc(&region.place, words * 4));
        uint32_t value = uint32_t(any(1 << 30));
        ok(cuMemsetD32Async(region.place, value, words, stream));
        fill(region, {0, words}, value);
        regions.push_back(std::move(region));
    }

    void end() {
        size_t number = any(regions.size());
        Region region = std::move(regions[number]);
        regions.erase(regions.begin() + long(number));
        check(region);
        if (region.is_pooled)
            ok(cuMemFreeAsync(region.place, stream));
        else
            ok(cuMemFree(region.place));
    }

    void take_a_call() {
        if (regions.size() < 2 || (regions.size() < REGIONS && any(8) == 0)) return make();
        Region &region = any_region();
        Part part = any_part(region);
        switch (any(9)) {
        case 0: return end();
        case 1: return check(region);
        case 2: return add(region, part), count_up(region, part);
        case 3: {
            CUdeviceptr place = region.place + part.from * 4;
            uint64_t count = part.count;
            uint32_t value = uint32_t(any(1 << 30));
            launch(fill_words, {&place, &count, &value});
            return fill(region, part, value);
        }
        case 4: {
            uint32_t value = uint32_t(any(1 << 30));
            ok(cuMemsetD32Async(region.place + part.from * 4, value, part.count, stream));
            return fill(region, part, value);
        }
        case 5: {
            Region &from = any_region();
            if (&from == &region) return;
            size_t count = std::min(part.count, from.words.size());
            ok(cuMemcpyDtoDAsync(region.place + part.from * 4, from.place, count * 4, stream));
            for (size_t at = 0; at < count; ++at) region.words[part.from + at] = from.words[at];
            return;
        }
        case 6: {
            std::vector<uint32_t> words(part.count);
            for (uint32_t &word : words) word = uint32_t(any(1 << 30));
            ok(cuMemcpyHtoDAsync(region.place + part.from * 4, words.data(), words.size() * 4, stream));
            ok(cuStreamSynchronize(stream));
            for (size_t at = 0; at < words.size(); ++at) region.words[part.from + at] = words[at];
            return;
        }
        case 7: {
            CUgraph graph;
            CUgraphExec runnable;
            ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
            add(region, part);
            add(region, part);
            ok(cuStreamEndCapture(stream, &graph));
            ok(cuGraphInstantiate(&runnable, graph, 0));
            ok(cuGraphLaunch(runnable, stream));
            ok(cuStreamSynchronize(stream));
            ok(cuGraphExecDestroy(runnable));
            ok(cuGraphDestroy(graph));
            return count_up(region, part), count_up(region, part);
        }
        default: {
            // Another stream, behind this one and before it.
            CUstream other;
            CUevent event;
            ok(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
            ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
            ok(cuEventRecord(event, stream));
            ok(cuStreamWaitEvent(other, event, 0));
            std::swap(stream, other);
            add(region, part);
            std::swap(stream, other);
            ok(cuEventRecord(event, other));
            ok(cuStreamWaitEvent(stream, event, 0));
            ok(cuStreamSynchronize(stream));
            ok(cuEventDestroy(event));
            ok(cuStreamDestroy(other));
            return count_up(region, part);
        }
        }
    }
};

} // namespace

int main(int argc, char **argv) {
    EXPECT(argc == 4);
    int steps = atoi(argv[1]);
    uint32_t seed = uint32_t(atoi(argv[2]));
    kernels = argv[3];
    CUcontext context;
    ok(cuInit(0));
    ok(cuDevicePrimaryCtxRetain(&context, 0));
    std::vector<std::thread> threads;
    for (int number = 0; number < THREADS; ++number)
        threads.emplace_back([=] { Worker(context, seed * 7919 + uint32_t(number)).run(number, steps); });
    for (int step = 1; step <= steps; ++step) {
        allowed = step;
        for (auto &one : taken)
            while (one < step) usleep(200);
        printf("step %d\n", step);
        fflush(stdout);
        pause_after(step, 0);
    }
    for (std::thread &thread : threads) thread.join();
    puts("done");
}
