// T6, a program of the CUDA runtime that allocates in each way the runtime has. Built twice: with the runtime linked
// statically, and as a shared library. At most 256 MiB at a time.
#include "t6_phase.h"

// What programs call that are compiled for a default stream of each thread; the header names them only for those.
extern "C" cudaError_t CUDARTAPI cudaMallocAsync_ptsz(void **pointer, size_t bytes, cudaStream_t stream);
extern "C" cudaError_t CUDARTAPI cudaFreeAsync_ptsz(void *pointer, cudaStream_t stream);

namespace {

void must(cudaError_t error) {
    if (error == cudaSuccess) return;
    (void)cudaGetLastError(); // Not for the next phase.
    throw Failed{cudaGetErrorName(error)};
}

size_t free_bytes() {
    size_t free, total;
    must(cudaMemGetInfo(&free, &total));
    return free;
}

void linear_memory(Phases &phases) {
    std::vector<void *> pointers;
    auto allocate_many = [&](size_t count, size_t bytes) {
        for (size_t i = 0; i < count; ++i) {
            void *pointer;
            must(cudaMalloc(&pointer, bytes));
            pointers.push_back(pointer);
        }
        return count * bytes;
    };
    auto release_all = [&] {
        for (void *pointer : pointers) must(cudaFree(pointer));
        pointers.clear();
    };
    phases.run("malloc", "device", slack_of(4), [&] { return allocate_many(4, 64 * MIB); }, release_all);
    phases.run("malloc-small", "device", slack_of(2), [&] { return allocate_many(4096, 16384); }, release_all);

    void *pitched = nullptr;
    phases.run(
        "malloc-pitch", "device", slack_of(1),
        [&] {
            size_t pitch, height = 32768;
            must(cudaMallocPitch(&pitched, &pitch, 4000, height));
            return pitch * height;
        },
        [&] { must(cudaFree(pitched)); });
    phases.run(
        "malloc-3d", "device", slack_of(1),
        [&] {
            cudaPitchedPtr box;
            cudaExtent extent = make_cudaExtent(1000, 64, 2048);
            must(cudaMalloc3D(&box, extent));
            pitched = box.ptr;
            return box.pitch * extent.height * extent.depth;
        },
        [&] { must(cudaFree(pitched)); });
}

// Memory that is in the device only when the device has touched it, or never.
void managed_and_host_memory(Phases &phases) {
    constexpr size_t bytes = 64 * MIB;
    void *pointer = nullptr;
    auto allocate_managed = [&] {
        must(cudaMallocManaged(&pointer, bytes));
        return bytes;
    };
    auto release = [&] { must(cudaFree(pointer)); };
    phases.run("managed", "managed", slack_of(1), allocate_managed, release);
    phases.run(
        "managed-touched", "managed", slack_of(1),
        [&] {
            allocate_managed();
            must(cudaMemset(pointer, 1, bytes));
            return bytes;
        },
        release);
    phases.run(
        "host", "host", slack_of(1),
        [&] {
            must(cudaMallocHost(&pointer, bytes));
            return bytes;
        },
        [&] { must(cudaFreeHost(pointer)); });
    phases.run(
        "host-mapped", "host", slack_of(1),
        [&] {
            must(cudaHostAlloc(&pointer, bytes, cudaHostAllocMapped));
            return bytes;
        },
        [&] { must(cudaFreeHost(pointer)); });
}

void give_back(cudaStream_t stream) {
    cudaMemPool_t pool = nullptr;
    must(cudaStreamSynchronize(stream));
    must(cudaDeviceGetDefaultMemPool(&pool, 0));
    must(cudaMemPoolTrimTo(pool, 0));
}

cudaMemPoolProps device_0() {
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    return properties;
}

void stream_ordered_memory(Phases &phases, cudaStream_t stream) {
    constexpr size_t slack = slack_of(4) + POOL_CHUNK, count = 4, bytes = 64 * MIB;
    void *pointers[count] = {};
    phases.run(
        "async", "pool", slack,
        [&] {
            for (void *&pointer : pointers) must(cudaMallocAsync(&pointer, bytes, stream));
            return count * bytes;
        },
        [&] {
            for (void *pointer : pointers) must(cudaFreeAsync(pointer, stream));
            give_back(stream);
        });
    phases.run(
        "async-per-thread", "pool", slack,
        [&] {
            for (void *&pointer : pointers) must(cudaMallocAsync_ptsz(&pointer, bytes, nullptr));
            return count * bytes;
        },
        [&] {
            for (void *pointer : pointers) must(cudaFreeAsync_ptsz(pointer, nullptr));
            give_back(cudaStreamPerThread);
        });

    cudaMemPool_t pool = nullptr;
    phases.run(
        "async-from-pool", "pool", slack,
        [&] {
            cudaMemPoolProps properties = device_0();
            must(cudaMemPoolCreate(&pool, &properties));
            for (void *&pointer : pointers) must(cudaMallocFromPoolAsync(&pointer, bytes, pool, stream));
            return count * bytes;
        },
        [&] {
            for (void *pointer : pointers) must(cudaFreeAsync(pointer, stream));
            must(cudaStreamSynchronize(stream));
            must(cudaMemPoolDestroy(pool));
        });
}

// A graph's memory is taken when it is launched, not when its nodes are made, and is kept for the next launch.
class Graph {
  public:
    void launch(cudaGraph_t made, cudaStream_t stream) {
        graph = made;
        must(cudaGraphInstantiate(&executable, graph, 0));
        must(cudaGraphLaunch(executable, stream));
        must(cudaStreamSynchronize(stream));
    }

