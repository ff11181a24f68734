// A library for LD_PRELOAD that sees a program allocate device memory, whichever way the program reaches the driver:
// ELF symbols, dlsym, cuGetProcAddress, or cudaGetDriverEntryPoint (which asks cuGetProcAddress). The driver's own
// resolver is always asked first and its answer replaced only when it succeeded, so that a program sees the errors it
// always saw. Counts calls and bytes of each entry point and the bytes that live, and writes them to the file
// T6_REPORT: when the program calls t6_report, and at exit.
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef __x86_64__
#error "dlsym is replaced by x86-64 instructions here"
#endif

// The first version of these two is hooked as well, under the name that the header gives to the second.
#undef cuGetProcAddress
#undef cuGraphAddNode

#define EXPORTED __attribute__((visibility("default")))

// Symbol; the name that cuGetProcAddress is asked for; the first and last cudaVersion that means this symbol; which
// default stream it is for. A symbol that takes a stream has a second form, _ptsz, which is another function.
#define HOOKS(X)                                                                                                       \
    X(cuGetProcAddress, "cuGetProcAddress", 11030, 11999, EITHER)                                                      \
    X(cuGetProcAddress_v2, "cuGetProcAddress", 12000, INT32_MAX, EITHER)                                               \
    X(cuMemAlloc_v2, "cuMemAlloc", 3020, INT32_MAX, EITHER)                                                            \
    X(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, INT32_MAX, EITHER)                                                  \
    X(cuMemAllocManaged, "cuMemAllocManaged", 6000, INT32_MAX, EITHER)                                                 \
    X(cuMemAllocHost_v2, "cuMemAllocHost", 3020, INT32_MAX, EITHER)                                                    \
    X(cuMemHostAlloc, "cuMemHostAlloc", 2020, INT32_MAX, EITHER)                                                       \
    X(cuMemAllocAsync, "cuMemAllocAsync", 11020, INT32_MAX, LEGACY)                                                    \
    X(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020, INT32_MAX, PER_THREAD)                                           \
    X(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, INT32_MAX, LEGACY)                                    \
    X(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020, INT32_MAX, PER_THREAD)                           \
    X(cuMemFree_v2, "cuMemFree", 3020, INT32_MAX, EITHER)                                                              \
    X(cuMemFreeAsync, "cuMemFreeAsync", 11020, INT32_MAX, LEGACY)                                                      \
    X(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020, INT32_MAX, PER_THREAD)                                             \
    X(cuMemFreeHost, "cuMemFreeHost", 2000, INT32_MAX, EITHER)                                                         \
    X(cuMemCreate, "cuMemCreate", 10020, INT32_MAX, EITHER)                                                            \
    X(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", 10020, INT32_MAX, EITHER)                      \
    X(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, INT32_MAX, EITHER)                            \
    X(cuMemRelease, "cuMemRelease", 10020, INT32_MAX, EITHER)                                                          \
    X(cuMemMap, "cuMemMap", 10020, INT32_MAX, EITHER)                                                                  \
    X(cuMemUnmap, "cuMemUnmap", 10020, INT32_MAX, EITHER)                                                              \
    X(cuArrayCreate_v2, "cuArrayCreate", 3020, INT32_MAX, EITHER)                                                      \
    X(cuArray3DCreate_v2, "cuArray3DCreate", 3020, INT32_MAX, EITHER)                                                  \
    X(cuArrayDestroy, "cuArrayDestroy", 2000, INT32_MAX, EITHER)                                                       \
    X(cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 5000, INT32_MAX, EITHER)                                       \
    X(cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", 5000, INT32_MAX, EITHER)                                     \
    X(cuGraphAddMemAllocNode, "cuGraphAddMemAllocNode", 11040, INT32_MAX, EITHER)                                      \
    X(cuGraphAddNode, "cuGraphAddNode", 12020, 12029, EITHER)                                                          \
    X(cuGraphAddNode_v2, "cuGraphAddNode", 12030, INT32_MAX, EITHER)

