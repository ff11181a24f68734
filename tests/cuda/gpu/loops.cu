// What programs of the CUDA runtime are like: loops that print a checksum for each step.
//
//   loops KIND STEPS PAUSE_US
//
//   counter     a kernel that adds
//   heat        heat on a plate, in managed memory that the host reads, too
//   blas        products of matrices by cuBLAS, which is looked for when it is needed
//   replayed    a graph that was captured, with memory of its own, launched in each step
//   pipelined   four streams that wait for each other: in from pinned memory, a kernel, out again, a call on the host
//
// It ends with the status 1 at the first call that fails, and says which.
#include "paced.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

[[noreturn]] void fail(const char *call, const char *why) {
    fprintf(stderr, "%s: %s\n", call, why);
    _exit(1);
}

void must(cudaError_t result, const char *call) {
    if (result != cudaSuccess) fail(call, cudaGetErrorString(result));
}
#define MUST(call) must(call, #call)

// Takes a step, and gives a checksum of what there is then.
using Loop = std::function<uint64_t(uint32_t step)>;

constexpr size_t WORDS = 1 << 20;

template <typename T> uint64_t checksum(const T *there, size_t count) {
    const uint32_t *words = reinterpret_cast<const uint32_t *>(there);
    uint64_t sum = 1469598103934665603ull;
    for (size_t at = 0; at < count * sizeof(T) / 4; ++at) sum = (sum ^ words[at]) * 1099511628211ull;
    return sum;
}

__global__ void add(uint32_t *words, size_t count, uint32_t step) {
    size_t at = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (at < count) words[at] = words[at] * 2654435761u + uint32_t(at) + step;
}

void launch_add(uint32_t *words, size_t count, uint32_t step, cudaStream_t stream) {
    add<<<unsigned((count + 255) / 256), 256, 0, stream>>>(words, count, step);
    MUST(cudaGetLastError());
}

Loop counter() {
    uint32_t *words;
    MUST(cudaMalloc(&words, WORDS * 4));
    MUST(cudaMemset(words, 1, WORDS * 4));
    return [=](uint32_t step) {
        launch_add(words, WORDS, step, nullptr);
        std::vector<uint32_t> there(WORDS);
        MUST(cudaMemcpy(there.data(), words, WORDS * 4, cudaMemcpyDeviceToHost));
        return checksum(there.data(), WORDS);
    };
}

constexpr int SIDE = 512;

__global__ void spread(const double *from, double *to) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x == 0 || y == 0 || x >= SIDE - 1 || y >= SIDE - 1) return;
    const double *here = from + size_t(y) * SIDE + x;
    to[size_t(y) * SIDE + x] = *here + 0.2 * (here[-1] + here[1] + here[-SIDE] + here[SIDE] - 4 * *here);
}

Loop heat() {
    constexpr size_t BYTES = size_t(SIDE) * SIDE * sizeof(double);
    static std::pair<double *, double *> plates;
    MUST(cudaMallocManaged(&plates.first, BYTES));
    MUST(cudaMallocManaged(&plates.second, BYTES));
    for (int at = 0; at < SIDE * SIDE; ++at) plates.first[at] = plates.second[at] = at % SIDE == 0 ? 100 : at % 7;
    cudaMemLocation device = {};
    device.type = cudaMemLocationTypeDevice;
    MUST(cudaMemPrefetchAsync(plates.first, BYTES, device, 0, nullptr));
    return [](uint32_t step) {
        for (int n = 0; n < 10; ++n) {
            spread<<<dim3(SIDE / 16, SIDE / 16), dim3(16, 16)>>>(plates.first, plates.second);
            MUST(cudaGetLastError());
            std::swap(plates.first, plates.second);
        }
        MUST(cudaDeviceSynchronize());
        plates.first[SIDE * (SIDE / 2) + SIDE / 2] += step; // the host heats it
        return checksum(plates.first, size_t(SIDE) * SIDE);
    };
}

// The functions of cuBLAS that a product takes.
struct Blas {
    void *handle = nullptr;
    int (*multiply)(void *, int, int, int, int, int, const double *, const double *, int, const double *, int, const double *,
                    double *, int);

    Blas() {
        void *library = dlopen("libcublas.so.13", RTLD_NOW);
        if (library == nullptr) library = dlopen("libcublas.so.12", RTLD_NOW);
        if (library == nullptr) fail("dlopen", dlerror());
        auto create = reinterpret_cast<int (*)(void **)>(dlsym(library, "cublasCreate_v2"));
        multiply = reinterpret_cast<decltype(multiply)>(dlsym(library, "cublasDgemm_v2"));
        if (create == nullptr || multiply == nullptr) fail("dlsym", dlerror());
        if (create(&handle) != 0) fail("cublasCreate", "an error");
    }
};

