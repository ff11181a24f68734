// What only the double can show, because a real driver cannot be brought there or must not be: one case by name. It ends with
// the status 0 if all is as it should be.
#include "cases.h"
#include "controls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <map>
#include <string>
#include <thread>

namespace {

constexpr size_t MIB = 1 << 20;
CUcontext context;
std::string ptx_path;

CUdeviceptr allocated(size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_OK(cuMemAlloc(&address, bytes));
    return address;
}

size_t free_memory() {
    size_t free, total;
    EXPECT_OK(cuMemGetInfo(&free, &total));
    return free;
}

CUresult lock_within(unsigned milliseconds) {
    CUcheckpointLockArgs how = {};
    how.timeoutMs = milliseconds;
    return cuCheckpointProcessLock(getpid(), &how);
}
CUresult lock() { return lock_within(10000); }
CUresult checkpoint() { return cuCheckpointProcessCheckpoint(getpid(), nullptr); }
CUresult restore() { return cuCheckpointProcessRestore(getpid(), nullptr); }
CUresult unlock() { return cuCheckpointProcessUnlock(getpid(), nullptr); }

CUprocessState state() {
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    EXPECT_OK(cuCheckpointProcessGetState(getpid(), &state));
    return state;
}

void a_call_waits_while_the_process_is_locked() {
    std::atomic<bool> has_returned{false};
    EXPECT_OK(lock());
    uint64_t before = double_calls("cuMemAlloc_v2");
    std::thread caller([&] {
        EXPECT_OK(cuCtxSetCurrent(context));
        CUdeviceptr address;
        EXPECT_OK(cuMemAlloc(&address, 100));
        has_returned = true;
    });
    while (double_calls("cuCtxSetCurrent") < 2) std::this_thread::yield(); // it has come that far
    EXPECT_OK(checkpoint());
    EXPECT_OK(restore());
    EXPECT(!has_returned && double_calls("cuMemAlloc_v2") == before);
    EXPECT_OK(unlock());
    caller.join();
    EXPECT(has_returned);
}

void the_lock_waits_for_work_but_not_for_ever() {
    static sem_t brake;
    sem_init(&brake, 0, 0);
    CUstream stream;
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuLaunchHostFunc(stream, [](void *) { sem_wait(&brake); }, nullptr));
    EXPECT_RESULT(CUDA_ERROR_NOT_READY, lock_within(50));
    EXPECT(state() == CU_PROCESS_STATE_RUNNING);
    EXPECT_RESULT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream)); // calls are let in again
    sem_post(&brake);
    EXPECT_OK(lock());
    EXPECT_OK(unlock());
    EXPECT_OK(cuStreamQuery(stream));
}

// With something alive that the driver cannot take along, and without it.
template <typename Make, typename End> void is_refused(Make make, End end) {
    auto made = make();
    EXPECT_OK(lock());
    EXPECT_RESULT(CUDA_ERROR_NOT_SUPPORTED, checkpoint());
    EXPECT(state() == CU_PROCESS_STATE_LOCKED);
    EXPECT_OK(unlock());
    end(made);
    EXPECT_OK(lock());
    EXPECT_OK(checkpoint());
    EXPECT_OK(restore());
    EXPECT_OK(unlock());
}

void free_memory_at(CUdeviceptr address) { EXPECT_OK(cuMemFree(address)); }