// What the header does not declare: first versions, and the forms for the per-thread default stream.
EXPORTED CUresult cuGetProcAddress(const char *, void **, int, cuuint64_t);
EXPORTED CUresult cuGraphAddNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraphNodeParams *);
EXPORTED CUresult cuMemAllocAsync_ptsz(CUdeviceptr *, size_t, CUstream);
EXPORTED CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
EXPORTED CUresult cuMemFreeAsync_ptsz(CUdeviceptr, CUstream);
EXPORTED void t6_report(const char *what);

enum {
#define INDEX(symbol, ...) AT_##symbol,
    HOOKS(INDEX)
#undef INDEX
    HOOK_COUNT,
    NOWHERE = -1
};

enum stream { EITHER, LEGACY, PER_THREAD };

struct hook {
    const char *symbol, *base;
    int first, last;
    enum stream stream;
};

static const struct hook hooks[HOOK_COUNT] = {
#define ROW(symbol, base, first, last, stream) {#symbol, base, first, last, stream},
    HOOKS(ROW)
#undef ROW
};

// How the program came to the driver's function.
enum path { BY_DLSYM, BY_PROCADDRESS, BY_LINKING, PATHS };

struct seen {
    atomic_ulong calls, bytes, failed;
    atomic_ulong resolved[PATHS];
    atomic_ulong other_addresses; // Resolved to another function than the first time: a path of its own in the driver.
};

static struct seen seen[HOOK_COUNT];
static _Atomic(void *) reals[HOOK_COUNT];
static void *const replacements[HOOK_COUNT];
static int blind = NOWHERE; // A hook that counts nothing, to show that the comparison would notice.
static pid_t owner;
static char report_path[4096];

// Set while the driver runs a hooked call: what it resolves or calls then is its own affair. Initial-exec, because a
// thread-local variable of another kind may allocate at its first use.
static __thread int inside __attribute__((tls_model("initial-exec")));

// ---- what lives ----

enum kind { DEVICE, MANAGED, HOST, POOL, VMM, GRAPH, ARRAY, UNCOUNTED, KINDS };
static const char *const kind_names[] = {"device", "managed", "host", "pool", "vmm", "graph", "array"};

// Keys of different spaces may be equal.
enum space { ADDRESS, HANDLE, ARRAY_HANDLE, MAPPING };

struct record {
    unsigned long long key, handle; // The handle that a mapping maps.
    size_t bytes;
    enum space space;
    enum kind kind;
    int holds, maps; // Of a handle: its memory lives as long as one of them does.
    unsigned next;   // In the chain of its bucket; 0 ends it.
};

enum { RECORDS_MAX = 1 << 16, BUCKETS = 1 << 14 };

// All under the lock. Record 0 is nobody's. Static, because a hook may not allocate from the program's heap.
static struct record records[RECORDS_MAX];
static unsigned buckets[BUCKETS];
static unsigned fresh = 1, spare;
static long long live[KINDS];
static unsigned long unknown_frees, twice, lost, unsized;
static atomic_flag locked = ATOMIC_FLAG_INIT;

static void lock(void) {
    while (atomic_flag_test_and_set_explicit(&locked, memory_order_acquire)) sched_yield();
}

static void unlock(void) { atomic_flag_clear_explicit(&locked, memory_order_release); }

// The place that points to the record of the key, or to the 0 that ends its chain.
static unsigned *place_of(enum space space, unsigned long long key) {
    unsigned long long mixed = (key + space) * 0x9e3779b97f4a7c15ull;
    unsigned *place = &buckets[(mixed >> 32) % BUCKETS];
    while (*place != 0 && (records[*place].key != key || records[*place].space != space))
        place = &records[*place].next;
    return place;
}

static void remove_at(unsigned *place) {
    unsigned at = *place;
    live[records[at].kind] -= (long long)records[at].bytes;
    *place = records[at].next;
    records[at].next = spare;
    spare = at;
}

static unsigned unused_record(void) {
    unsigned at = spare;
    if (at != 0)
        spare = records[at].next;
    else if (fresh < RECORDS_MAX)
        at = fresh++;
    return at;
}

