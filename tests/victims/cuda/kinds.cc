// What the CUDA driver allocates in less usual ways. After each line of output but the last it waits for SIGUSR2.
#include "waits.h"

#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

static const char image[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                            ".visible .global .align 8 .b8 table[4096];\n"
                            ".visible .global .attribute(.managed) .align 8 .b8 shared[2048];\n";

static const size_t MIB = size_t(1) << 20;

// A process that allocates memory, hands it over, and keeps it until it is told to end.
static pid_t start_owner(CUipcMemHandle *handle, int *keep) {
    int from[2], to[2];
    expect(pipe(from) == 0 && pipe(to) == 0);
    pid_t owner = fork();
    if (owner == 0) {
        CUcontext context;
        CUdeviceptr memory;
        close(to[1]);
        expect(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
        expect(cuCtxSetCurrent(context) == CUDA_SUCCESS && cuMemAlloc(&memory, 3 * MIB) == CUDA_SUCCESS);
        expect(cuIpcGetMemHandle(handle, memory) == CUDA_SUCCESS);
        expect(write(from[1], handle, sizeof *handle) == sizeof *handle);
        char nothing;
        _exit(read(to[0], &nothing, 1) == 0 ? 0 : 1);
    }
    close(to[0]);
    expect(read(from[0], handle, sizeof *handle) == sizeof *handle);
    *keep = to[1];
    return owner;
}

int main() {
    wait_by_signal();
    CUipcMemHandle handle;
    int keep;
    const pid_t owner = start_owner(&handle, &keep);

    CUcontext context, own;
    expect(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    expect(cuCtxSetCurrent(context) == CUDA_SUCCESS);

    CUdeviceptr imported, table, shared;
    size_t bytes;
    expect(cuIpcOpenMemHandle(&imported, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS);
    CUDA_ARRAY3D_DESCRIPTOR shape = {};
    shape.Width = 32, shape.Height = 16, shape.Depth = 8, shape.Format = CU_AD_FORMAT_FLOAT, shape.NumChannels = 1;
    CUarray array;
    CUmipmappedArray mipmapped;
    expect(cuArray3DCreate(&array, &shape) == CUDA_SUCCESS);
    expect(cuMipmappedArrayCreate(&mipmapped, &shape, 2) == CUDA_SUCCESS);
    CUlibrary library;
    expect(cuLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0) == CUDA_SUCCESS);
    expect(cuLibraryGetGlobal(&table, &bytes, library, "table") == CUDA_SUCCESS && bytes == 4096);
    expect(cuLibraryGetManaged(&shared, &bytes, library, "shared") == CUDA_SUCCESS && bytes == 2048);
    CUgraph graph;
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS allocation = {};
    allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    allocation.poolProps.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 };
    allocation.bytesize = 5 * MIB;
    expect(cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
    expect(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &allocation) == CUDA_SUCCESS && allocation.dptr);
    CUgraphNodeParams of_any_kind = {};
    of_any_kind.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    of_any_kind.alloc.poolProps = allocation.poolProps;
    of_any_kind.alloc.bytesize = 8 * MIB;
    expect(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &of_any_kind) == CUDA_SUCCESS && of_any_kind.alloc.dptr);
    wait_after("allocated");

    expect(cuIpcCloseMemHandle(imported) == CUDA_SUCCESS);
    expect(cuArrayDestroy(array) == CUDA_SUCCESS && cuMipmappedArrayDestroy(mipmapped) == CUDA_SUCCESS);
    expect(cuLibraryUnload(library) == CUDA_SUCCESS && cuGraphDestroy(graph) == CUDA_SUCCESS);
    expect(close(keep) == 0 && waitpid(owner, nullptr, 0) == owner);
    wait_after("freed");

    CUdeviceptr of_own, of_primary;
    CUctxCreateParams none = {};
    expect(cuMemAlloc(&of_primary, 7 * MIB) == CUDA_SUCCESS);
    expect(cuCtxCreate(&own, &none, 0, 0) == CUDA_SUCCESS && cuMemAlloc(&of_own, 6 * MIB) == CUDA_SUCCESS);
    wait_after("two contexts");
    expect(cuCtxDestroy(own) == CUDA_SUCCESS);
    wait_after("one context");
    expect(cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    wait_after("no context");
    puts("done");
}
