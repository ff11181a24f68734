// Plain device memory, as a program sees it: the same whether the driver has allocated it or libckpt.so has mapped it.
//
//   backed CASE native|mapped
//
// Each case holds for both, so it says what "the same" means; the second argument is which one it is, which is checked, too.
// It ends with the status 0 if all is as it should be.
#include "brake.h"
#include "cases.h"
#include "controls.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>

namespace {

constexpr size_t MIB = 1 << 20;
CUcontext context;
bool is_mapped;

// Plain memory, and whose it is.
CUdeviceptr allocated(size_t bytes) {
    CUdeviceptr address = 0;
    uint64_t by_driver = double_calls("cuMemAlloc_v2");
    EXPECT_OK(cuMemAlloc(&address, bytes));
    EXPECT((double_calls("cuMemAlloc_v2") == by_driver) == is_mapped);
    return address;
}

size_t free_memory() {
    size_t free, total;
    EXPECT_OK(cuMemGetInfo(&free, &total));
    return free;
}

void expect_range(CUdeviceptr address, CUdeviceptr wanted_start, size_t wanted_bytes) {
    CUdeviceptr start = 0;
    size_t bytes = 0;
    EXPECT_OK(cuMemGetAddressRange(&start, &bytes, address));
    EXPECT(start == wanted_start && bytes == wanted_bytes);
    EXPECT_OK(cuMemGetAddressRange(nullptr, &bytes, address));
    EXPECT_OK(cuMemGetAddressRange(&start, nullptr, address));
}

void the_range_is_what_was_asked_for() {
    CUdeviceptr small = allocated(1000), other = allocated(1), large = allocated(3 * MIB + 5), start;
    expect_range(small, small, 1000);
    expect_range(small + 999, small, 1000);
    expect_range(other, other, 1);
    expect_range(large + 3 * MIB + 4, large, 3 * MIB + 5);
    for (CUdeviceptr behind : {small + 1000, other + 1, large + 3 * MIB + 5})
        EXPECT_RESULT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&start, nullptr, behind));
    EXPECT_OK(cuMemFree(small));
    EXPECT_RESULT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&start, nullptr, small));
    EXPECT_OK(cuCtxSetCurrent(nullptr));
    EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, cuMemGetAddressRange(&start, nullptr, other));
}

void expect_attributes(CUdeviceptr address, CUdeviceptr start, size_t bytes) {
    EXPECT(attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, address) == context);
    EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CU_MEMORYTYPE_DEVICE);
    EXPECT(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address) == address);
    EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address) == 0);
    EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, address) == 0);
    EXPECT(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) == 0);
    EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address) == 1);
    EXPECT(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) == start);
    EXPECT(attribute<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) == bytes);
    EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MAPPED, address) == 1);
    EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address) == 0);
    EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    EXPECT(attribute<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address) == nullptr);
    EXPECT(attribute<size_t>(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, address) == bytes);
    EXPECT(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, address) == start);
}

void attributes_are_those_of_the_drivers_own() {
    CUdeviceptr small = allocated(1000), other = allocated(700), large = allocated(3 * MIB);
    expect_attributes(small, small, 1000);
    expect_attributes(other + 699, other, 700);
    expect_attributes(large + 5, large, 3 * MIB);
    auto id = [](CUdeviceptr address) { return attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, address); };
    EXPECT(id(small) == id(small + 999) && id(small) != id(other) && id(small) != id(large));
    void *nothing;
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&nothing, CU_POINTER_ATTRIBUTE_HOST_POINTER, small));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&nothing, CUpointer_attribute(999), small));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&nothing, CU_POINTER_ATTRIBUTE_CONTEXT, small + 1000));

    // All at once, and of what is in no allocation.
    CUcontext of = nullptr;
    size_t bytes = 0;
    unsigned long long buffer = 0;
    int device = 0;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *to[] = {&of, &bytes, &buffer, &device};
    EXPECT_OK(cuPointerGetAttributes(4, which, to, other));
    EXPECT(of == context && bytes == 700 && buffer == id(other) && device == 0);
    EXPECT_OK(cuPointerGetAttributes(4, which, to, small + 1000));
    EXPECT(of == nullptr && bytes == 0 && buffer == 0 && device == CU_DEVICE_INVALID);
}

