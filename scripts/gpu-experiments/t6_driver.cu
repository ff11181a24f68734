// T6, a program of the driver's own interface, which it finds in the way its argument says:
//   dlsym         each function by dlsym
//   procaddress   by cuGetProcAddress, itself found by asking cuGetProcAddress for it
//   procaddress1  by the first version of cuGetProcAddress, which has one argument less
//   entrypoint    by cudaGetDriverEntryPointByVersion of the runtime
//   linked        by the linker; only where it was compiled with T6_LINKED and linked with libcuda.so.1
// At most 256 MiB at a time.
#include "t6_phase.h"

// With the version of CUDA that this declaration is from: for a later one cuGetProcAddress may give a function with
// other arguments. That of 13.0 for cuCtxSynchronize, for example, has one more.
#define T6_CALLS(X)                                                                                                    \
    X(cuInit, 2000)                                                                                                    \
    X(cuDeviceGet, 2000)                                                                                               \
    X(cuDevicePrimaryCtxRetain, 7000)                                                                                  \
    X(cuCtxSetCurrent, 4000)                                                                                           \
    X(cuCtxSynchronize, 2000)                                                                                          \
    X(cuStreamCreate, 2000)                                                                                            \
    X(cuStreamSynchronize, 2000)                                                                                       \
    X(cuMemGetInfo, 3020)                                                                                              \
    X(cuMemsetD8, 3020)                                                                                                \
    X(cuMemAlloc, 3020)                                                                                                \
    X(cuMemAllocPitch, 3020)                                                                                           \
    X(cuMemAllocManaged, 6000)                                                                                         \
    X(cuMemAllocHost, 3020)                                                                                            \
    X(cuMemHostAlloc, 2020)                                                                                            \
    X(cuMemFree, 3020)                                                                                                 \
    X(cuMemFreeHost, 2000)                                                                                             \
    X(cuMemAllocAsync, 11020)                                                                                          \
    X(cuMemAllocFromPoolAsync, 11020)                                                                                  \
    X(cuMemFreeAsync, 11020)                                                                                           \
    X(cuDeviceGetDefaultMemPool, 11020)                                                                                \
    X(cuMemPoolCreate, 11020)                                                                                          \
    X(cuMemPoolTrimTo, 11020)                                                                                          \
    X(cuMemPoolDestroy, 11020)                                                                                         \
    X(cuMemAddressReserve, 10020)                                                                                      \
    X(cuMemAddressFree, 10020)                                                                                         \
    X(cuMemCreate, 10020)                                                                                              \
    X(cuMemRelease, 10020)                                                                                             \
    X(cuMemMap, 10020)                                                                                                 \
    X(cuMemUnmap, 10020)                                                                                               \
    X(cuMemSetAccess, 10020)                                                                                           \
    X(cuMemRetainAllocationHandle, 11000)                                                                              \
    X(cuArrayCreate, 3020)                                                                                             \
    X(cuArray3DCreate, 3020)                                                                                           \
    X(cuArrayDestroy, 2000)                                                                                            \
    X(cuMipmappedArrayCreate, 5000)                                                                                    \
    X(cuMipmappedArrayDestroy, 5000)                                                                                   \
    X(cuGraphCreate, 10000)                                                                                            \
    X(cuGraphAddMemAllocNode, 11040)                                                                                   \
    X(cuGraphAddMemFreeNode, 11040)                                                                                    \
    X(cuGraphAddNode, 12030)                                                                                           \
    X(cuGraphInstantiateWithFlags, 11040)                                                                              \
    X(cuGraphLaunch, 10000)                                                                                            \
    X(cuGraphExecDestroy, 10000)                                                                                       \
    X(cuGraphDestroy, 10000)                                                                                           \
    X(cuDeviceGraphMemTrim, 11040)                                                                                     \
    X(cuModuleLoadData, 2000)                                                                                          \
    X(cuModuleGetGlobal, 3020)                                                                                         \
    X(cuModuleUnload, 2000)