Loop blas() {
    constexpr int N = 384;
    constexpr size_t BYTES = size_t(N) * N * sizeof(double);
    Blas *blas = new Blas;
    std::vector<double> begin(size_t(N) * N);
    for (size_t at = 0; at < begin.size(); ++at) begin[at] = double(at * 2654435761u % 1000) / 1000 - 0.5;
    double *a, *b, *c;
    for (double **one : {&a, &b, &c}) {
        MUST(cudaMalloc(one, BYTES));
        MUST(cudaMemcpy(*one, begin.data(), BYTES, cudaMemcpyHostToDevice));
    }
    return [=](uint32_t step) {
        double alpha = 1e-3 * (step % 5 + 1), beta = 0.5;
        if (blas->multiply(blas->handle, 0, 1, N, N, N, &alpha, a, N, b, N, &beta, c, N) != 0) fail("cublasDgemm", "an error");
        if (blas->multiply(blas->handle, 1, 0, N, N, N, &alpha, c, N, a, N, &beta, b, N) != 0) fail("cublasDgemm", "an error");
        std::vector<double> there(size_t(N) * N);
        MUST(cudaMemcpy(there.data(), c, BYTES, cudaMemcpyDeviceToHost));
        return checksum(there.data(), there.size());
    };
}

Loop replayed() {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t runnable;
    uint32_t *words, *own, *out;
    MUST(cudaStreamCreate(&stream));
    MUST(cudaMalloc(&words, WORDS * 4));
    MUST(cudaMemset(words, 3, WORDS * 4));
    MUST(cudaMallocHost(&out, WORDS * 4));
    // Its code is loaded when it is launched first, which is not to be while a graph is captured.
    launch_add(words, WORDS, 0, stream);
    MUST(cudaDeviceSynchronize());
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launch_add(words, WORDS, 1, stream);
    MUST(cudaMallocAsync(&own, WORDS * 4, stream));
    MUST(cudaMemcpyAsync(own, words, WORDS * 4, cudaMemcpyDeviceToDevice, stream));
    launch_add(own, WORDS, 2, stream);
    MUST(cudaMemsetAsync(own, 5, 4096, stream));
    MUST(cudaMemcpyAsync(out, own, WORDS * 4, cudaMemcpyDeviceToHost, stream));
    MUST(cudaFreeAsync(own, stream));
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&runnable, graph, 0));
    return [=](uint32_t) {
        MUST(cudaGraphLaunch(runnable, stream));
        MUST(cudaStreamSynchronize(stream));
        return checksum(out, WORDS);
    };
}

// One of four. What it hands on is complete when its event is.
struct Stage {
    cudaStream_t stream;
    cudaEvent_t done;
    uint32_t *in, *words, *out;
    uint64_t sum = 0;
};

Loop pipelined() {
    constexpr size_t COUNT = WORDS / 4;
    static Stage stages[4];
    for (Stage &stage : stages) {
        MUST(cudaStreamCreateWithFlags(&stage.stream, cudaStreamNonBlocking));
        MUST(cudaEventCreateWithFlags(&stage.done, cudaEventDisableTiming));
        MUST(cudaMallocHost(&stage.in, COUNT * 4));
        MUST(cudaMallocHost(&stage.out, COUNT * 4));
        MUST(cudaMalloc(&stage.words, COUNT * 4));
        for (size_t at = 0; at < COUNT; ++at) stage.in[at] = uint32_t(at);
    }
    // What a step prints is of the one before: there is always work under way between two steps.
    return [](uint32_t step) {
        uint64_t sum = 0;
        for (Stage &stage : stages) {
            MUST(cudaEventSynchronize(stage.done));
            sum = sum * 31 + stage.sum;
        }
        for (int number = 0; number < 4; ++number) {
            Stage &stage = stages[number], &before = stages[(number + 3) % 4];
            MUST(cudaStreamWaitEvent(stage.stream, before.done, 0));
            MUST(cudaMemcpyAsync(stage.words, stage.in, COUNT * 4, cudaMemcpyHostToDevice, stage.stream));
            for (int round = 0; round < 5; ++round) launch_add(stage.words, COUNT, step + uint32_t(round), stage.stream);
            MUST(cudaMemcpyAsync(stage.out, stage.words, COUNT * 4, cudaMemcpyDeviceToHost, stage.stream));
            auto look = [](void *its) {
                Stage &stage = *static_cast<Stage *>(its);
                stage.sum = stage.sum * 1000003 + checksum(stage.out, COUNT);
                for (size_t at = 0; at < COUNT; at += 1024) stage.in[at] = uint32_t(stage.sum >> (at % 32));
            };
            MUST(cudaLaunchHostFunc(stage.stream, look, &stage));
            MUST(cudaEventRecord(stage.done, stage.stream));
        }
        return sum;
    };
}

const std::map<std::string, Loop (*)()> KINDS = {
    {"counter", counter}, {"heat", heat}, {"blas", blas}, {"replayed", replayed}, {"pipelined", pipelined},
};

} // namespace

int main(int count, char **arguments) {
    auto found = count == 4 ? KINDS.find(arguments[1]) : KINDS.end();
    if (found == KINDS.end()) return fprintf(stderr, "usage: loops counter|heat|blas|replayed|pipelined STEPS PAUSE_US\n"), 2;
    Loop loop = found->second();
    for (uint32_t step = 1; step <= uint32_t(atoi(arguments[2])); ++step) {
        printf("%u %016llx\n", step, static_cast<unsigned long long>(loop(step)));
        fflush(stdout);
        pause_after(int(step), atoi(arguments[3]));
    }
    MUST(cudaDeviceSynchronize());
    return 0;
}