void managed_memory_is_refused() {
    is_refused(
        [] {
            CUdeviceptr address;
            EXPECT_OK(cuMemAllocManaged(&address, 1000, CU_MEM_ATTACH_GLOBAL));
            return address;
        },
        free_memory_at);
    is_refused(
        [] {
            CUmodule module;
            EXPECT_OK(cuModuleLoad(&module, ptx_path.c_str()));
            return module;
        },
        [](CUmodule module) { EXPECT_OK(cuModuleUnload(module)); });
    is_refused(
        [] {
            CUmemLocation nowhere = {CU_MEM_LOCATION_TYPE_NONE, 0};
            CUmemoryPool pool;
            CUdeviceptr address;
            EXPECT_OK(cuMemGetDefaultMemPool(&pool, &nowhere, CU_MEM_ALLOCATION_TYPE_MANAGED));
            EXPECT_OK(cuMemAllocFromPoolAsync(&address, 1000, pool, nullptr));
            return address;
        },
        [](CUdeviceptr address) {
            EXPECT_OK(cuMemFreeAsync(address, nullptr));
            EXPECT_OK(cuStreamSynchronize(nullptr)); // the pool gives it back
        });
}

CUmemAllocationProp on_device(CUdevice device) {
    CUmemAllocationProp about = {};
    about.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    about.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    about.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return about;
}

// Memory that is mapped, and that nobody may use yet.
CUdeviceptr mapped(CUmemGenericAllocationHandle &handle) {
    CUmemAllocationProp about = on_device(0);
    CUdeviceptr space;
    EXPECT_OK(cuMemAddressReserve(&space, 2 * MIB, 0, 0, 0));
    EXPECT_OK(cuMemCreate(&handle, 2 * MIB, &about, 0));
    EXPECT_OK(cuMemMap(space, 2 * MIB, 0, handle, 0));
    return space;
}

CUdeviceptr mapped_with_access() {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr space = mapped(handle);
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_OK(cuMemSetAccess(space, 2 * MIB, &access, 1));
    EXPECT_OK(cuMemRelease(handle));
    return space;
}

void what_other_processes_may_have_is_refused() {
    is_refused(
        [] {
            CUmemAllocationProp about = on_device(0);
            CUmemGenericAllocationHandle handle;
            int descriptor;
            EXPECT_OK(cuMemCreate(&handle, 2 * MIB, &about, 0));
            EXPECT_OK(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
            close(descriptor);
            return handle;
        },
        [](CUmemGenericAllocationHandle handle) { EXPECT_OK(cuMemRelease(handle)); });
    is_refused(
        [] {
            CUipcMemHandle handle;
            CUdeviceptr address = allocated(1000);
            allocated(1000); // beside it, and not given to anyone
            EXPECT_OK(cuIpcGetMemHandle(&handle, address));
            return address;
        },
        free_memory_at);
}

bool has_memory_of_the_double() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        if (line.find("ckpt-double") != std::string::npos) return true;
    DIR *folder = opendir("/proc/self/fd");
    bool has = false;
    while (dirent *entry = readdir(folder)) {
        char target[100] = {};
        std::string link = std::string("/proc/self/fd/") + entry->d_name;
        if (readlink(link.c_str(), target, sizeof target - 1) > 0) has = has || strstr(target, "ckpt-double") != nullptr;
    }
    closedir(folder);
    return has;
}

void a_checkpoint_leaves_nothing_on_the_device_and_a_restore_brings_all_back() {
    CUdeviceptr pooled, all[] = {allocated(1000), allocated(5 * MIB), mapped_with_access(), 0};
    EXPECT_OK(cuMemAllocAsync(&pooled, 1000, nullptr));
    all[3] = pooled;
    for (uint32_t number = 0; number < 4; ++number) EXPECT_OK(cuMemsetD32(all[number], 100 + number, 250));
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR shape = {250, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1};
    EXPECT_OK(cuArrayCreate(&array, &shape));
    CUDA_MEMCPY2D in = {}, out = {};
    in.srcMemoryType = out.dstMemoryType = CU_MEMORYTYPE_DEVICE, in.srcDevice = all[0], out.dstDevice = all[1];
    in.dstMemoryType = out.srcMemoryType = CU_MEMORYTYPE_ARRAY, in.dstArray = out.srcArray = array;
    in.WidthInBytes = out.WidthInBytes = 1000, in.Height = out.Height = 1;
    EXPECT_OK(cuMemcpy2D(&in));

    size_t used = double_memory_used(0);
    EXPECT(used >= 5 * MIB && has_memory_of_the_double());
    EXPECT_OK(lock());
    EXPECT_OK(checkpoint());
    EXPECT(double_memory_used(0) == 0 && !has_memory_of_the_double());
    EXPECT_OK(restore());
    EXPECT_OK(unlock());
    EXPECT(double_memory_used(0) == used);
    for (uint32_t number = 0; number < 4; ++number) EXPECT(all_are(all[number], 250, 100 + number));
    EXPECT_OK(cuMemcpy2D(&out));
    EXPECT(all_are(all[1], 250, 100));
}

