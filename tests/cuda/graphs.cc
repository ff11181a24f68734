// Entry points for graphs, and for the capture of what is put into a stream.
#include "graphs.h"

#include <string.h>

#include "allocations.h"
#include "call.h"
#include "contexts.h"
#include "copies.h"
#include "devices.h"
#include "fills.h"
#include "launches.h"
#include "live.h"
#include "pools.h"

namespace test_double {

std::shared_ptr<GraphMemory> GraphMemory::create(CUmemoryPool pool, int device, size_t bytes) {
    bool is_managed = pool != nullptr && pool->properties.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    auto *made = test_double::allocate(Kind::GRAPH, device, is_managed ? NO_DEVICE : device, nullptr, bytes);
    return made == nullptr ? nullptr : std::shared_ptr<GraphMemory>(new GraphMemory(made->start));
}

GraphMemory::~GraphMemory() {
    Locked locked;
    if (allocation_at(address) != nullptr) end_allocation(address);
}

static CUgraphNode add_node(CUgraph graph, CUgraphNodeType type, Work work, std::vector<CUgraphNode> dependencies) {
    Locked locked;
    CUgraphNode node = Live<CUgraphNode_st>::create(CUgraphNode_st{graph, type, std::move(work), std::move(dependencies)});
    graph->nodes.push_back(node);
    return node;
}

CUresult Capture::add(CUgraphNodeType type, Work work) {
    std::vector<CUgraphNode> before;
    if (last != nullptr) before.push_back(last);
    last = add_node(graph, type, std::move(work), before);
    return CUDA_SUCCESS;
}

// Each run finds the memory as new.
static Work filling_memory(std::shared_ptr<GraphMemory> memory, size_t bytes) {
    return [=] { memset(at<void>(memory->address), 0xa5, bytes); };
}

CUresult Capture::allocate(CUmemoryPool pool, size_t bytes, CUdeviceptr *address) {
    auto memory = GraphMemory::create(pool, origin->context->device, bytes);
    if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = memory->address;
    return add(CU_GRAPH_NODE_TYPE_MEM_ALLOC, filling_memory(memory, bytes));
}

} // namespace test_double

using namespace test_double;

CUgraph_st::~CUgraph_st() {
    for (CUgraphNode node : nodes) Live<CUgraphNode_st>::destroy(node);
}

static bool exists(CUgraph graph) { return Live<CUgraph_st>::has(graph); }