static void insert(struct record record) {
    unsigned *place = place_of(record.space, record.key);
    if (*place != 0) {
        // Only a graph's address may come again without having been freed: its graph is gone.
        twice += records[*place].kind != GRAPH;
        remove_at(place);
        place = place_of(record.space, record.key);
    }
    unsigned at = unused_record();
    if (at == 0) {
        ++lost;
        return;
    }
    record.next = 0;
    records[at] = record;
    *place = at;
    live[record.kind] += (long long)record.bytes;
}

static void put(struct record record) {
    lock();
    insert(record);
    unlock();
}

// Takes the record away before the driver frees, so that the same address, allocated at once by another thread, is a
// new record. Memory of a graph stays: its node allocates again at the next launch.
static struct record take(enum space space, unsigned long long key) {
    struct record taken = {.kind = UNCOUNTED};
    lock();
    unsigned *place = place_of(space, key);
    if (*place != 0) {
        taken = records[*place];
        if (taken.kind != GRAPH) remove_at(place);
    }
    unlock();
    return taken;
}

// Changes what keeps the memory of a handle alive, and returns what it was: nothing, when the handle is unknown.
static struct record change(unsigned long long handle, int holds, int maps) {
    struct record before = {0};
    unsigned *place = place_of(HANDLE, handle);
    if (*place == 0) return before;
    struct record *record = &records[*place];
    before = *record;
    record->holds += holds;
    record->maps += maps;
    if (record->holds <= 0 && record->maps <= 0) remove_at(place);
    return before;
}

static struct record change_locked(unsigned long long handle, int holds, int maps) {
    lock();
    struct record before = change(handle, holds, maps);
    unlock();
    return before;
}

static bool was_known(struct record handle) { return handle.holds + handle.maps > 0; }

// An unmapping may span several mappings, so all records are looked at: few programs have many mappings.
static void unmapped(unsigned long long from, size_t bytes) {
    lock();
    for (unsigned at = 1; at < fresh; ++at) {
        struct record *record = &records[at];
        unsigned long long key = record->key, handle = record->handle;
        if (record->space != MAPPING || key < from || key - from >= bytes) continue;
        unsigned *place = place_of(MAPPING, key);
        if (*place != at) continue; // Free already, and only its fields are left.
        remove_at(place);
        change(handle, 0, -1);
    }
    unlock();
}

static void no_record_of_freed(void) {
    lock();
    ++unknown_frees;
    unlock();
}

// ---- counting ----

// Whether this call is the program's own and is to be counted. A failed call is counted as that and no more.
static bool counts(int at, CUresult result) {
    if (inside != 0 || at == blind) return false;
    if (result != CUDA_SUCCESS) ++seen[at].failed;
    return result == CUDA_SUCCESS;
}

static void count(int at, size_t bytes) {
    ++seen[at].calls;
    seen[at].bytes += bytes;
}

static void born(int at, enum kind kind, enum space space, unsigned long long key, size_t bytes) {
    count(at, bytes);
    put((struct record){.key = key, .bytes = bytes, .space = space, .kind = kind, .holds = 1});
}

// After the driver freed what `taken` was the record of.
static void died(int at, CUresult result, unsigned long long key, struct record taken) {
    if (result != CUDA_SUCCESS && taken.kind != UNCOUNTED && taken.kind != GRAPH) put(taken);
    if (!counts(at, result)) return;
    count(at, taken.kind != UNCOUNTED ? taken.bytes : 0);
    if (taken.kind == UNCOUNTED && key != 0) no_record_of_freed();
}

// ---- the driver's own functions ----

typedef void *dlsym_function(void *, const char *);

