// Plain memory of device and host, copies and fills.
#include "groups.h"

#include <stdlib.h>

void memory() {
    begin("memory");
    CUdeviceptr small, other, large, start;
    size_t before, after, total, bytes, pitch;
    SAY(cuMemAlloc(&small, 0));
    SAY(cuMemAlloc(&small, 1000));
    SAY(cuMemAlloc(&other, 1));
    fact("aligned", small % 256 == 0 && other % 256 == 0);
    MUST(cuMemGetInfo(&before, &total));
    fact("less is free than there is", before < total);
    SAY(cuMemAlloc(&large, 64 * MIB));
    MUST(cuMemGetInfo(&after, &total));
    fact("what is allocated is not free", before - after >= 64 * MIB);
    SAY(cuMemGetAddressRange(&start, &bytes, large + 5 * MIB));
    fact("found from inside", start == large && bytes >= 64 * MIB);
    SAY(cuMemFree(large + 512));
    SAY(cuMemFree(large));
    SAY(cuMemFree(large));
    MUST(cuMemGetInfo(&after, &total));
    fact("what was freed is free", after >= before);
    SAY(cuMemAlloc(&large, total + 1024 * MIB));
    SAY(cuMemAllocPitch(&large, &pitch, 1001, 7, 4));
    fact("rows fit and are aligned", pitch >= 1001 && pitch % 32 == 0);
    SAY(cuMemAllocPitch(&start, &pitch, 1001, 7, 3));
    MUST(cuMemFree(large));
    MUST(cuMemFree(small));
    MUST(cuMemFree(other));
}

void copies_and_fills() {
    begin("copies and fills");
    constexpr size_t COUNT = 10000;
    CUdeviceptr one, two;
    MUST(cuMemAlloc(&one, COUNT * 4));
    MUST(cuMemAlloc(&two, COUNT * 4));
    std::vector<uint32_t> words(COUNT);
    for (size_t at = 0; at < COUNT; ++at) words[at] = uint32_t(at * 2654435761u);
    SAY(cuMemcpyHtoD(one, words.data(), COUNT * 4));
    SAY(cuMemcpyDtoD(two, one, COUNT * 4));
    std::vector<uint32_t> back(COUNT);
    SAY(cuMemcpyDtoH(back.data(), two, COUNT * 4));
    fact("the same", back == words);
    SAY(cuMemcpy(one + 400, two, 4000));
    fact("the same, shifted", words_at(one + 400, 1000) == std::vector<uint32_t>(words.begin(), words.begin() + 1000));
    std::fill(back.begin(), back.end(), 0);
    SAY(cuMemcpy(reinterpret_cast<CUdeviceptr>(back.data()), two, COUNT * 4));
    fact("the same, at an address of the host", back == words);

    SAY(cuMemsetD32(one, 0x12345678, COUNT));
    fact("words", all_are(one, COUNT, 0x12345678));
    SAY(cuMemsetD16(one, 0xabcd, COUNT * 2));
    fact("halves", all_are(one, COUNT, 0xabcdabcd));
    SAY(cuMemsetD8(one, 0x5a, COUNT * 4));
    fact("bytes", all_are(one, COUNT, 0x5a5a5a5a));
    SAY(cuMemsetD2D8(one, 400, 0x11, 40, 3));
    fact("rows", all_are(one, 10, 0x11111111) && all_are(one + 40, 90, 0x5a5a5a5a) && all_are(one + 800, 10, 0x11111111) &&
                     all_are(one + 1200, 100, 0x5a5a5a5a));
    SAY(cuMemsetD32(one + 1, 0, 1));

    uint32_t word = 0;
    CUdeviceptr nowhere = 0x1000;
    SAY(cuMemcpyDtoH(&word, nowhere, 4));
    SAY(cuMemcpyHtoD(nowhere, &word, 4));
    MUST(cuMemFree(one));
    MUST(cuMemFree(two));
}

void host_memory() {
    begin("host memory");
    void *pinned, *mapped;
    CUdeviceptr seen, there;
    unsigned flags;
    SAY(cuMemAllocHost(&pinned, 5000));
    SAY(cuMemHostAlloc(&mapped, 5000, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    SAY(cuMemHostGetFlags(&flags, mapped));
    number("its flags", flags);
    SAY(cuMemHostGetDevicePointer(&seen, mapped, 0));
    fact("at the same address", seen == reinterpret_cast<CUdeviceptr>(mapped));
    memset(pinned, 1, 5000);
    MUST(cuMemAlloc(&there, 5000));
    SAY(cuMemcpyHtoDAsync(there, pinned, 5000, nullptr));
    SAY(cuMemcpyDtoHAsync(mapped, there, 5000, nullptr));
    SAY(cuStreamSynchronize(nullptr));
    fact("there and back", memcmp(pinned, mapped, 5000) == 0);
    SAY(cuMemsetD8(seen, 2, 5000));
    fact("filled by the device", static_cast<char *>(mapped)[4999] == 2);
    SAY(cuMemFreeHost(pinned));
    SAY(cuMemFreeHost(mapped));

    void *own = aligned_alloc(4096, 8192);
    SAY(cuMemHostRegister(own, 8192, 0));
    SAY(cuMemHostRegister(own, 8192, 0));
    SAY(cuMemHostGetDevicePointer(&seen, own, 0));
    MUST(cuMemsetD8(seen, 3, 8192));
    fact("filled by the device", static_cast<char *>(own)[8191] == 3);
    SAY(cuMemHostUnregister(own));
    free(own);
    MUST(cuMemFree(there));
}
