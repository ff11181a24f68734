// Managed memory, as a program sees it: the same whether it is the driver's or host memory that libckpt.so has pinned.
//
//   managed CASE native|pinned
//
// Each case holds for both, but for where it says so; the second argument is which one it is, which is checked, too. It ends with
// the status 0 if all is as it should be.
#include "brake.h"
#include "cases.h"
#include "controls.h"

#include <string.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t MIB = 1 << 20;
constexpr CUmemLocation HERE = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, HOST = {CU_MEM_LOCATION_TYPE_HOST, 0};
CUcontext context;
bool is_pinned;

CUdeviceptr allocated(size_t bytes, bool may_be_pinned = true) {
    CUdeviceptr address = 0;
    uint64_t by_driver = double_calls("cuMemAllocManaged");
    EXPECT_OK(cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL));
    EXPECT((double_calls("cuMemAllocManaged") == by_driver) == (is_pinned && may_be_pinned));
    return address;
}

uint32_t *words_at(CUdeviceptr address) { return reinterpret_cast<uint32_t *>(address); }

void expect_attributes(CUdeviceptr address, CUdeviceptr wanted_start, size_t wanted_bytes) {
    EXPECT(attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, address) == context);
    EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CU_MEMORYTYPE_DEVICE);
    EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, address) == 1);
    EXPECT(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address) == address);
    EXPECT(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_HOST_POINTER, address) == address);
    EXPECT(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) == 0);
    EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address) == 0);
    EXPECT(attribute<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address) == nullptr);
    unsigned type = 0, managed = 0, on = 1;
    CUdeviceptr start = 0;
    size_t bytes = 0;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    void *to[] = {&managed, &start, &type};
    EXPECT_OK(cuPointerGetAttributes(3, which, to, address));
    EXPECT(managed == 1 && start == wanted_start && type == CU_MEMORYTYPE_DEVICE);
    start = 0;
    EXPECT_OK(cuMemGetAddressRange(&start, &bytes, address));
    EXPECT(start == wanted_start && bytes == wanted_bytes);
    EXPECT_OK(cuMemGetAddressRange(&start, nullptr, address));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
    unsigned flags;
    if (!is_pinned) EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemHostGetFlags(&flags, words_at(address)));
}

void it_is_said_to_be_managed() {
    CUdeviceptr small = allocated(1000), large = allocated(3 * MIB + 5), start;
    expect_attributes(small, small, 1000);
    expect_attributes(small + 999, small, 1000);
    expect_attributes(large + 3 * MIB + 4, large, 3 * MIB + 5);
    void *pinned;
    EXPECT_OK(cuMemAllocHost(&pinned, 1000));
    EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, CUdeviceptr(pinned)) == 0);
    EXPECT(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CUdeviceptr(pinned)) == CU_MEMORYTYPE_HOST);
    EXPECT_OK(cuMemFreeHost(pinned));
    EXPECT_OK(cuMemFree(small));
    EXPECT_RESULT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&start, nullptr, small));
    CUdeviceptr none = 7;
    for (unsigned flags : {0U, 3U, 4U}) EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&none, 100, flags));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&none, 0, CU_MEM_ATTACH_GLOBAL));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(nullptr, 100, CU_MEM_ATTACH_GLOBAL));
    EXPECT_OK(cuCtxSetCurrent(nullptr));
    EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocManaged(&none, 100, CU_MEM_ATTACH_HOST));
    EXPECT(none == 7);
}

// With CKPT_DOUBLE_DEVICES of 2.
void host_and_devices_have_the_same_bytes() {
    CUdeviceptr memory = allocated(MIB), plain;
    std::fill_n(words_at(memory), MIB / 4, 6);
    EXPECT_OK(cuMemAlloc(&plain, MIB));
    EXPECT_OK(cuMemcpyDtoD(plain, memory, MIB));
    EXPECT(all_are(plain, MIB / 4, 6));
    EXPECT_OK(cuMemsetD32(memory, 8, MIB / 8));
    EXPECT(words_at(memory)[0] == 8 && words_at(memory)[MIB / 8 - 1] == 8 && words_at(memory)[MIB / 8] == 6);
    CUcontext other;
    EXPECT_OK(cuCtxCreate(&other, nullptr, 0, 1));
    EXPECT_OK(cuMemsetD32Async(memory + MIB / 2, 9, MIB / 8, nullptr));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT(words_at(memory)[MIB / 8] == 9 && words_at(memory)[MIB / 4 - 1] == 9);
    EXPECT_OK(cuMemcpy(plain, memory + MIB / 2, MIB / 2));
    EXPECT(all_are(plain, MIB / 8, 9));
    EXPECT_OK(cuCtxDestroy(other));
    EXPECT_OK(cuCtxSetCurrent(context));
    EXPECT_OK(cuMemFree(memory));
}

int number(CUmem_range_attribute which, CUdeviceptr address, size_t bytes) {
    int answer = 77;
    EXPECT_OK(cuMemRangeGetAttribute(&answer, sizeof answer, which, address, bytes));
    return answer;
}