void a_restore_without_room_fails_for_good() {
    allocated(40 * MIB);
    EXPECT_OK(lock());
    EXPECT_OK(checkpoint());
    double_set_memory(0, 30 * MIB);
    EXPECT_RESULT(CUDA_ERROR_OUT_OF_MEMORY, restore());
    EXPECT(state() == CU_PROCESS_STATE_FAILED);
    EXPECT_RESULT(CUDA_ERROR_ILLEGAL_STATE, restore());
    EXPECT_RESULT(CUDA_ERROR_ILLEGAL_STATE, unlock());
}

// With CKPT_DOUBLE_MEMORY of 64 MiB.
void memory_is_counted_as_the_driver_does() {
    EXPECT(free_memory() == 64 * MIB);
    CUdeviceptr first = allocated(1), second = allocated(1000), none;
    EXPECT(first % 512 == 0 && second == first + 512);
    EXPECT(free_memory() == 62 * MIB); // small ones share
    CUdeviceptr large = allocated(3 * MIB);
    EXPECT(free_memory() == 58 * MIB);
    EXPECT_RESULT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&none, 59 * MIB));
    CUdeviceptr rest = allocated(58 * MIB);
    EXPECT_RESULT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&none, 2 * MIB));
    EXPECT_RESULT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&none, 1, nullptr));
    CUmemAllocationProp about = on_device(0);
    CUmemGenericAllocationHandle handle;
    EXPECT_RESULT(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, 2 * MIB, &about, 0));
    for (CUdeviceptr address : {first, second, large, rest}) EXPECT_OK(cuMemFree(address));
    EXPECT(free_memory() == 64 * MIB);
}

// With CKPT_DOUBLE_MEMORY of 64 MiB.
void what_a_stream_has_freed_it_can_have_again() {
    for (int time = 0; time < 20; ++time) {
        CUdeviceptr address;
        EXPECT_OK(cuMemAllocAsync(&address, 40 * MIB, nullptr));
        EXPECT_OK(cuMemsetD8Async(address, 1, 40 * MIB, nullptr));
        EXPECT_OK(cuMemFreeAsync(address, nullptr));
        EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(address, nullptr));
    }
}

void a_copy_may_not_leave_its_allocation() {
    CUdeviceptr one = allocated(512), two = allocated(512);
    EXPECT(two == one + 512);
    EXPECT_OK(cuMemsetD8(one, 0, 512));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(one, 0, 513));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync(one + 1, two, 512, nullptr));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(one, two + 1, 512));
}

void new_memory_is_far_from_the_heap_and_not_zero() {
    CUmemoryPool pool;
    CUdeviceptr pooled;
    EXPECT_OK(cuDeviceGetDefaultMemPool(&pool, 0));
    EXPECT_OK(cuMemAllocFromPoolAsync(&pooled, 1000, pool, nullptr));
    for (CUdeviceptr address : {allocated(1000), pooled, mapped_with_access()}) {
        EXPECT(address >= 0x300000000000 && address < 0x500000000000);
        EXPECT(all_are(address, 250, 0xa5a5a5a5));
    }
    // Nor when the addresses have been used before.
    CUdeviceptr first = allocated(1000);
    EXPECT_OK(cuMemsetD32(first, 0, 250));
    EXPECT_OK(cuMemFree(first));
    CUdeviceptr again = allocated(1000);
    EXPECT(again == first && all_are(again, 250, 0xa5a5a5a5));
}