// The same calls for the default stream of each thread.
#define T6_PER_THREAD_CALLS(X)                                                                                         \
    X(cuMemAllocAsync, 11020)                                                                                          \
    X(cuMemAllocFromPoolAsync, 11020)                                                                                  \
    X(cuMemFreeAsync, 11020)                                                                                           \
    X(cuStreamSynchronize, 7000)

// The header names these only for programs that have no other default stream.
extern "C" {
CUresult CUDAAPI cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream);
CUresult CUDAAPI cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult CUDAAPI cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream);
CUresult CUDAAPI cuStreamSynchronize_ptsz(CUstream stream);
}

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)

namespace {

struct Calls {
#define MEMBER(name, version) decltype(&::name) name = nullptr;
    T6_CALLS(MEMBER)
    struct {
        T6_PER_THREAD_CALLS(MEMBER)
    } per_thread;
#undef MEMBER
};

Calls cu;
bool incomplete = false;

// The symbol has a suffix of its version or of its default stream; the base is the name without them.
struct Name {
    const char *symbol, *base;
    int version;
    bool per_thread;
};

using Find = std::function<void *(const Name &name)>;

template <typename Function> void find_one(const Find &find, Function &function, const Name &name) {
    function = reinterpret_cast<Function>(find(name));
    if (function != nullptr) return;
    incomplete = true;
    note("the driver has no %s", name.symbol);
}

void find_all(const Find &find) {
#define FIND(name, version) find_one(find, cu.name, {TEXT(name), #name, version, false});
    T6_CALLS(FIND)
#undef FIND
#define FIND(name, version) find_one(find, cu.per_thread.name, {TEXT(name) "_ptsz", #name, version, true});
    T6_PER_THREAD_CALLS(FIND)
#undef FIND
}

void *open_driver() {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) broken("dlopen", dlerror(), __FILE__, __LINE__);
    return library;
}

void *symbol_of(void *library, const char *symbol) {
    void *found = dlsym(library, symbol);
    if (found == nullptr) broken(symbol, dlerror(), __FILE__, __LINE__);
    return found;
}

void find_by_dlsym() {
    void *library = open_driver();
    find_all([=](const Name &name) { return dlsym(library, name.symbol); });
}

cuuint64_t stream_flag(const Name &name) {
    return name.per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_DEFAULT;
}

using ProcAddress = CUresult (*)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
using ProcAddress1 = CUresult (*)(const char *, void **, int, cuuint64_t);

void find_by_procaddress() {
    void *itself = nullptr;
    auto first = reinterpret_cast<ProcAddress>(symbol_of(open_driver(), "cuGetProcAddress_v2"));
    CU(first("cuGetProcAddress", &itself, 12000, CU_GET_PROC_ADDRESS_DEFAULT, nullptr));
    auto ask = reinterpret_cast<ProcAddress>(itself);
    find_all([=](const Name &name) {
        void *found = nullptr;
        CUdriverProcAddressQueryResult status;
        CUresult error = ask(name.base, &found, name.version, stream_flag(name), &status);
        return error == CUDA_SUCCESS ? found : nullptr;
    });
}

void find_by_procaddress_1() {
    auto ask = reinterpret_cast<ProcAddress1>(symbol_of(open_driver(), "cuGetProcAddress"));
    find_all([=](const Name &name) {
        void *found = nullptr;
        CUresult error = ask(name.base, &found, name.version, stream_flag(name));
        return error == CUDA_SUCCESS ? found : nullptr;
    });
}

void find_by_entrypoint() {
    find_all([](const Name &name) -> void * {
        void *found = nullptr;
        cudaDriverEntryPointQueryResult status;
        unsigned long long flag = name.per_thread ? cudaEnablePerThreadDefaultStream : cudaEnableDefault;
        cudaError_t error = cudaGetDriverEntryPointByVersion(name.base, &found, name.version, flag, &status);
        return error == cudaSuccess && status == cudaDriverEntryPointSuccess ? found : nullptr;
    });
}