static dlsym_function *real_dlsym(void) {
    static _Atomic(dlsym_function *) found;
    dlsym_function *function = atomic_load(&found);
    if (function != NULL) return function;
    function = (dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (function == NULL) function = (dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    atomic_store(&found, function);
    return function;
}

// The symbol as it would be found if this library were not there: after it, or in a driver that only dlopen knows.
// Leaves no error for dlerror, unless there is no such symbol.
static void *look_up(const char *symbol) {
    dlsym_function *look = real_dlsym();
    if (look == NULL) return NULL;
    void *found = look(RTLD_NEXT, symbol);
    if (found != NULL) return found;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == NULL) return NULL;
    found = look(driver, symbol);
    dlclose(driver); // The program's own reference keeps it.
    if (found != NULL) dlerror();
    return found;
}

static void remember(int at, void *real, enum path path) {
    void *first = NULL;
    ++seen[at].resolved[path];
    if (!atomic_compare_exchange_strong(&reals[at], &first, real) && first != real) ++seen[at].other_addresses;
}

static void *real_of(int at) {
    void *real = atomic_load(&reals[at]);
    if (real != NULL) return real;
    real = look_up(hooks[at].symbol);
    if (real != NULL) remember(at, real, BY_LINKING);
    return real;
}

#define REAL(symbol)                                                                                                   \
    __typeof__(&symbol) real = (__typeof__(&symbol))real_of(AT_##symbol);                                              \
    if (real == NULL) return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED

#define CALL_REAL(...)                                                                                                 \
    ({                                                                                                                 \
        ++inside;                                                                                                      \
        CUresult called_ = real(__VA_ARGS__);                                                                          \
        --inside;                                                                                                      \
        called_;                                                                                                       \
    })

// The exported symbol is another name of a static function: an address of the exported one could be the program's.
#define EXPORT(symbol) EXPORTED extern __typeof__(symbol) symbol __attribute__((alias("hook_" #symbol)));

// ---- hooks: linear memory ----

static CUresult hook_cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    REAL(cuMemAlloc_v2);
    CUresult result = CALL_REAL(pointer, bytes);
    if (counts(AT_cuMemAlloc_v2, result)) born(AT_cuMemAlloc_v2, DEVICE, ADDRESS, *pointer, bytes);
    return result;
}

static CUresult hook_cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                                        unsigned element_bytes) {
    REAL(cuMemAllocPitch_v2);
    CUresult result = CALL_REAL(pointer, pitch, width, height, element_bytes);
    if (counts(AT_cuMemAllocPitch_v2, result))
        born(AT_cuMemAllocPitch_v2, DEVICE, ADDRESS, *pointer, *pitch * height);
    return result;
}

static CUresult hook_cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags) {
    REAL(cuMemAllocManaged);
    CUresult result = CALL_REAL(pointer, bytes, flags);
    if (counts(AT_cuMemAllocManaged, result)) born(AT_cuMemAllocManaged, MANAGED, ADDRESS, *pointer, bytes);
    return result;
}

static CUresult hook_cuMemAllocHost_v2(void **pointer, size_t bytes) {
    REAL(cuMemAllocHost_v2);
    CUresult result = CALL_REAL(pointer, bytes);
    if (counts(AT_cuMemAllocHost_v2, result)) born(AT_cuMemAllocHost_v2, HOST, ADDRESS, (uintptr_t)*pointer, bytes);
    return result;
}

static CUresult hook_cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    REAL(cuMemHostAlloc);
    CUresult result = CALL_REAL(pointer, bytes, flags);
    if (counts(AT_cuMemHostAlloc, result)) born(AT_cuMemHostAlloc, HOST, ADDRESS, (uintptr_t)*pointer, bytes);
    return result;
}

static CUresult hook_cuMemFree_v2(CUdeviceptr pointer) {
    REAL(cuMemFree_v2);
    struct record taken = take(ADDRESS, pointer);
    CUresult result = CALL_REAL(pointer);
    died(AT_cuMemFree_v2, result, pointer, taken);
    return result;
}

static CUresult hook_cuMemFreeHost(void *pointer) {
    REAL(cuMemFreeHost);
    struct record taken = take(ADDRESS, (uintptr_t)pointer);
    CUresult result = CALL_REAL(pointer);
    died(AT_cuMemFreeHost, result, (uintptr_t)pointer, taken);
    return result;
}

// ---- hooks: allocations in the order of a stream ----