void a_reservation_is_where_it_is_wanted_if_that_is_free() {
    CUdeviceptr space, again, other;
    EXPECT_OK(cuMemAddressReserve(&space, 4 * MIB, 0, 0, 0));
    EXPECT_OK(cuMemAddressFree(space, 4 * MIB));
    EXPECT_OK(cuMemAddressReserve(&again, 4 * MIB, 0, space + 8 * MIB, 0));
    EXPECT(again == space + 8 * MIB);
    EXPECT_OK(cuMemAddressReserve(&other, 4 * MIB, 0, again + 2 * MIB, 0));
    EXPECT(other != again + 2 * MIB);
}

// The process is ended by a fault.
void what_is_mapped_faults_without_access() {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr space = mapped(handle);
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(space, 0, 1));
    *pointer<volatile char>(space) = 1;
}

void what_crosses_each_bus_is_counted() {
    std::vector<char> here(3000);
    CUdeviceptr one = allocated(3000), two = allocated(3000);
    EXPECT_OK(cuMemcpyHtoD(one, here.data(), 3000));
    EXPECT_OK(cuMemcpyDtoHAsync(here.data(), one, 200, nullptr));
    EXPECT_OK(cuMemcpyDtoD(two, one, 10));
    EXPECT_OK(cuMemcpy(two, one, 7));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT(double_bytes_host_to_device() == 3000);
    EXPECT(double_bytes_device_to_host() == 200);
    EXPECT(double_bytes_device_to_device() == 17);
    EXPECT(double_calls("cuMemcpyDtoD_v2") == 1 && double_calls("cuMemcpyDtoD") == 0);
}

// With CKPT_DOUBLE_DEVICES of 2 and CKPT_DOUBLE_MEMORY of 64 MiB.
void devices_have_memory_of_their_own() {
    int count, can;
    CUcontext second;
    EXPECT_OK(cuDeviceGetCount(&count));
    EXPECT(count == 2);
    EXPECT_OK(cuDeviceCanAccessPeer(&can, 0, 1));
    EXPECT(can == 1);
    CUdeviceptr here = allocated(10 * MIB);
    EXPECT_OK(cuMemsetD32(here, 77, 250));
    EXPECT_OK(cuCtxCreate(&second, nullptr, 0, 1));
    EXPECT(free_memory() == 64 * MIB);
    CUdeviceptr there = allocated(20 * MIB);
    EXPECT(free_memory() == 44 * MIB && double_memory_used(0) == 10 * MIB);
    EXPECT(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, there) == 1);
    EXPECT(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, here) == 0);
    EXPECT_OK(cuCtxEnablePeerAccess(context, 0));
    EXPECT_RESULT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(context, 0));
    EXPECT_OK(cuMemcpyPeer(there, second, here, context, 1000));
    EXPECT(all_are(there, 250, 77));
    EXPECT_OK(cuCtxDisablePeerAccess(context));
    EXPECT_RESULT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(context));
    EXPECT_OK(lock());
    EXPECT_OK(checkpoint());
    EXPECT(double_memory_used(0) == 0 && double_memory_used(1) == 0);
    EXPECT_OK(restore());
    EXPECT_OK(unlock());
    EXPECT(double_memory_used(0) == 10 * MIB && double_memory_used(1) == 20 * MIB);
    EXPECT(all_are(there, 250, 77));
    EXPECT_OK(cuCtxDestroy(second));
    EXPECT(double_memory_used(1) == 0 && all_are(here, 250, 77));
}