void an_attribute_that_is_set_is_one_allocations() {
    unsigned on = 1, off = 0;
    CUdeviceptr one = allocated(1000), two = allocated(1000);
    auto synchronous = [](CUdeviceptr address) { return attribute<unsigned>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address); };
    EXPECT_OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, one + 10));
    EXPECT(synchronous(one) == 1 && synchronous(two) == 0);
    EXPECT_OK(cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, one));
    EXPECT(synchronous(one) == 0);
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, one));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, one + 1000));
}

// With CKPT_DOUBLE_MEMORY of 64 MiB.
void memory_is_counted_by_granules() {
    EXPECT(free_memory() == 64 * MIB);
    CUdeviceptr first = allocated(1), second = allocated(1000);
    EXPECT(free_memory() == 62 * MIB); // small ones share
    CUdeviceptr large = allocated(3 * MIB);
    EXPECT(free_memory() == 58 * MIB);
    EXPECT_OK(cuMemFree(first));
    EXPECT(free_memory() == 58 * MIB);
    EXPECT_OK(cuMemFree(second));
    EXPECT(free_memory() == 60 * MIB);
    EXPECT_OK(cuMemFree(large));
    EXPECT(free_memory() == 64 * MIB);
}

// With CKPT_DOUBLE_MEMORY of 64 MiB.
void what_does_not_fit_leaves_nothing_behind() {
    CUdeviceptr none = 7;
    size_t pitch;
    EXPECT_RESULT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&none, 65 * MIB));
    EXPECT_RESULT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&none, size_t(-5)));
    EXPECT_RESULT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch(&none, &pitch, MIB, 65, 4));
    EXPECT(none == 7 && free_memory() == 64 * MIB);
    CUdeviceptr all = allocated(64 * MIB);
    EXPECT_RESULT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&none, 1));
    EXPECT((double_calls("cuMemAlloc_v2") == 0) == is_mapped); // nor was the driver asked for what there is not
    EXPECT_OK(cuMemFree(all));
    EXPECT(free_memory() == 64 * MIB);
    EXPECT_OK(cuMemFree(allocated(64 * MIB)));
    EXPECT(double_calls("cuMemAddressReserve") == double_calls("cuMemAddressFree"));
}

// With a driver that makes no physical memory for programs.
void what_cannot_be_mapped_is_the_drivers() {
    CUdeviceptr small = allocated(1000), large = allocated(3 * MIB);
    expect_range(small + 1, small, 1000);
    EXPECT_OK(cuMemsetD32(large, 1, 250));
    EXPECT_OK(cuMemFree(small));
    EXPECT_OK(cuMemFree(large));
}

void addresses_are_aligned() {
    for (size_t bytes : {size_t(1), size_t(511), size_t(513), 5000 + MIB, 7 * MIB + 1}) EXPECT(allocated(bytes) % 512 == 0);
    CUdeviceptr none = 7;
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&none, 0));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(nullptr, 100));
    EXPECT(none == 7);
    EXPECT_OK(cuCtxSetCurrent(nullptr));
    EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&none, 100));
}

void rows_are_as_far_apart_as_the_driver_has_them() {
    CUdeviceptr rows, none = 7;
    size_t pitch = 0, none_too = 7, before = free_memory();
    EXPECT_OK(cuMemAllocPitch(&rows, &pitch, 1001, 300, 4));
    EXPECT(pitch == 1024 && rows % 512 == 0);
    expect_range(rows + 1023, rows, 1024 * 300);
    EXPECT_OK(cuMemsetD2D8(rows, pitch, 1, 1001, 300));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&none, &none_too, 1001, 300, 3));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&none, &none_too, 0, 300, 4));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&none, &none_too, 1001, 0, 4));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch(&none, nullptr, 1001, 300, 4));
    EXPECT(none == 7 && none_too == 7);
    EXPECT((double_calls("cuMemCreate") != 0) == is_mapped);
    EXPECT_OK(cuMemFree(rows));
    EXPECT(free_memory() == before);
}