// While a stream is captured, an allocation on it becomes a node of a graph. `is_capturing` is looked up once.
static enum kind kind_on(CUstream stream, _Atomic(void *) *is_capturing, const char *symbol) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    void *function = atomic_load(is_capturing);
    if (function == NULL) {
        function = look_up(symbol);
        atomic_store(is_capturing, function);
    }
    __typeof__(&cuStreamIsCapturing) real = (__typeof__(&cuStreamIsCapturing))function;
    if (real == NULL || CALL_REAL(stream, &status) != CUDA_SUCCESS) return POOL;
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? GRAPH : POOL;
}

#define STREAM_ORDERED_HOOKS(form)                                                                                     \
    static enum kind kind_of##form(CUstream stream) {                                                                  \
        static _Atomic(void *) is_capturing;                                                                           \
        return kind_on(stream, &is_capturing, "cuStreamIsCapturing" #form);                                            \
    }                                                                                                                  \
    static CUresult hook_cuMemAllocAsync##form(CUdeviceptr *pointer, size_t bytes, CUstream stream) {                  \
        REAL(cuMemAllocAsync##form);                                                                                   \
        CUresult result = CALL_REAL(pointer, bytes, stream);                                                           \
        if (counts(AT_cuMemAllocAsync##form, result))                                                                  \
            born(AT_cuMemAllocAsync##form, kind_of##form(stream), ADDRESS, *pointer, bytes);                           \
        return result;                                                                                                 \
    }                                                                                                                  \
    static CUresult hook_cuMemAllocFromPoolAsync##form(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,          \
                                                       CUstream stream) {                                              \
        REAL(cuMemAllocFromPoolAsync##form);                                                                           \
        CUresult result = CALL_REAL(pointer, bytes, pool, stream);                                                     \
        if (counts(AT_cuMemAllocFromPoolAsync##form, result))                                                          \
            born(AT_cuMemAllocFromPoolAsync##form, kind_of##form(stream), ADDRESS, *pointer, bytes);                   \
        return result;                                                                                                 \
    }                                                                                                                  \
    static CUresult hook_cuMemFreeAsync##form(CUdeviceptr pointer, CUstream stream) {                                  \
        REAL(cuMemFreeAsync##form);                                                                                    \
        struct record taken = take(ADDRESS, pointer);                                                                  \
        CUresult result = CALL_REAL(pointer, stream);                                                                  \
        died(AT_cuMemFreeAsync##form, result, pointer, taken);                                                         \
        return result;                                                                                                 \
    }

STREAM_ORDERED_HOOKS(/* legacy */)
STREAM_ORDERED_HOOKS(_ptsz)

// ---- hooks: virtual memory management ----

static CUresult hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                                 const CUmemAllocationProp *properties, unsigned long long flags) {
    REAL(cuMemCreate);
    CUresult result = CALL_REAL(handle, bytes, properties, flags);
    if (counts(AT_cuMemCreate, result))
        born(AT_cuMemCreate, properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? VMM : HOST, HANDLE, *handle,
             bytes);
    return result;
}

// A handle that the driver gave without cuMemCreate: held once more, or memory of another process, which is not this
// program's and whose size is not said. Known from now on, so that its release is known.
static void held(int at, unsigned long long handle) {
    if (was_known(change_locked(handle, 1, 0)))
        count(at, 0);
    else
        born(at, VMM, HANDLE, handle, 0);
}

static CUresult hook_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                                    CUmemAllocationHandleType type) {
    REAL(cuMemImportFromShareableHandle);
    CUresult result = CALL_REAL(handle, shareable, type);
    if (counts(AT_cuMemImportFromShareableHandle, result)) held(AT_cuMemImportFromShareableHandle, *handle);
    return result;
}

static CUresult hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    REAL(cuMemRetainAllocationHandle);
    CUresult result = CALL_REAL(handle, address);
    if (counts(AT_cuMemRetainAllocationHandle, result)) held(AT_cuMemRetainAllocationHandle, *handle);
    return result;
}

static CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle) {
    REAL(cuMemRelease);
    struct record before = change_locked(handle, -1, 0);
    CUresult result = CALL_REAL(handle);
    if (result != CUDA_SUCCESS && was_known(before)) {
        take(HANDLE, handle);
        put(before);
    }
    if (!counts(AT_cuMemRelease, result)) return result;
    count(AT_cuMemRelease, before.bytes);
    if (!was_known(before)) no_record_of_freed();
    return result;
}

static CUresult hook_cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                              unsigned long long flags) {
    REAL(cuMemMap);
    CUresult result = CALL_REAL(address, bytes, offset, handle, flags);
    if (counts(AT_cuMemMap, result)) {
        count(AT_cuMemMap, bytes);
        change_locked(handle, 0, 1);
        put((struct record){.key = address, .handle = handle, .bytes = bytes, .space = MAPPING, .kind = UNCOUNTED});
    }
    return result;
}

static CUresult hook_cuMemUnmap(CUdeviceptr address, size_t bytes) {
    REAL(cuMemUnmap);
    CUresult result = CALL_REAL(address, bytes);
    if (counts(AT_cuMemUnmap, result)) {
        count(AT_cuMemUnmap, bytes);
        unmapped(address, bytes);
    }
    return result;
}

// ---- hooks: arrays ----

static size_t element_bytes(CUarray_format format, unsigned channels) {
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return 2 * (size_t)channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return 4 * (size_t)channels;
    default: // Compressed and video formats, which nothing here uses: said in the report.
        lock();
        ++unsized;
        unlock();
        return 0;
    }
}

static size_t at_least_one(size_t extent) { return extent != 0 ? extent : 1; }

// What the elements take; the driver may pad. A sparse or deferred array has no memory of its own.
static size_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels) {
    if (array->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) return 0;
    size_t element = element_bytes(array->Format, array->NumChannels), bytes = 0;
    size_t width = at_least_one(array->Width), height = at_least_one(array->Height), depth = at_least_one(array->Depth);
    bool layers = (array->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    for (unsigned level = 0; level < levels; ++level) {
        bytes += width * height * depth * element;
        if (width == 1 && height == 1 && (layers || depth == 1)) break;
        width = at_least_one(width / 2);
        height = at_least_one(height / 2);
        if (!layers) depth = at_least_one(depth / 2);
    }
    return bytes;
}

static CUresult hook_cuArrayCreate_v2(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *array) {
    REAL(cuArrayCreate_v2);
    CUresult result = CALL_REAL(handle, array);
    if (counts(AT_cuArrayCreate_v2, result)) {
        size_t bytes = at_least_one(array->Width) * at_least_one(array->Height) *
                       element_bytes(array->Format, array->NumChannels);
        born(AT_cuArrayCreate_v2, ARRAY, ARRAY_HANDLE, (uintptr_t)*handle, bytes);
    }
    return result;
}

static CUresult hook_cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *array) {
    REAL(cuArray3DCreate_v2);
    CUresult result = CALL_REAL(handle, array);
    if (counts(AT_cuArray3DCreate_v2, result))
        born(AT_cuArray3DCreate_v2, ARRAY, ARRAY_HANDLE, (uintptr_t)*handle, array_bytes(array, 1));
    return result;
}

