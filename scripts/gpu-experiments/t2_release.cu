// T2: physical memory released and its address kept before the driver's checkpoint, and given back after it. So the driver
// has nothing to copy, and what we copy ourselves we can de-duplicate.
//
//     t2_release MIB
//
// Passes if the data lies at the same address, a graph that was instantiated before replays, cuBLAS gives bit-equal
// results with the handle of before, and stream and event work. The time of the checkpoint is compared over sizes by `run`.
#include <thread>

#include "pattern.cuh"
#include "vmm.cuh"

constexpr int SIDE = 1024;
constexpr size_t MATRIX_BYTES = sizeof(float) * SIDE * SIDE;
constexpr size_t PIECE_BYTES = 64 * MIB;

static __global__ void add_one(float *values, int count) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) values[at] += 1;
}

static __global__ void set_values(float *values, int count, float step) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) values[at] = float(at % 977) * step;
}

// The three functions of cuBLAS that are needed, from the library that is installed.
struct Blas {
    int (*create)(void **handle);
    int (*set_stream)(void *handle, cudaStream_t stream);
    int (*sgemm)(void *handle, int, int, int m, int n, int k, const float *alpha, const float *a, int lda, const float *b,
                 int ldb, const float *beta, float *c, int ldc);
    void *handle = nullptr;

    bool load(cudaStream_t stream) {
        void *library = dlopen("libcublas.so.13", RTLD_NOW);
        if (library == nullptr) {
            note("cuBLAS is left out: %s", dlerror());
            return false;
        }
        create = reinterpret_cast<decltype(create)>(dlsym(library, "cublasCreate_v2"));
        set_stream = reinterpret_cast<decltype(set_stream)>(dlsym(library, "cublasSetStream_v2"));
        sgemm = reinterpret_cast<decltype(sgemm)>(dlsym(library, "cublasSgemm_v2"));
        return create != nullptr && set_stream != nullptr && sgemm != nullptr && create(&handle) == 0 &&
               set_stream(handle, stream) == 0;
    }

    // c = a b
    bool multiply(const float *a, const float *b, float *c) const {
        float one = 1, zero = 0;
        return sgemm(handle, 0, 0, SIDE, SIDE, SIDE, &one, a, SIDE, b, SIDE, &zero, c, SIDE) == 0;
    }
};

static std::vector<float> to_host(const float *values) {
    std::vector<float> copy(SIDE * SIDE);
    RT(cudaMemcpy(copy.data(), values, MATRIX_BYTES, cudaMemcpyDeviceToHost));
    return copy;
}

// Our own way of the data: through pinned memory to pageable memory and back, one piece after the other.
static double copy_out(const Region &region, std::vector<char> &kept, void *pinned) {
    double begun = now_s();
    for (size_t at = 0; at < region.bytes; at += PIECE_BYTES) {
        size_t bytes = std::min(PIECE_BYTES, region.bytes - at);
        RT(cudaMemcpy(pinned, region.as<char>() + at, bytes, cudaMemcpyDeviceToHost));
        memcpy(kept.data() + at, pinned, bytes);
    }
    return now_s() - begun;
}

static double copy_in(const Region &region, const std::vector<char> &kept, void *pinned) {
    double begun = now_s();
    for (size_t at = 0; at < region.bytes; at += PIECE_BYTES) {
        size_t bytes = std::min(PIECE_BYTES, region.bytes - at);
        memcpy(pinned, kept.data() + at, bytes);
        RT(cudaMemcpy(region.as<char>() + at, pinned, bytes, cudaMemcpyHostToDevice));
    }
    return now_s() - begun;
}

static cudaGraphExec_t graph_of(cudaStream_t stream, float *values) {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    RT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    add_one<<<SIDE * SIDE / 256, 256, 0, stream>>>(values, SIDE * SIDE);
    add_one<<<SIDE * SIDE / 256, 256, 0, stream>>>(values, SIDE * SIDE);
    RT(cudaStreamEndCapture(stream, &graph));
    RT(cudaGraphInstantiate(&executable, graph, 0));
    return executable;
}