void only_what_begins_there_can_be_freed_and_once() {
    CUdeviceptr small = allocated(1000), other = allocated(1000), large = allocated(3 * MIB);
    EXPECT_OK(cuMemsetD32(other, 5, 250));
    for (CUdeviceptr inside : {small + 512, small + 1000, large + MIB, large + 3 * MIB + 5})
        EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemFree(inside));
    EXPECT_OK(cuMemFree(0));
    for (CUdeviceptr address : {small, large}) {
        EXPECT_OK(cuMemFree(address));
        EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemFree(address));
    }
    EXPECT(all_are(other, 250, 5));
    EXPECT_OK(cuCtxSetCurrent(nullptr));
    EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, cuMemFree(other));
}

// Of small and large allocations, one after the other.
void memory_is_freed_when_nothing_uses_it_any_more() {
    for (size_t bytes : {size_t(1000), 3 * MIB}) {
        CUdeviceptr memory = allocated(bytes), neighbour = allocated(bytes);
        Brake brake;
        std::thread other = brake.let_go_after(is_mapped ? "cuCtxSynchronize" : "cuMemFree_v2", memory);
        CUcontext own;
        EXPECT_OK(cuCtxCreate(&own, nullptr, 0, 0)); // another one may be current meanwhile
        EXPECT_OK(cuMemFree(memory));
        EXPECT(brake.is_done);
        CUcontext current;
        EXPECT_OK(cuCtxGetCurrent(&current));
        EXPECT(current == own);
        EXPECT_OK(cuCtxDestroy(own));
        EXPECT_OK(cuCtxSetCurrent(context));
        EXPECT_OK(cuMemFree(neighbour));
        other.join();
    }
}

void memory_is_freed_in_the_order_of_a_stream() {
    size_t before = free_memory();
    CUdeviceptr memory = allocated(3 * MIB);
    Brake brake;
    std::thread other = brake.let_go_after(is_mapped ? "cuStreamSynchronize" : "cuMemFreeAsync", memory);
    EXPECT_OK(cuMemFreeAsync(memory, brake.stream));
    EXPECT_OK(cuStreamSynchronize(brake.stream));
    EXPECT(brake.is_done && free_memory() == before);
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(memory, brake.stream));
    other.join();
}

void memory_ends_with_its_context() {
    CUcontext own, again;
    EXPECT_OK(cuCtxCreate(&own, nullptr, 0, 0));
    CUdeviceptr small = allocated(1000), large = allocated(3 * MIB);
    EXPECT_OK(cuMemsetD32Async(large, 3, MIB / 2, nullptr));
    EXPECT_OK(cuCtxDestroy(own));
    EXPECT(double_memory_used(0) == 0);
    EXPECT_OK(cuCtxSetCurrent(context));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemFree(small));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemFree(large));

    // The primary one ends when the last one lets it go.
    small = allocated(1000);
    EXPECT_OK(cuDevicePrimaryCtxRetain(&again, 0));
    EXPECT_OK(cuDevicePrimaryCtxRelease(0));
    EXPECT_OK(cuMemsetD32(small, 7, 250));
    CUdeviceptr other = allocated(1000); // in the same slab, as before
    EXPECT(all_are(small, 250, 7) && double_memory_used(0) == 2 * MIB && other == small + 1024);
    EXPECT_OK(cuDevicePrimaryCtxRelease(0));
    EXPECT(double_memory_used(0) == 0);

    begin_with_device(context);
    allocated(1000), allocated(3 * MIB);
    EXPECT_OK(cuDevicePrimaryCtxReset(0));
    EXPECT(double_memory_used(0) == 0);
    EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(reinterpret_cast<CUcontext>(8)));
}