    void release() {
        must(cudaGraphExecDestroy(executable));
        must(cudaGraphDestroy(graph));
        must(cudaDeviceGraphMemTrim(0));
    }

  private:
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
};

void graph_memory(Phases &phases, cudaStream_t stream) {
    constexpr size_t slack = slack_of(2) + POOL_CHUNK, bytes = 128 * MIB;
    Graph running;
    auto release = [&] { running.release(); };
    phases.run(
        "graph-captured", "graph", slack,
        [&] {
            void *first, *second;
            cudaGraph_t graph;
            must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
            must(cudaMallocAsync(&first, bytes, stream));
            must(cudaMallocAsync(&second, bytes, stream));
            must(cudaMemsetAsync(first, 1, bytes, stream));
            must(cudaMemsetAsync(second, 2, bytes, stream));
            must(cudaFreeAsync(first, stream));
            must(cudaFreeAsync(second, stream));
            must(cudaStreamEndCapture(stream, &graph));
            running.launch(graph, stream);
            return 2 * bytes;
        },
        release);
    phases.run(
        "graph-alloc-node", "graph", slack,
        [&] {
            cudaGraph_t graph;
            cudaGraphNode_t allocation, free;
            cudaMemAllocNodeParams parameters = {};
            parameters.poolProps = device_0();
            parameters.bytesize = bytes;
            must(cudaGraphCreate(&graph, 0));
            must(cudaGraphAddMemAllocNode(&allocation, graph, nullptr, 0, &parameters));
            must(cudaGraphAddMemFreeNode(&free, graph, &allocation, 1, parameters.dptr));
            running.launch(graph, stream);
            return bytes;
        },
        release);
    phases.run(
        "graph-node", "graph", slack,
        [&] {
            cudaGraph_t graph;
            cudaGraphNode_t allocation, free;
            cudaGraphNodeParams parameters = {}, free_parameters = {};
            parameters.type = cudaGraphNodeTypeMemAlloc;
            parameters.alloc.poolProps = device_0();
            parameters.alloc.bytesize = bytes;
            must(cudaGraphCreate(&graph, 0));
            must(cudaGraphAddNode(&allocation, graph, nullptr, nullptr, 0, &parameters));
            free_parameters.type = cudaGraphNodeTypeMemFree;
            free_parameters.free.dptr = parameters.alloc.dptr;
            must(cudaGraphAddNode(&free, graph, &allocation, nullptr, 1, &free_parameters));
            running.launch(graph, stream);
            return bytes;
        },
        release);
}

void arrays(Phases &phases) {
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
    cudaArray_t array = nullptr;
    auto release = [&] { must(cudaFreeArray(array)); };
    phases.run(
        "array", "array", slack_of(1),
        [&] {
            must(cudaMallocArray(&array, &format, 4096, 4096));
            return 4096 * 4096 * sizeof(float4);
        },
        release);
    phases.run(
        "array-3d", "array", slack_of(1),
        [&] {
            must(cudaMalloc3DArray(&array, &format, make_cudaExtent(256, 256, 256)));
            return 256 * 256 * 256 * sizeof(float4);
        },
        release);

    cudaMipmappedArray_t levels = nullptr;
    phases.run(
        "array-mipmapped", "array", slack_of(4),
        [&] {
            must(cudaMallocMipmappedArray(&levels, &format, make_cudaExtent(2048, 2048, 0), 12));
            return 2048 * 2048 * sizeof(float4); // The largest level; the others are a third of it.
        },
        [&] { must(cudaFreeMipmappedArray(levels)); });
}

} // namespace

int main() {
    RT(cudaFree(nullptr)); // Makes the context.
    size_t free, total;
    RT(cudaMemGetInfo(&free, &total));
    Phases phases([] { must(cudaDeviceSynchronize()); }, free_bytes);
    phases.overhead("context-and-others", total, free);

    cudaStream_t stream;
    RT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    linear_memory(phases);
    managed_and_host_memory(phases);
    stream_ordered_memory(phases, stream);
    graph_memory(phases, stream);
    arrays(phases);
    RT(cudaStreamDestroy(stream));
    puts("done");
    return 0;
}
