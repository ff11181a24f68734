// Memory that another process has too: this program once more.
#include "groups.h"

#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

// The other process: has a handle of legacy IPC, and a descriptor.
int other_process(const char *handle_in_hex, int descriptor) {
    CUipcMemHandle handle;
    for (size_t at = 0; at < sizeof handle; ++at) {
        unsigned byte;
        sscanf(handle_in_hex + 2 * at, "%2x", &byte);
        handle.reserved[at] = char(byte);
    }
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    CUdeviceptr words, space;
    say("other: cuIpcOpenMemHandle", cuIpcOpenMemHandle(&words, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    fact("other: it reads what was written", all_are(words, 250, 0xabc));
    MUST(cuMemsetD32(words, 0xdef, 250));
    say("other: cuIpcCloseMemHandle", cuIpcCloseMemHandle(words));

    CUmemGenericAllocationHandle memory;
    void *shared = reinterpret_cast<void *>(intptr_t(descriptor));
    say("other: cuMemImportFromShareableHandle",
        cuMemImportFromShareableHandle(&memory, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemAddressReserve(&space, 2 * MIB, 0, 0, 0));
    MUST(cuMemMap(space, 2 * MIB, 0, memory, 0));
    MUST(cuMemSetAccess(space, 2 * MIB, &access, 1));
    fact("other: it reads what was written", all_are(space, 250, 0x123));
    MUST(cuMemsetD32(space, 0x456, 250));
    MUST(cuCtxSynchronize());
    return 0;
}

void other_processes() {
    begin("another process");
    CUdeviceptr words, space;
    CUipcMemHandle handle;
    CUmemGenericAllocationHandle memory, imported;
    int descriptor = -1;
    MUST(cuMemAlloc(&words, 1000));
    MUST(cuMemsetD32(words, 0xabc, 250));
    SAY(cuIpcGetMemHandle(&handle, words));
    CUmemAllocationProp about = {};
    about.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    about.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    about.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemAccessDesc access = {about.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemAddressReserve(&space, 4 * MIB, 0, 0, 0));
    MUST(cuMemCreate(&memory, 2 * MIB, &about, 0));
    MUST(cuMemMap(space, 2 * MIB, 0, memory, 0));
    MUST(cuMemSetAccess(space, 2 * MIB, &access, 1));
    MUST(cuMemsetD32(space, 0x123, 250));
    fact("not for legacy IPC", attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, space) == 0);
    SAY(cuMemExportToShareableHandle(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    void *shared = reinterpret_cast<void *>(intptr_t(descriptor));
    SAY(cuMemImportFromShareableHandle(&imported, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    SAY(cuMemMap(space + 2 * MIB, 2 * MIB, 0, imported, 0));
    MUST(cuMemSetAccess(space + 2 * MIB, 2 * MIB, &access, 1));
    fact("the same memory twice", all_are(space + 2 * MIB, 250, 0x123));

    std::string hex;
    for (char byte : handle.reserved) {
        char digits[3];
        snprintf(digits, sizeof digits, "%02x", (unsigned char)byte);
        hex += digits;
    }
    MUST(cuCtxSynchronize());
    fflush(stdout);
    std::string number = std::to_string(dup(descriptor)); // one that the other process inherits
    std::string words_of[] = {"conformance", "--other", hex, number};
    char *arguments[] = {words_of[0].data(), words_of[1].data(), words_of[2].data(), words_of[3].data(), nullptr};
    pid_t other;
    int status = -1;
    bool starts = posix_spawn(&other, "/proc/self/exe", nullptr, nullptr, arguments, environ) == 0;
    bool ends = waitpid(other, &status, 0) == other && status == 0; // both write to one place: not before
    fact("it starts and ends", starts && ends);
    fact("what it wrote is here", all_are(words, 250, 0xdef) && all_are(space, 250, 0x456));
    close(descriptor);
    MUST(cuMemUnmap(space, 4 * MIB));
    MUST(cuMemRelease(memory));
    MUST(cuMemRelease(imported));
    MUST(cuMemAddressFree(space, 4 * MIB));
    MUST(cuMemFree(words));
}