void what_belongs_to_a_context_ends_with_it() {
    CUcontext other;
    CUmodule module;
    CUstream stream;
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR shape = {250, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1};
    EXPECT_OK(cuCtxCreate(&other, nullptr, 0, 0));
    CUdeviceptr address = allocated(MIB);
    EXPECT_OK(cuModuleLoad(&module, ptx_path.c_str()));
    EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    EXPECT_OK(cuArrayCreate(&array, &shape));
    EXPECT_OK(cuMemsetD32Async(address, 1, 250, stream));
    EXPECT_OK(cuCtxDestroy(other));
    EXPECT(double_memory_used(0) == 0);
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemFree(address));
    EXPECT_RESULT(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    EXPECT_RESULT(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
}

// A pool that is managed can be the device's current one, so that the same call gives managed memory.
void a_pool_of_managed_memory_can_be_the_current_one() {
    CUmemPoolProps about = {};
    about.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
    about.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemoryPool pool;
    CUdeviceptr address;
    EXPECT_OK(cuMemPoolCreate(&pool, &about));
    EXPECT_OK(cuDeviceSetMemPool(0, pool));
    EXPECT_OK(cuMemAllocAsync(&address, 1000, nullptr));
    EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, address) == 1);
    *pointer<int>(address) = 5;
    EXPECT(words_at(address, 1)[0] == 5);
}

void a_default_stream_of_each_thread_is_another_one() {
    using Fill = CUresult (*)(CUdeviceptr, unsigned, size_t, CUstream);
    auto fill = reinterpret_cast<Fill>(dlsym(RTLD_DEFAULT, "cuMemsetD32Async_ptsz"));
    EXPECT(fill != nullptr);
    static sem_t brake;
    sem_init(&brake, 0, 0);
    CUdeviceptr words = allocated(1000);
    EXPECT_OK(cuLaunchHostFunc(CU_STREAM_PER_THREAD, [](void *) { sem_wait(&brake); }, nullptr));
    EXPECT_OK(fill(words, 6, 250, nullptr));
    EXPECT_RESULT(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
    std::thread([&] { // whose own is not held up
        EXPECT_OK(cuCtxSetCurrent(context));
        EXPECT_OK(fill(words, 5, 250, nullptr));
        EXPECT_OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    }).join();
    EXPECT(*pointer<uint32_t>(words) == 5);
    sem_post(&brake);
    EXPECT(all_are(words, 250, 6)); // the legacy default stream waits for both
}

const std::map<std::string, void (*)()> CASES = {
#define CASE(name) {#name, name}
    CASE(a_call_waits_while_the_process_is_locked),
    CASE(the_lock_waits_for_work_but_not_for_ever),
    CASE(managed_memory_is_refused),
    CASE(what_other_processes_may_have_is_refused),
    CASE(a_checkpoint_leaves_nothing_on_the_device_and_a_restore_brings_all_back),
    CASE(a_restore_without_room_fails_for_good),
    CASE(memory_is_counted_as_the_driver_does),
    CASE(what_a_stream_has_freed_it_can_have_again),
    CASE(a_copy_may_not_leave_its_allocation),
    CASE(new_memory_is_far_from_the_heap_and_not_zero),
    CASE(a_reservation_is_where_it_is_wanted_if_that_is_free),
    CASE(what_is_mapped_faults_without_access),
    CASE(what_crosses_each_bus_is_counted),
    CASE(devices_have_memory_of_their_own),
    CASE(what_belongs_to_a_context_ends_with_it),
    CASE(a_pool_of_managed_memory_can_be_the_current_one),
    CASE(a_default_stream_of_each_thread_is_another_one),
};

} // namespace

int main(int count, char **arguments) {
    auto found = count == 3 ? CASES.find(arguments[2]) : CASES.end();
    if (found == CASES.end()) return fprintf(stderr, "usage: double_only KERNELS.ptx CASE\n"), 2;
    ptx_path = arguments[1];
    begin_with_device(context);
    found->second();
    end_well();
}