static CUresult hook_cuArrayDestroy(CUarray handle) {
    REAL(cuArrayDestroy);
    struct record taken = take(ARRAY_HANDLE, (uintptr_t)handle);
    CUresult result = CALL_REAL(handle);
    died(AT_cuArrayDestroy, result, (uintptr_t)handle, taken);
    return result;
}

static CUresult hook_cuMipmappedArrayCreate(CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *array,
                                            unsigned levels) {
    REAL(cuMipmappedArrayCreate);
    CUresult result = CALL_REAL(handle, array, levels);
    if (counts(AT_cuMipmappedArrayCreate, result))
        born(AT_cuMipmappedArrayCreate, ARRAY, ARRAY_HANDLE, (uintptr_t)*handle, array_bytes(array, levels));
    return result;
}

static CUresult hook_cuMipmappedArrayDestroy(CUmipmappedArray handle) {
    REAL(cuMipmappedArrayDestroy);
    struct record taken = take(ARRAY_HANDLE, (uintptr_t)handle);
    CUresult result = CALL_REAL(handle);
    died(AT_cuMipmappedArrayDestroy, result, (uintptr_t)handle, taken);
    return result;
}

// ---- hooks: graphs ----

static CUresult hook_cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                            size_t after_count, CUDA_MEM_ALLOC_NODE_PARAMS *parameters) {
    REAL(cuGraphAddMemAllocNode);
    CUresult result = CALL_REAL(node, graph, after, after_count, parameters);
    if (counts(AT_cuGraphAddMemAllocNode, result))
        born(AT_cuGraphAddMemAllocNode, GRAPH, ADDRESS, parameters->dptr, parameters->bytesize);
    return result;
}