// Adds a node after these, if they are the graph's.
static CUresult add(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, CUgraphNodeType type, Work work) {
    if (node == nullptr || !exists(graph) || (after == nullptr && count != 0)) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> dependencies(after, after + count);
    for (CUgraphNode one : dependencies)
        if (!Live<CUgraphNode_st>::has(one) || one->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    *node = add_node(graph, type, std::move(work), std::move(dependencies));
    return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
    ENTER(INITIALISED);
    if (graph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    Locked locked;
    *graph = Live<CUgraph_st>::create();
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
    ENTER(INITIALISED);
    Locked locked;
    if (!exists(graph)) return CUDA_ERROR_INVALID_VALUE;
    Live<CUgraph_st>::destroy(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count) {
    ENTER(INITIALISED);
    Locked locked;
    return add(node, graph, after, count, CU_GRAPH_NODE_TYPE_EMPTY, [] {});
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS *what) {
    ENTER(A_CONTEXT);
    if (what == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (what->extra != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    CUfunction function = what->func != nullptr ? what->func : reinterpret_cast<CUfunction>(what->kern);
    Locked locked;
    Work work;
    CUresult result = prepare({function,
                               {what->gridDimX, what->gridDimY, what->gridDimZ},
                               {what->blockDimX, what->blockDimY, what->blockDimZ},
                               what->kernelParams},
                              work);
    return result == CUDA_SUCCESS ? add(node, graph, after, count, CU_GRAPH_NODE_TYPE_KERNEL, std::move(work)) : result;
}

// Of copies only those in a row: one row, between host and device.
CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, const CUDA_MEMCPY3D *what,
                              CUcontext) {
    ENTER(A_CONTEXT);
    if (what == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto is_plain = [](CUmemorytype type) { return type != CU_MEMORYTYPE_ARRAY; };
    if (what->Height > 1 || what->Depth > 1 || !is_plain(what->srcMemoryType) || !is_plain(what->dstMemoryType))
        return CUDA_ERROR_NOT_SUPPORTED;
    auto start = [](CUmemorytype type, const void *host, CUdeviceptr device, size_t x) {
        return (type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : device) + x;
    };
    CUdeviceptr from = start(what->srcMemoryType, what->srcHost, what->srcDevice, what->srcXInBytes);
    CUdeviceptr to = start(what->dstMemoryType, what->dstHost, what->dstDevice, what->dstXInBytes);
    Locked locked;
    bool may = is_readable(from, what->WidthInBytes, what->srcMemoryType == CU_MEMORYTYPE_DEVICE) &&
               is_writable(to, what->WidthInBytes, what->dstMemoryType == CU_MEMORYTYPE_DEVICE);
    if (!may) return CUDA_ERROR_INVALID_VALUE;
    return add(node, graph, after, count, CU_GRAPH_NODE_TYPE_MEMCPY, copying(to, from, what->WidthInBytes));
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS *what, CUcontext) {
    ENTER(A_CONTEXT);
    if (what == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Fill fill{what->dst, what->value, what->elementSize, what->width, what->height, what->pitch};
    Locked locked;
    CUresult result = check(fill);
    return result == CUDA_SUCCESS ? add(node, graph, after, count, CU_GRAPH_NODE_TYPE_MEMSET, filling(fill)) : result;
}

// The parameters have two versions, with the same members.
template <typename Parameters>
static CUresult add_allocation(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, Parameters *what) {
    if (what == nullptr || what->bytesize == 0 || what->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        what->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(what->poolProps.location.id)) return CUDA_ERROR_INVALID_DEVICE;
    Locked locked;
    auto memory = GraphMemory::create(nullptr, what->poolProps.location.id, what->bytesize);
    if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    what->dptr = memory->address;
    return add(node, graph, after, count, CU_GRAPH_NODE_TYPE_MEM_ALLOC, filling_memory(memory, what->bytesize));
}

static CUresult add_release(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, CUdeviceptr address) {
    Locked locked;
    if (allocation_at(address) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return add(node, graph, after, count, CU_GRAPH_NODE_TYPE_MEM_FREE, [] {});
}

// The kinds of node that allocate and free; the others have functions of their own.
static CUresult add_of_kind(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, CUgraphNodeParams *what) {
    if (what == nullptr) return CUDA_ERROR_INVALID_VALUE;
    switch (what->type) {
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return add_allocation(node, graph, after, count, &what->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return add_release(node, graph, after, count, what->free.dptr);
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS *what) {
    ENTER(A_CONTEXT);
    return add_allocation(node, graph, after, count, what);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, CUdeviceptr address) {
    ENTER(A_CONTEXT);
    return add_release(node, graph, after, count, address);
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, CUgraphNodeParams *what) {
    ENTER(A_CONTEXT);
    return add_of_kind(node, graph, after, count, what);
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *, size_t count,
                           CUgraphNodeParams *what) {
    ENTER(A_CONTEXT);
    return add_of_kind(node, graph, after, count, what);
}

// Its memory goes with the graph.
CUresult cuDeviceGraphMemTrim(CUdevice device) {
    ENTER(INITIALISED);
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    ENTER(INITIALISED);
    Locked locked;
    if (!exists(graph) || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (size_t number = 0; nodes != nullptr && number < *count; ++number)
        nodes[number] = number < graph->nodes.size() ? graph->nodes[number] : nullptr;
    if (nodes == nullptr || *count > graph->nodes.size()) *count = graph->nodes.size();
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
    ENTER(INITIALISED);
    Locked locked;
    if (!Live<CUgraphNode_st>::has(node) || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *type = node->type;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long) {
    ENTER(INITIALISED);
    Locked locked;
    if (!exists(graph) || made == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *made = Live<CUgraphExec_st>::create();
    for (CUgraphNode node : graph->nodes) (*made)->work.push_back(node->run);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    ENTER(INITIALISED);
    Locked locked;
    if (!Live<CUgraphExec_st>::has(exec)) return CUDA_ERROR_INVALID_VALUE;
    Live<CUgraphExec_st>::destroy(exec);
    return CUDA_SUCCESS;
}

static CUresult check(CUgraphExec exec, CUstream stream) {
    Locked locked;
    if (!Live<CUgraphExec_st>::has(exec)) return CUDA_ERROR_INVALID_VALUE;
    return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream given) {
    ENTER(INITIALISED);
    return check(exec, stream_meant(given));
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream given) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    CUresult result = check(exec, stream);
    if (result != CUDA_SUCCESS) return result;
    Locked locked;
    return submit(stream, CU_GRAPH_NODE_TYPE_GRAPH, [all = exec->work] {
        for (const Work &work : all) work();
    });
}

CUresult cuStreamBeginCapture_v2(CUstream given, CUstreamCaptureMode mode) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream == stream->context->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    Locked locked;
    CUgraph graph = Live<CUgraph_st>::create();
    bool forbids_default = (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
    stream->capture = std::make_shared<Capture>(Capture{graph, stream, forbids_default});
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream given, CUgraph *graph) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    if (stream->capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    Locked locked;
    auto ended = stream->capture;
    *graph = ended->graph;
    for (CUstream one : streams_of(stream->context))
        if (one->capture == ended) one->capture = nullptr;
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream given, CUstreamCaptureStatus *status) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *status = stream->capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}