int main(int count, char **arguments) {
    if (count < 2) return fprintf(stderr, "t2_release MIB\n"), 2;
    size_t bytes = strtoull(arguments[1], nullptr, 10) * MIB;
    RT(cudaFree(nullptr));
    cudaStream_t stream;
    cudaEvent_t event;
    void *pinned;
    RT(cudaStreamCreate(&stream));
    RT(cudaEventCreate(&event));
    RT(cudaMallocHost(&pinned, PIECE_BYTES));

    CUmemAllocationProp properties = device_memory();
    Region data = reserve(bytes, properties), matrices = reserve(3 * MATRIX_BYTES, properties);
    back(data, properties);
    back(matrices, properties);
    float *a = matrices.as<float>(), *b = a + SIDE * SIDE, *c = b + SIDE * SIDE;
    fill(data.as<void>(), data.bytes, 2);
    set_values<<<SIDE * SIDE / 256, 256>>>(a, SIDE * SIDE, 0.25f);
    set_values<<<SIDE * SIDE / 256, 256>>>(b, SIDE * SIDE, 0.5f);
    cudaGraphExec_t graph = graph_of(stream, a);
    RT(cudaGraphLaunch(graph, stream));
    RT(cudaStreamSynchronize(stream));
    Blas blas;
    bool with_blas = blas.load(stream);
    std::vector<float> product;
    if (with_blas) {
        if (!blas.multiply(a, b, c)) return result("T2", false, "cuBLAS failed before the checkpoint");
        RT(cudaStreamSynchronize(stream));
        product = to_host(c);
    }
    std::vector<float> counted = to_host(a);

    std::vector<char> kept(data.bytes), kept_matrices(matrices.bytes);
    size_t free_before, free_released, total;
    RT(cudaMemGetInfo(&free_before, &total));
    double out_s = copy_out(data, kept, pinned);
    copy_out(matrices, kept_matrices, pinned);
    double begun = now_s();
    release(data);
    release(matrices);
    double release_s = now_s() - begun;
    RT(cudaMemGetInfo(&free_released, &total));
    note("released in %.2f ms; free before %zu MiB, after %zu MiB", release_s * 1e3, free_before / MIB, free_released / MIB);

    Cycle done;
    std::thread([&] { done = cycle(getpid(), [] { snapshot("T2", "checkpointed"); }); }).join();
    done.print("with the memory released");
    if (!done.ok()) return result("T2", false, "%s: %s, state %s", done.at, cu_name(done.error), state_of(getpid()));

    begun = now_s();
    back(data, properties);
    back(matrices, properties);
    double back_s = now_s() - begun;
    double in_s = copy_in(data, kept, pinned);
    copy_in(matrices, kept_matrices, pinned);
    note("mapped again at %p in %.2f ms", data.as<void>(), back_s * 1e3);
    bool same_data = wrong_words(data.as<void>(), data.bytes, 2) == 0;

    bool same_product = true;
    if (with_blas) {
        RT(cudaMemset(c, 0, MATRIX_BYTES));
        same_product = blas.multiply(a, b, c);
        RT(cudaStreamSynchronize(stream));
        same_product = same_product && to_host(c) == product;
    }
    RT(cudaGraphLaunch(graph, stream));
    RT(cudaEventRecord(event, stream));
    RT(cudaEventSynchronize(event));
    bool same_graph = true;
    std::vector<float> now = to_host(a);
    for (size_t at = 0; at < now.size(); ++at) same_graph = same_graph && now[at] == counted[at] + 2;
    bool passed = same_data && same_product && same_graph;
    note("data %s, graph %s, cuBLAS %s", same_data ? "equal" : "DIFFERS", same_graph ? "replays" : "WRONG",
         !with_blas ? "left out" : same_product ? "bit-equal" : "DIFFERS");
    return result("T2", passed,
                  "%.2f GiB: checkpoint %.1f ms, restore %.1f ms, release %.2f ms, map %.2f ms, out %.1f GB/s, in %.1f GB/s%s",
                  double(bytes) / GIB, done.checkpoint.seconds * 1e3, done.restore.seconds * 1e3, release_s * 1e3,
                  back_s * 1e3, double(data.bytes) / 1e9 / out_s, double(data.bytes) / 1e9 / in_s,
                  with_blas ? "" : ", without cuBLAS");
}