// With CKPT_DOUBLE_DEVICES of 2.
void peers_have_access_from_when_they_may_until_they_may_not() {
    CUcontext second, third;
    CUdeviceptr before = allocated(1000);
    EXPECT_OK(cuCtxCreate(&third, nullptr, 0, 0));
    CUdeviceptr elsewhere = allocated(3 * MIB); // in a context that is nobody's peer
    EXPECT_OK(cuCtxCreate(&second, nullptr, 0, 1));
    auto may = [](CUdeviceptr address) {
        CUmemLocation there = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
        unsigned long long flags = 0;
        if (is_mapped) EXPECT_OK(cuMemGetAccess(&flags, &there, address));
        return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    };
    EXPECT(!may(before));
    EXPECT_OK(cuCtxEnablePeerAccess(context, 0));
    EXPECT_RESULT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(context, 0));
    EXPECT_OK(cuCtxSetCurrent(context));
    CUdeviceptr after = allocated(3 * MIB);
    EXPECT(may(before) == is_mapped && may(after) == is_mapped && !may(elsewhere));
    EXPECT_OK(cuCtxSetCurrent(second));
    EXPECT_OK(cuCtxDisablePeerAccess(context));
    EXPECT_RESULT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(context));
    EXPECT(!may(before) && !may(after));
    EXPECT_OK(cuCtxSetCurrent(context));
    EXPECT(!may(allocated(5 * MIB)));
}

void other_kinds_of_memory_stay_the_drivers() {
    CUdeviceptr pooled, managed, plain = 0;
    void *pinned, *of_host;
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR shape = {250, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1};
    EXPECT_OK(cuMemAllocAsync(&pooled, 1000, nullptr));
    EXPECT_OK(cuMemAllocManaged(&managed, 1000, CU_MEM_ATTACH_GLOBAL));
    EXPECT_OK(cuMemAllocHost(&pinned, 1000));
    EXPECT_OK(cuMemHostAlloc(&of_host, 1000, 0));
    EXPECT_OK(cuArrayCreate(&array, &shape));
    EXPECT(double_calls("cuMemCreate") == 0 && double_calls("cuMemAddressReserve") == 0);
    EXPECT(attribute<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pooled) != nullptr);
    EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, managed) == 1);
    plain = allocated(1000);
    for (CUdeviceptr address : {pooled, managed, plain}) EXPECT_OK(cuMemFree(address));
    EXPECT_OK(cuMemFreeHost(pinned));
    EXPECT_OK(cuMemFreeHost(of_host));
    EXPECT_OK(cuArrayDestroy(array));
}

void plain_memory_has_no_handle() {
    CUmemGenericAllocationHandle handle;
    for (size_t bytes : {size_t(1000), 3 * MIB}) {
        CUdeviceptr memory = allocated(bytes);
        EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&handle, pointer<void>(memory)));
    }
}

