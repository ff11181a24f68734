// Graphs that are made node by node, and captured.
#include "groups.h"

void graphs() {
    begin("graphs");
    CUmodule module;
    CUfunction add;
    CUdeviceptr words, copy, inner;
    CUstream stream;
    CUgraph graph, captured;
    CUgraphExec exec;
    CUgraphNode fill_node, kernel_node, copy_node, alloc_node, free_node;
    CUstreamCaptureStatus status;
    uint64_t count = 100;
    size_t nodes;
    MUST(cuModuleLoadData(&module, ptx.c_str()));
    MUST(cuModuleGetFunction(&add, module, "add_one"));
    MUST(cuMemAlloc(&words, 400));
    MUST(cuMemAlloc(&copy, 400));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    SAY(cuGraphCreate(&graph, 0));
    CUDA_MEMSET_NODE_PARAMS fill = {words, 0, 20, 4, 100, 1};
    SAY(cuGraphAddMemsetNode(&fill_node, graph, nullptr, 0, &fill, context));
    void *parameters[] = {&words, &count};
    CUDA_KERNEL_NODE_PARAMS kernel = {};
    kernel.func = add, kernel.gridDimX = 2, kernel.gridDimY = kernel.gridDimZ = 1;
    kernel.blockDimX = 32, kernel.blockDimY = kernel.blockDimZ = 1, kernel.kernelParams = parameters;
    SAY(cuGraphAddKernelNode(&kernel_node, graph, &fill_node, 1, &kernel));
    CUDA_MEMCPY3D moved = {};
    moved.srcMemoryType = moved.dstMemoryType = CU_MEMORYTYPE_DEVICE, moved.srcDevice = words, moved.dstDevice = copy;
    moved.WidthInBytes = 400, moved.Height = moved.Depth = 1;
    SAY(cuGraphAddMemcpyNode(&copy_node, graph, &kernel_node, 1, &moved, context));
    SAY(cuGraphInstantiate(&exec, graph, 0));
    SAY(cuGraphLaunch(exec, stream));
    SAY(cuStreamSynchronize(stream));
    fact("filled, one more, copied", all_are(copy, 100, 21));
    SAY(cuGraphExecDestroy(exec));
    SAY(cuGraphDestroy(graph));

    MUST(cuGraphCreate(&graph, 0));
    CUDA_MEM_ALLOC_NODE_PARAMS memory = {};
    memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    memory.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    memory.bytesize = 400;
    SAY(cuGraphAddMemAllocNode(&alloc_node, graph, nullptr, 0, &memory));
    fact("it has an address", memory.dptr != 0);
    SAY(cuGraphAddMemFreeNode(&free_node, graph, &alloc_node, 1, memory.dptr));
    SAY(cuGraphInstantiate(&exec, graph, 0));
    SAY(cuGraphLaunch(exec, stream));
    SAY(cuStreamSynchronize(stream));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));

    SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SAY(cuStreamIsCapturing(stream, &status));
    number("status", status);
    SAY(cuMemsetD32Async(words, 30, 100, stream));
    SAY(cuLaunchKernel(add, 2, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
    SAY(cuMemAllocAsync(&inner, 400, stream));
    SAY(cuMemcpyDtoDAsync(inner, words, 400, stream));
    SAY(cuMemcpyDtoDAsync(copy, inner, 400, stream));
    SAY(cuMemFreeAsync(inner, stream));
    SAY(cuStreamEndCapture(stream, &captured));
    SAY(cuGraphGetNodes(captured, nullptr, &nodes));
    number("nodes", (long long)nodes);
    MUST(cuStreamIsCapturing(stream, &status));
    number("status", status);
    fact("nothing has run", all_are(copy, 100, 21));
    SAY(cuGraphInstantiate(&exec, captured, 0));
    SAY(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    SAY(cuGraphLaunch(exec, stream));
    SAY(cuStreamSynchronize(stream));
    fact("what was captured has run", all_are(copy, 100, 31));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(captured));
    MUST(cuStreamDestroy(stream));
    MUST(cuModuleUnload(module));
    MUST(cuMemFree(words));
    MUST(cuMemFree(copy));
}