#ifdef T6_LINKED
void find_by_linking() {
#define LINKED(name, version) cu.name = &::name;
    T6_CALLS(LINKED)
#undef LINKED
#define LINKED(name, version) cu.per_thread.name = &name##_ptsz;
    T6_PER_THREAD_CALLS(LINKED)
#undef LINKED
}
#endif

bool find(const std::string &way) {
    if (way == "dlsym")
        find_by_dlsym();
    else if (way == "procaddress")
        find_by_procaddress();
    else if (way == "procaddress1")
        find_by_procaddress_1();
    else if (way == "entrypoint")
        find_by_entrypoint();
#ifdef T6_LINKED
    else if (way == "linked")
        find_by_linking();
#endif
    else
        return false;
    return true;
}

void must(CUresult error) {
    if (error != CUDA_SUCCESS) throw Failed{cu_name(error)};
}

size_t free_bytes() {
    size_t free, total;
    must(cu.cuMemGetInfo(&free, &total));
    return free;
}

void linear_memory(Phases &phases) {
    CUdeviceptr pointers[4] = {};
    phases.run(
        "alloc", "device", slack_of(4),
        [&] {
            for (CUdeviceptr &pointer : pointers) must(cu.cuMemAlloc(&pointer, 64 * MIB));
            return 4 * 64 * MIB;
        },
        [&] {
            for (CUdeviceptr pointer : pointers) must(cu.cuMemFree(pointer));
        });
    CUdeviceptr pointer = 0;
    auto release = [&] { must(cu.cuMemFree(pointer)); };
    phases.run(
        "alloc-pitch", "device", slack_of(1),
        [&] {
            size_t pitch, height = 32768;
            must(cu.cuMemAllocPitch(&pointer, &pitch, 4000, height, 4));
            return pitch * height;
        },
        release);
    phases.run(
        "alloc-managed", "managed", slack_of(1),
        [&] {
            must(cu.cuMemAllocManaged(&pointer, 64 * MIB, CU_MEM_ATTACH_GLOBAL));
            must(cu.cuMemsetD8(pointer, 1, 64 * MIB));
            return 64 * MIB;
        },
        release);
    void *first = nullptr, *second = nullptr;
    phases.run(
        "alloc-host", "host", slack_of(2),
        [&] {
            must(cu.cuMemAllocHost(&first, 32 * MIB));
            must(cu.cuMemHostAlloc(&second, 32 * MIB, CU_MEMHOSTALLOC_DEVICEMAP));
            return 64 * MIB;
        },
        [&] {
            must(cu.cuMemFreeHost(first));
            must(cu.cuMemFreeHost(second));
        });
}

CUmemPoolProps pool_of(CUdevice device) {
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    return properties;
}

void stream_ordered_memory(Phases &phases, CUdevice device, CUstream stream) {
    constexpr size_t bytes = 128 * MIB, slack = slack_of(1) + POOL_CHUNK;
    CUdeviceptr pointer = 0;
    CUmemoryPool pool;
    must(cu.cuDeviceGetDefaultMemPool(&pool, device));
    phases.run(
        "async", "pool", slack,
        [&] {
            must(cu.cuMemAllocAsync(&pointer, bytes, stream));
            return bytes;
        },
        [&] {
            must(cu.cuMemFreeAsync(pointer, stream));
            must(cu.cuStreamSynchronize(stream));
            must(cu.cuMemPoolTrimTo(pool, 0));
        });
    phases.run(
        "async-per-thread", "pool", slack,
        [&] {
            must(cu.per_thread.cuMemAllocAsync(&pointer, bytes, nullptr));
            return bytes;
        },
        [&] {
            must(cu.per_thread.cuMemFreeAsync(pointer, nullptr));
            must(cu.per_thread.cuStreamSynchronize(nullptr));
            must(cu.cuMemPoolTrimTo(pool, 0));
        });

    CUmemoryPool made = nullptr;
    CUdeviceptr second = 0;
    phases.run(
        "async-from-pool", "pool", slack + SLAB,
        [&] {
            CUmemPoolProps properties = pool_of(device);
            must(cu.cuMemPoolCreate(&made, &properties));
            must(cu.cuMemAllocFromPoolAsync(&pointer, bytes, made, stream));
            must(cu.per_thread.cuMemAllocFromPoolAsync(&second, bytes, made, nullptr));
            return 2 * bytes;
        },
        [&] {
            must(cu.cuMemFreeAsync(pointer, stream));
            must(cu.per_thread.cuMemFreeAsync(second, nullptr));
            must(cu.cuStreamSynchronize(stream));
            must(cu.per_thread.cuStreamSynchronize(nullptr));
            must(cu.cuMemPoolDestroy(made));
        });
}