// What was advised of pinned memory has no effect, and that is what it says.
void advice_is_taken() {
    CUdeviceptr memory = allocated(3 * MIB);
    for (int advice = CU_MEM_ADVISE_SET_READ_MOSTLY; advice <= CU_MEM_ADVISE_UNSET_ACCESSED_BY; ++advice)
        EXPECT_OK(cuMemAdvise(memory + MIB, 2 * MIB, CUmem_advise(advice), HERE));
    EXPECT_OK(cuMemAdvise(memory, 3 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, HERE));
    EXPECT_OK(cuMemAdvise(memory, 3 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, HOST));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(memory, MIB, CUmem_advise(7), HERE));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(memory, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, HERE));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(memory + MIB, 3 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, HERE));
    EXPECT_OK(cuMemPrefetchAsync(memory, 3 * MIB, HERE, 0, nullptr));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(memory, 3 * MIB + 1, HERE, 0, nullptr));
    EXPECT_OK(cuStreamAttachMemAsync(nullptr, memory, 0, CU_MEM_ATTACH_SINGLE));

    EXPECT(number(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, 3 * MIB) == !is_pinned);
    EXPECT(number(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, 3 * MIB) == (is_pinned ? int(CU_DEVICE_INVALID) : 0));
    EXPECT(number(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory, MIB) == (is_pinned ? int(CU_DEVICE_INVALID) : 0));
    EXPECT(number(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, memory, MIB) == (is_pinned ? 0 : 1));
    int by[3] = {7, 7, 7}, preferred = 7;
    size_t sizes[] = {sizeof by, sizeof preferred};
    void *to[] = {by, &preferred};
    CUmem_range_attribute which[] = {CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID};
    EXPECT_OK(cuMemRangeGetAttributes(to, sizes, which, 2, memory, 3 * MIB));
    EXPECT(by[0] == CU_DEVICE_INVALID && by[2] == CU_DEVICE_INVALID && preferred == 0);
    for (size_t wrong : {size_t(0), size_t(5), size_t(8)}) {
        CUresult result = cuMemRangeGetAttribute(by, wrong, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, MIB);
        EXPECT(result == CUDA_ERROR_INVALID_VALUE);
    }
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(by, 4, CUmem_range_attribute(9), memory, MIB));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute(by, 4, which[1], memory, 0));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttributes(to, nullptr, which, 2, memory, MIB));
}

// The second allocation cannot be pinned (CKPT_DOUBLE_FAIL=cuMemHostAlloc:2:2): several of both kinds at once.
void what_cannot_be_pinned_is_the_drivers() {
    CUdeviceptr first = allocated(MIB), native = allocated(MIB, false), third = allocated(MIB);
    expect_attributes(native, native, MIB);
    CUdeviceptr all[] = {first, native + 512, third, native};
    size_t sizes[] = {MIB, MIB - 512, MIB, MIB};
    CUmemLocation places[] = {HERE, HOST};
    size_t begin_at[] = {0, 3};
    EXPECT_OK(cuMemDiscardBatchAsync(all, sizes, 4, 0, nullptr));
    EXPECT_OK(cuMemPrefetchBatchAsync(all, sizes, 2, places, begin_at, 1, 0, nullptr));
    EXPECT(number(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, native, MIB) == 0);
    EXPECT_OK(cuMemPrefetchBatchAsync(all, sizes, 4, places, begin_at, 2, 0, nullptr));
    EXPECT(number(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, native, MIB) == CU_DEVICE_CPU);
    sizes[0] = 2 * MIB;
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemDiscardBatchAsync(all, sizes, 4, 0, nullptr));
    sizes[0] = MIB, sizes[3] = 2 * MIB;
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemDiscardBatchAsync(all, sizes, 4, 0, nullptr));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchBatchAsync(all, sizes, 4, places, begin_at, 2, 0, nullptr));
    for (CUdeviceptr address : {first, native, third}) EXPECT_OK(cuMemFree(address));
}

void only_what_begins_there_can_be_freed_and_once() {
    CUdeviceptr memory = allocated(3 * MIB), other = allocated(1000);
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory + MIB));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(words_at(memory)));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(memory, nullptr));
    expect_attributes(memory, memory, 3 * MIB);
    EXPECT_OK(cuMemFree(memory));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
    EXPECT_OK(cuCtxSetCurrent(nullptr));
    EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, cuMemFree(other));
}

void memory_is_freed_when_nothing_uses_it_any_more() {
    CUdeviceptr memory = allocated(MIB);
    Brake brake;
    std::thread other = brake.let_go_after(is_pinned ? "cuCtxSynchronize" : "cuMemFree_v2", memory);
    CUcontext own, current;
    EXPECT_OK(cuCtxCreate(&own, nullptr, 0, 0)); // another one may be current meanwhile
    EXPECT_OK(cuMemFree(memory));
    EXPECT(brake.is_done);
    EXPECT_OK(cuCtxGetCurrent(&current));
    EXPECT(current == own);
    other.join();
}

void memory_ends_with_its_context() {
    CUcontext own;
    EXPECT_OK(cuCtxCreate(&own, nullptr, 0, 0));
    CUdeviceptr memory = allocated(MIB), start;
    EXPECT_OK(cuCtxDestroy(own));
    EXPECT_OK(cuCtxSetCurrent(context));
    EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
    EXPECT_RESULT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&start, nullptr, memory));
}

const std::map<std::string, void (*)()> CASES = {
#define CASE(name) {#name, name}
    CASE(it_is_said_to_be_managed),
    CASE(host_and_devices_have_the_same_bytes),
    CASE(advice_is_taken),
    CASE(what_cannot_be_pinned_is_the_drivers),
    CASE(only_what_begins_there_can_be_freed_and_once),
    CASE(memory_is_freed_when_nothing_uses_it_any_more),
    CASE(memory_ends_with_its_context),
};

} // namespace

int main(int count, char **arguments) {
    auto found = count == 3 ? CASES.find(arguments[1]) : CASES.end();
    if (found == CASES.end()) return fprintf(stderr, "usage: managed CASE native|pinned\n"), 2;
    is_pinned = strcmp(arguments[2], "pinned") == 0;
    begin_with_device(context);
    found->second();
    end_well();
}