// Nodes of other types are counted as calls of no bytes.
static void added_node(int at, const CUgraphNodeParams *parameters) {
    if (parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        born(at, GRAPH, ADDRESS, parameters->alloc.dptr, parameters->alloc.bytesize);
    else
        count(at, 0);
}

static CUresult hook_cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t after_count,
                                    CUgraphNodeParams *parameters) {
    REAL(cuGraphAddNode);
    CUresult result = CALL_REAL(node, graph, after, after_count, parameters);
    if (counts(AT_cuGraphAddNode, result)) added_node(AT_cuGraphAddNode, parameters);
    return result;
}

static CUresult hook_cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                       const CUgraphEdgeData *edges, size_t after_count,
                                       CUgraphNodeParams *parameters) {
    REAL(cuGraphAddNode_v2);
    CUresult result = CALL_REAL(node, graph, after, edges, after_count, parameters);
    if (counts(AT_cuGraphAddNode_v2, result)) added_node(AT_cuGraphAddNode_v2, parameters);
    return result;
}

// ---- hooks: what resolves names ----

// "cu" alone would also match cudnn, cublas and curl.
static bool may_be_driver_name(const char *name) {
    return name != NULL && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

static int at_symbol(const char *symbol) {
    for (int at = 0; at < HOOK_COUNT; ++at)
        if (strcmp(hooks[at].symbol, symbol) == 0) return at;
    return NOWHERE;
}

static int at_base(const char *base, int version, cuuint64_t flags) {
    enum stream stream = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? PER_THREAD : LEGACY;
    for (int at = 0; at < HOOK_COUNT; ++at) {
        const struct hook *hook = &hooks[at];
        if (strcmp(hook->base, base) != 0 || version < hook->first || version > hook->last) continue;
        if (hook->stream == EITHER || hook->stream == stream) return at;
    }
    return NOWHERE;
}

// After the driver answered a question for a name. One with a suffix, which it may know too, means what it says.
static void substitute(const char *name, void **function, int version, cuuint64_t flags) {
    if (inside != 0 || !may_be_driver_name(name) || function == NULL || *function == NULL) return;
    int at = at_base(name, version, flags);
    if (at == NOWHERE && strchr(name, '_') != NULL) at = at_symbol(name);
    if (at == NOWHERE || *function == replacements[at]) return;
    remember(at, *function, BY_PROCADDRESS);
    *function = replacements[at];
}

static CUresult hook_cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags) {
    REAL(cuGetProcAddress);
    CUresult result = CALL_REAL(name, function, version, flags);
    if (result == CUDA_SUCCESS) substitute(name, function, version, flags);
    return result;
}

static CUresult hook_cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                                         CUdriverProcAddressQueryResult *status) {
    REAL(cuGetProcAddress_v2);
    CUresult result = CALL_REAL(name, function, version, flags, status);
    if (result == CUDA_SUCCESS) substitute(name, function, version, flags);
    return result;
}

#define EXPORT_ROW(symbol, ...) EXPORT(symbol)
HOOKS(EXPORT_ROW)
#undef EXPORT_ROW

static void *const replacements[HOOK_COUNT] = {
#define REPLACEMENT(symbol, ...) (void *)hook_##symbol,
    HOOKS(REPLACEMENT)
#undef REPLACEMENT
};

// ---- dlsym ----