// Physical memory lives as long as something holds its handle or maps it.
void virtual_memory(Phases &phases, CUdevice device) {
    constexpr size_t bytes = 128 * MIB;
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handles[2] = {};
    auto create_and_map = [&] {
        must(cu.cuMemAddressReserve(&address, 2 * bytes, 0, 0, 0));
        for (size_t i = 0; i < 2; ++i) {
            must(cu.cuMemCreate(&handles[i], bytes, &properties, 0));
            must(cu.cuMemMap(address + i * bytes, bytes, 0, handles[i], 0));
        }
        must(cu.cuMemSetAccess(address, 2 * bytes, &access, 1));
        must(cu.cuMemsetD8(address, 1, 2 * bytes));
        // To unmap does not wait for it.
        must(cu.cuStreamSynchronize(nullptr));
        return 2 * bytes;
    };
    auto release_handles = [&] {
        for (CUmemGenericAllocationHandle handle : handles) must(cu.cuMemRelease(handle));
    };
    auto unmap = [&] { must(cu.cuMemUnmap(address, 2 * bytes)); };
    auto free_address = [&] { must(cu.cuMemAddressFree(address, 2 * bytes)); };
    phases.run("vmm", "vmm", slack_of(2), create_and_map, [&] {
        unmap();
        release_handles();
        free_address();
    });
    phases.run(
        "vmm-only-mapped", "vmm", slack_of(2),
        [&] {
            size_t asked = create_and_map();
            release_handles();
            return asked;
        },
        [&] {
            unmap();
            free_address();
        });
    phases.run(
        "vmm-only-held", "vmm", slack_of(2),
        [&] {
            size_t asked = create_and_map();
            must(cu.cuMemRetainAllocationHandle(&handles[0], reinterpret_cast<void *>(address)));
            must(cu.cuMemRelease(handles[0]));
            unmap();
            free_address();
            return asked;
        },
        release_handles);
}

void arrays(Phases &phases) {
    CUarray array = nullptr;
    auto release = [&] { must(cu.cuArrayDestroy(array)); };
    phases.run(
        "array", "array", slack_of(1),
        [&] {
            CUDA_ARRAY_DESCRIPTOR shape = {};
            shape.Width = shape.Height = 4096;
            shape.Format = CU_AD_FORMAT_HALF;
            shape.NumChannels = 4;
            must(cu.cuArrayCreate(&array, &shape));
            return 4096 * 4096 * size_t(8);
        },
        release);
    CUDA_ARRAY3D_DESCRIPTOR shape = {};
    shape.Width = 2048;
    shape.Height = 2048;
    shape.Depth = 4;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 4;
    shape.Flags = CUDA_ARRAY3D_LAYERED;
    phases.run(
        "array-layered", "array", slack_of(1),
        [&] {
            must(cu.cuArray3DCreate(&array, &shape));
            return 4 * 2048 * 2048 * size_t(16);
        },
        release);
    CUmipmappedArray levels = nullptr;
    phases.run(
        "array-mipmapped", "array", slack_of(4),
        [&] {
            CUDA_ARRAY3D_DESCRIPTOR largest = shape;
            largest.Depth = 0;
            largest.Flags = 0;
            must(cu.cuMipmappedArrayCreate(&levels, &largest, 12));
            return 2048 * 2048 * size_t(16); // The other levels are a third of it.
        },
        [&] { must(cu.cuMipmappedArrayDestroy(levels)); });
}