void a_child_of_fork_does_no_harm() {
    CUdeviceptr memory = allocated(1000);
    EXPECT_OK(cuMemsetD32(memory, 9, 250));
    pid_t child = fork();
    if (child == 0) {
        size_t bytes = 0;
        CUresult asked = cuMemGetAddressRange(nullptr, &bytes, memory), freed = cuMemFree(memory);
        exit(asked == CUDA_ERROR_NOT_INITIALIZED && freed == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(all_are(memory, 250, 9));
    EXPECT_OK(cuMemFree(memory));
}

// Allocates and frees in no order, so that gaps are used again; every word stays its own.
void use_at_random(unsigned seed, int rounds) {
    std::map<CUdeviceptr, std::pair<size_t, uint32_t>> all;
    for (int round = 0; round < rounds; ++round) {
        seed = seed * 1103515245 + 12345;
        if (seed >> 16 & 1 || all.empty()) {
            size_t words = 1 + (seed >> 17) % 20000;
            CUdeviceptr address = allocated(words * 4);
            EXPECT_OK(cuMemsetD32(address, seed, words));
            EXPECT(all.emplace(address, std::pair(words, seed)).second);
        } else {
            auto one = std::next(all.begin(), (seed >> 17) % long(all.size()));
            EXPECT(all_are(one->first, one->second.first, one->second.second));
            EXPECT_OK(cuMemFree(one->first));
            all.erase(one);
        }
    }
    for (auto [address, is] : all) {
        EXPECT(all_are(address, is.first, is.second));
        expect_range(address + is.first * 4 - 1, address, is.first * 4);
        EXPECT_OK(cuMemFree(address));
    }
}

void what_is_allocated_is_nobody_elses() {
    size_t before = free_memory();
    use_at_random(1, 2000);
    EXPECT(free_memory() == before);
}

void threads_allocate_at_once() {
    size_t before = free_memory();
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= 4; ++seed)
        threads.emplace_back([=] {
            CUdeviceptr address;
            EXPECT_OK(cuCtxSetCurrent(context));
            for (unsigned round = 0; round < 300; ++round) {
                size_t bytes = 1000 + (seed * 7919 + round * 104729) % 300000 * (round % 10 == 0 ? 10 : 1);
                EXPECT_OK(cuMemAlloc(&address, bytes));
                EXPECT_OK(cuMemsetD32(address, seed, 250));
                EXPECT(all_are(address, 250, seed));
                EXPECT_OK(cuMemFree(address));
            }
        });
    for (std::thread &thread : threads) thread.join();
    EXPECT(free_memory() == before);
}

struct Piece {
    uint64_t id, address, bytes;
    int device;
    unsigned unused;
};
struct PieceBlock {
    const PieceBlock *next;
    uint64_t unused[3];
    Piece pieces[127];
};

// Where the address of a `Hold` is in the control block (runtime/wire/src), and that of its pieces there.
constexpr size_t HOLD_AT = 96 + 2 * 128 + 3 * 4096 + 8 * 8, PIECES_AT = 136;

// What libckpt.so shows the agent.
std::map<uint64_t, Piece> pieces() {
    std::map<uint64_t, Piece> found;
    const char *control = static_cast<const char *>(dlsym(RTLD_DEFAULT, "ckpt_control"));
    if (control == nullptr) return found;
    const char *hold;
    const PieceBlock *block;
    memcpy(&hold, control + HOLD_AT, 8);
    memcpy(&block, hold + PIECES_AT, 8);
    for (; block != nullptr; block = block->next)
        for (const Piece &piece : block->pieces)
            if (piece.id != 0) found[piece.address] = piece;
    return found;
}

void every_piece_is_shown_to_the_agent() {
    CUdeviceptr small = allocated(1000), large = allocated(5 * MIB);
    auto has = [](CUdeviceptr address, size_t bytes) {
        auto all = pieces();
        auto after = all.upper_bound(address);
        if (after == all.begin()) return false;
        const Piece &piece = std::prev(after)->second;
        return address >= piece.address && address + bytes <= piece.address + piece.bytes && piece.device == 0;
    };
    EXPECT(has(small, 1000) == is_mapped && has(large, 5 * MIB) == is_mapped);
    EXPECT(pieces().size() == (is_mapped ? 2 : 0));
    std::vector<CUdeviceptr> many;
    for (int count = 0; count < 200; ++count) many.push_back(allocated(2 * MIB));
    for (CUdeviceptr one : many) EXPECT(has(one, 2 * MIB) == is_mapped);
    for (CUdeviceptr one : many) EXPECT_OK(cuMemFree(one));
    EXPECT_OK(cuMemFree(small));
    EXPECT_OK(cuMemFree(large));
    EXPECT(pieces().empty());
}

// A process that has memory and hands its handle over. Ends when the other end of `keep` is closed.
struct Owner {
    CUipcMemHandle handle;
    int keep;
    pid_t pid;
    Owner() {
        int from[2], to[2];
        EXPECT(pipe(from) == 0 && pipe(to) == 0);
        pid = fork();
        if (pid == 0) {
            close(to[1]);
            begin_with_device(context);
            allocated(100);
            CUdeviceptr memory = allocated(1000), opened;
            EXPECT_OK(cuMemsetD32(memory, 0xabc, 250));
            EXPECT_OK(cuIpcGetMemHandle(&handle, memory));
            EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
            EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(memory));
            EXPECT(write(from[1], &handle, sizeof handle) == sizeof handle);
            char nothing;
            EXPECT(read(to[0], &nothing, 1) == 0);
            _exit(all_are(memory, 250, 0xdef) ? 0 : 1);
        }
        close(to[0]), close(from[1]);
        EXPECT(read(from[0], &handle, sizeof handle) == sizeof handle);
        keep = to[1];
    }
    int end() const {
        int status = -1;
        close(keep);
        EXPECT(waitpid(pid, &status, 0) == pid);
        return status;
    }
};

