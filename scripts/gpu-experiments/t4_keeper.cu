// T4: another process keeps the physical memory while the program is checkpointed, so that its data never crosses the bus.
//
//     t4_keeper descriptor MIB    the other process only holds a descriptor: it needs no CUDA at all
//     t4_keeper import MIB        the other process imports the memory and exports it again
//
// Passes if the bytes are equal after the memory has been mapped again at its address, with no copy.
#include <sys/socket.h>
#include <sys/wait.h>

#include <thread>

#include "pattern.cuh"
#include "vmm.cuh"

// A message of one byte, with room for a descriptor.
struct Message {
    char byte = 'd', room[CMSG_SPACE(sizeof(int))] = {};
    iovec part = {&byte, 1};
    msghdr header = {};

    Message() {
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        header.msg_control = room;
        header.msg_controllen = sizeof room;
    }
};

static void send_descriptor(int socket, int descriptor) {
    Message message;
    cmsghdr *header = CMSG_FIRSTHDR(&message.header);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    SYS(sendmsg(socket, &message.header, MSG_NOSIGNAL));
}

// -1 when the other side has closed.
static int receive_descriptor(int socket) {
    Message message;
    ssize_t length = recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC);
    SYS(length);
    cmsghdr *header = CMSG_FIRSTHDR(&message.header);
    if (length == 0 || header == nullptr || header->cmsg_type != SCM_RIGHTS) return -1;
    int descriptor;
    memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return descriptor;
}

// The other process: takes a descriptor, keeps the memory, and gives a descriptor back when asked for it by one byte.
[[noreturn]] static void keep(int socket, bool imports) {
    int descriptor = receive_descriptor(socket);
    if (descriptor == -1) _exit(1);
    CUmemGenericAllocationHandle handle = 0;
    if (imports) {
        RT(cudaFree(nullptr));
        CU(driver().cuMemImportFromShareableHandle(&handle, reinterpret_cast<void *>(intptr_t(descriptor)),
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        SYS(close(descriptor));
        size_t free_bytes, total;
        RT(cudaMemGetInfo(&free_bytes, &total));
        note("keeper: imported; %zu MiB are free", free_bytes / MIB);
    }
    char byte = 'k';
    if (write(socket, &byte, 1) != 1 || read(socket, &byte, 1) != 1) _exit(1);
    if (imports) {
        CUresult error = driver().cuMemExportToShareableHandle(&descriptor, handle,
                                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        note("keeper: exporting what was imported: %s", cu_name(error));
        if (error != CUDA_SUCCESS) _exit(1);
    }
    send_descriptor(socket, descriptor);
    _exit(read(socket, &byte, 1) == 1 ? 0 : 1);
}

static void wait_for_byte(int socket) {
    char byte;
    if (read(socket, &byte, 1) != 1) broken("the keeper", "it has ended", __FILE__, __LINE__);
}

int main(int count, char **arguments) {
    if (count < 3) return fprintf(stderr, "t4_keeper descriptor|import MIB\n"), 2;
    bool imports = strcmp(arguments[1], "import") == 0;
    int sockets[2];
    SYS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets));
    pid_t keeper = fork();
    SYS(keeper);
    if (keeper == 0) {
        close(sockets[0]);
        keep(sockets[1], imports);
    }
    close(sockets[1]);

    RT(cudaFree(nullptr));
    CUmemAllocationProp properties = device_memory(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    Region region = reserve(strtoull(arguments[2], nullptr, 10) * MIB, properties);
    back(region, properties);
    fill(region.as<void>(), region.bytes, 9);
    size_t before, released, total;
    RT(cudaMemGetInfo(&before, &total));

    int descriptor;
    CU(driver().cuMemExportToShareableHandle(&descriptor, region.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_descriptor(sockets[0], descriptor);
    SYS(close(descriptor));
    wait_for_byte(sockets[0]);
    double begun = now_s();
    release(region);
    double release_s = now_s() - begun;
    RT(cudaMemGetInfo(&released, &total));
    note("released in %.2f ms; free before %zu MiB, after %zu MiB (kept by the other process)", release_s * 1e3, before / MIB,
         released / MIB);

    Cycle done;
    std::thread([&] { done = cycle(getpid(), [] { snapshot("T4", "checkpointed"); }); }).join();
    done.print(arguments[1]);
    if (!done.ok()) return result("T4", false, "%s: %s, state %s", done.at, cu_name(done.error), state_of(getpid()));

    begun = now_s();
    if (write(sockets[0], "g", 1) != 1) broken("the keeper", strerror(errno), __FILE__, __LINE__);
    descriptor = receive_descriptor(sockets[0]);
    if (descriptor == -1) return result("T4", false, "%s: the keeper gave nothing back", arguments[1]);
    CU(driver().cuMemImportFromShareableHandle(&region.handle, reinterpret_cast<void *>(intptr_t(descriptor)),
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    map(region);
    double back_s = now_s() - begun;
    SYS(close(descriptor));
    unsigned long long wrong = wrong_words(region.as<void>(), region.bytes, 9);
    fill(region.as<void>(), region.bytes, 10);
    bool writes = wrong_words(region.as<void>(), region.bytes, 10) == 0;
    if (write(sockets[0], "e", 1) != 1) note("the keeper has ended already");
    int status;
    SYS(waitpid(keeper, &status, 0));
    return result("T4", wrong == 0 && writes && status == 0,
                  "%s, %.2f GiB: %llu wrong words, checkpoint %.1f ms, restore %.1f ms, mapped again in %.2f ms", arguments[1],
                  double(region.bytes) / GIB, wrong, done.checkpoint.seconds * 1e3, done.restore.seconds * 1e3, back_s * 1e3);
}