void graph_memory(Phases &phases, CUdevice device, CUstream stream) {
    constexpr size_t bytes = 128 * MIB, slack = slack_of(1) + POOL_CHUNK;
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    auto launch = [&](CUgraphNode allocation, CUdeviceptr pointer) {
        CUgraphNode free;
        must(cu.cuGraphAddMemFreeNode(&free, graph, &allocation, 1, pointer));
        must(cu.cuGraphInstantiateWithFlags(&executable, graph, 0));
        must(cu.cuGraphLaunch(executable, stream));
        return bytes;
    };
    auto release = [&] {
        must(cu.cuGraphExecDestroy(executable));
        must(cu.cuGraphDestroy(graph));
        must(cu.cuDeviceGraphMemTrim(device));
    };
    phases.run(
        "graph-alloc-node", "graph", slack,
        [&] {
            CUgraphNode node;
            CUDA_MEM_ALLOC_NODE_PARAMS parameters = {};
            parameters.poolProps = pool_of(device);
            parameters.bytesize = bytes;
            must(cu.cuGraphCreate(&graph, 0));
            must(cu.cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &parameters));
            return launch(node, parameters.dptr);
        },
        release);
    phases.run(
        "graph-node", "graph", slack,
        [&] {
            CUgraphNode node;
            CUgraphNodeParams parameters = {};
            parameters.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
            parameters.alloc.poolProps = pool_of(device);
            parameters.alloc.bytesize = bytes;
            must(cu.cuGraphCreate(&graph, 0));
            must(cu.cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &parameters));
            return launch(node, parameters.alloc.dptr);
        },
        release);
}

// Variables of a module: memory that no entry point for allocation takes. To the record, as an overhead.
void module_memory(Phases &phases) {
    const char *program = ".version 8.0\n.target sm_80\n.address_size 64\n"
                          ".visible .global .align 16 .b8 table[67108864];\n";
    try {
        size_t before = phases.settled(), bytes;
        CUmodule module;
        CUdeviceptr table;
        must(cu.cuModuleLoadData(&module, program));
        must(cu.cuModuleGetGlobal(&table, &bytes, module, "table"));
        phases.overhead("module-of-64-MiB", before, phases.settled());
        must(cu.cuModuleUnload(module));
    } catch (const Failed &failed) {
        note("module: not measured, %s", failed.error.c_str());
    }
}

void all_phases(CUdevice device) {
    CUstream stream;
    Phases phases([] { must(cu.cuCtxSynchronize()); }, free_bytes);
    size_t free, total;
    must(cu.cuMemGetInfo(&free, &total));
    phases.overhead("context-and-others", total, free);
    must(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    linear_memory(phases);
    stream_ordered_memory(phases, device, stream);
    virtual_memory(phases, device);
    arrays(phases);
    graph_memory(phases, device, stream);
    module_memory(phases);
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 2 || !find(argv[1])) {
        fprintf(stderr, "usage: %s dlsym|procaddress|procaddress1|entrypoint|linked\n", argv[0]);
        return 2;
    }
    if (incomplete) return 3;
    try {
        CUdevice device;
        CUcontext context;
        must(cu.cuInit(0));
        must(cu.cuDeviceGet(&device, 0));
        must(cu.cuDevicePrimaryCtxRetain(&context, device));
        must(cu.cuCtxSetCurrent(context));
        all_phases(device);
    } catch (const Failed &failed) {
        broken("outside a phase", failed.error.c_str(), __FILE__, __LINE__);
    }
    puts("done");
    return 0;
}