// Before this process has used the driver, which does not survive a fork.
void memory_of_another_process_can_be_opened() {
    Owner owner;
    begin_with_device(context);
    CUdeviceptr opened = 0;
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&opened, owner.handle, 0));
    EXPECT_OK(cuIpcOpenMemHandle(&opened, owner.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    EXPECT(all_are(opened, 250, 0xabc));
    expect_range(opened + 5, opened, 1000);
    EXPECT(attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, opened) == context);
    EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, opened) == 0);
    EXPECT_OK(cuMemsetD32(opened, 0xdef, 250));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemFree(opened));
    EXPECT(pieces().empty()); // what the owner shows
    EXPECT_OK(cuIpcCloseMemHandle(opened));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(opened));
    EXPECT(owner.end() == 0);
}

void memory_that_is_opened_twice_is_closed_twice() {
    Owner owner;
    begin_with_device(context);
    CUdeviceptr one, two;
    EXPECT_OK(cuIpcOpenMemHandle(&one, owner.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    EXPECT_OK(cuIpcOpenMemHandle(&two, owner.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    EXPECT(one == two);
    EXPECT_OK(cuIpcCloseMemHandle(one));
    EXPECT_OK(cuMemsetD32(two, 0xdef, 250));
    EXPECT_OK(cuIpcCloseMemHandle(two));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(two));
    EXPECT(owner.end() == 0);
}

void memory_of_a_process_that_has_ended_cannot_be_opened() {
    Owner owner;
    begin_with_device(context);
    CUdeviceptr opened;
    owner.end();
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle(&opened, owner.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

struct Case {
    void (*function)();
    bool begins_by_itself;
};
const std::map<std::string, Case> CASES = {
#define CASE(name) {#name, {name, false}}
#define FORKING_CASE(name) {#name, {name, true}}
    CASE(the_range_is_what_was_asked_for),
    CASE(attributes_are_those_of_the_drivers_own),
    CASE(an_attribute_that_is_set_is_one_allocations),
    CASE(memory_is_counted_by_granules),
    CASE(what_does_not_fit_leaves_nothing_behind),
    CASE(what_cannot_be_mapped_is_the_drivers),
    CASE(addresses_are_aligned),
    CASE(rows_are_as_far_apart_as_the_driver_has_them),
    CASE(only_what_begins_there_can_be_freed_and_once),
    CASE(memory_is_freed_when_nothing_uses_it_any_more),
    CASE(memory_is_freed_in_the_order_of_a_stream),
    CASE(memory_ends_with_its_context),
    CASE(peers_have_access_from_when_they_may_until_they_may_not),
    CASE(other_kinds_of_memory_stay_the_drivers),
    CASE(plain_memory_has_no_handle),
    CASE(a_child_of_fork_does_no_harm),
    CASE(what_is_allocated_is_nobody_elses),
    CASE(threads_allocate_at_once),
    CASE(every_piece_is_shown_to_the_agent),
    FORKING_CASE(memory_of_another_process_can_be_opened),
    FORKING_CASE(memory_that_is_opened_twice_is_closed_twice),
    FORKING_CASE(memory_of_a_process_that_has_ended_cannot_be_opened),
};

} // namespace

int main(int count, char **arguments) {
    auto found = count == 3 ? CASES.find(arguments[1]) : CASES.end();
    if (found == CASES.end()) return fprintf(stderr, "usage: backed CASE native|mapped\n"), 2;
    is_mapped = strcmp(arguments[2], "mapped") == 0;
    if (!found->second.begins_by_itself) begin_with_device(context);
    found->second.function();
    end_well();
}