// What dlsym does: return `value`, or go on in the real dlsym when that is given.
struct answer {
    void *value;
    dlsym_function *go_on;
};

// Only for dlsym below. RTLD_NEXT asks for what comes after the caller: the real dlsym must see that caller, and what
// it finds is right, because who asks so is a hook of its own or finds this library.
__attribute__((used, visibility("hidden"))) struct answer t6_resolve(void *handle, const char *name) {
    dlsym_function *real = real_dlsym();
    struct answer pass = {NULL, real};
    if (real == NULL || inside != 0 || handle == RTLD_NEXT || !may_be_driver_name(name)) return pass;
    int at = at_symbol(name);
    if (at == NOWHERE) return pass;
    void *found = real(handle, name);
    // RTLD_DEFAULT finds this library even where there is no driver.
    if (found == replacements[at]) found = look_up(name);
    if (found == NULL) return (struct answer){NULL, NULL};
    remember(at, found, BY_DLSYM);
    return (struct answer){replacements[at], NULL};
}

// Jumps to the real dlsym, and does not call it: RTLD_NEXT is answered by the address that dlsym returns to.
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "endbr64\n"
        "push %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "push %rsi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "sub $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "call t6_resolve\n"
        "add $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "pop %rsi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "pop %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "test %rdx, %rdx\n"
        "jz 1f\n"
        "jmp *%rdx\n"
        "1: ret\n"
        ".cfi_endproc\n"
        ".size dlsym, . - dlsym\n");

// ---- the report ----

struct text {
    char bytes[16384];
    size_t length;
};

__attribute__((format(printf, 2, 3))) static void append(struct text *text, const char *format, ...) {
    size_t room = sizeof text->bytes - text->length;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text->bytes + text->length, room, format, arguments);
    va_end(arguments);
    if (length > 0) text->length += (size_t)length < room ? (size_t)length : room - 1;
}

static void append_entry_points(struct text *text, const char *what) {
    for (int at = 0; at < HOOK_COUNT; ++at) {
        struct seen *entry = &seen[at];
        if (entry->calls == 0 && entry->failed == 0) continue;
        append(text, "hooked %s %s calls %lu bytes %lu failed %lu dlsym %lu procaddress %lu linked %lu others %lu\n",
               what, hooks[at].symbol, entry->calls, entry->bytes, entry->failed, entry->resolved[BY_DLSYM],
               entry->resolved[BY_PROCADDRESS], entry->resolved[BY_LINKING], entry->other_addresses);
    }
}

static void append_live(struct text *text, const char *what) {
    lock();
    append(text, "live %s", what);
    for (int kind = 0; kind < UNCOUNTED; ++kind) append(text, " %s %lld", kind_names[kind], live[kind]);
    append(text, "\nwrong %s unknown %lu twice %lu lost %lu unsized %lu\n", what, unknown_frees, twice, lost, unsized);
    unlock();
}

static void write_all(int file, const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t written = write(file, bytes, length);
        if (written <= 0) return; // Nobody to tell: a missing line fails the comparison.
        bytes += written;
        length -= (size_t)written;
    }
}

EXPORTED void t6_report(const char *what) {
    struct text text = {.length = 0};
    append_entry_points(&text, what);
    append_live(&text, what);
    int file = -1;
    if (report_path[0] != 0) file = open(report_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    write_all(file != -1 ? file : STDERR_FILENO, text.bytes, text.length);
    if (file != -1) close(file);
}

static bool saw_anything(void) {
    for (int at = 0; at < HOOK_COUNT; ++at)
        if (seen[at].calls != 0 || seen[at].failed != 0) return true;
    return false;
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("T6_REPORT");
    if (path != NULL && strlen(path) < sizeof report_path) strcpy(report_path, path);
    const char *symbol = getenv("T6_BLIND");
    if (symbol != NULL) blind = at_symbol(symbol);
    owner = getpid();
}

// A forked child has its parent's counts, and nothing to say of its own.
__attribute__((destructor)) static void end(void) {
    if (owner == getpid() && saw_anything()) t6_report("exit");
}
