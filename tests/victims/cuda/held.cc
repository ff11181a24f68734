// A program whose devices are held still, in one of several ways. It says where its counters and its memory are, and goes on at
// each SIGUSR2.
#include "waits.h"

#include <cuda.h>
#include <dlfcn.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#define ok(call) expect((call) == CUDA_SUCCESS)

static constexpr size_t BYTES = size_t(4) << 20;
static CUcontext context;
static std::atomic<bool> ends{false};
// How often each thread has come round.
static std::atomic<uint64_t> rounds[8];

static void say_where(const char *what, const void *where) { printf("%s %llx\n", what, (unsigned long long)(uintptr_t)where); }

static void begin() {
    say_where("control", dlsym(RTLD_DEFAULT, "ckpt_control"));
    say_where("rounds", rounds);
    ok(cuInit(0));
    ok(cuDevicePrimaryCtxRetain(&context, 0));
    ok(cuCtxSetCurrent(context));
}

// Memory that can be exported.
static CUdeviceptr exportable(size_t bytes) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory;
    CUdeviceptr address;
    ok(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    ok(cuMemCreate(&memory, bytes, &properties, 0));
    ok(cuMemMap(address, bytes, 0, memory, 0));
    ok(cuMemSetAccess(address, bytes, &access, 1));
    ok(cuMemRelease(memory));
    return address;
}

static void many_times(int number, const std::function<void(uint32_t)> &once) {
    ok(cuCtxSetCurrent(context));
    for (uint32_t round = 1; !ends; ++round) once(round), rounds[number] = round;
}

// Threads that do nothing but change memory, as fast as they can.
static void traffic(const char *kernels) {
    begin();
    CUdeviceptr memory = exportable(BYTES), managed;
    ok(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
    for (size_t word = 0; word < BYTES / 4; ++word) reinterpret_cast<uint32_t *>(managed)[word] = uint32_t(word * 2654435761u);
    say_where("memory", reinterpret_cast<void *>(memory));
    say_where("managed", reinterpret_cast<void *>(managed));
    CUmodule module;
    CUfunction fill;
    ok(cuModuleLoad(&module, kernels));
    ok(cuModuleGetFunction(&fill, module, "fill_words"));
    const size_t quarter = BYTES / 4;
    std::vector<std::thread> threads;
    threads.emplace_back(many_times, 0, [=](uint32_t round) {
        CUdeviceptr words = memory;
        uint64_t count = 1024;
        void *parameters[] = {&words, &count, &round};
        ok(cuLaunchKernel(fill, 1, 1, 1, 8, 1, 1, 0, CU_STREAM_PER_THREAD, parameters, nullptr));
        ok(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    });
    threads.emplace_back(many_times, 1, [=](uint32_t round) {
        std::vector<uint32_t> words(1024, round);
        ok(cuMemcpyHtoDAsync(memory + quarter, words.data(), 4096, CU_STREAM_PER_THREAD));
        ok(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    });
    threads.emplace_back(many_times, 2, [=](uint32_t round) {
        ok(cuMemsetD32Async(memory + 2 * quarter, round, 1024, CU_STREAM_PER_THREAD));
        if (round % 16 == 0) ok(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    });
    threads.emplace_back(many_times, 3, [=](uint32_t round) {
        CUdeviceptr mine;
        ok(cuMemAlloc(&mine, 10000));
        ok(cuMemsetD32(mine, round, 100));
        ok(cuMemcpyDtoD(memory + 3 * quarter, mine, 400));
        ok(cuMemFree(mine));
    });
    wait_after("ready");
    ends = true;
    for (std::thread &thread : threads) thread.join();
}

static void capture() {
    begin();
    CUstream stream;
    CUgraph graph;
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    wait_after("captures");
    ok(cuStreamEndCapture(stream, &graph));
    wait_after("has captured");
    ok(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    ok(cuStreamDestroy(stream));
    wait_after("has given up");
    CUstream of_thread = CU_STREAM_PER_THREAD;
    std::thread other([=] {
        CUgraph graph;
        ok(cuCtxSetCurrent(context));
        ok(cuStreamBeginCapture(of_thread, CU_STREAM_CAPTURE_MODE_RELAXED));
        wait_after("another thread captures");
        ok(cuStreamEndCapture(of_thread, &graph));
    });
    other.join();
    wait_after("nobody captures");
}

static sem_t brake;

// Work that waits for the host; and with it, a call that waits for the work.
static void stuck(bool in_call) {
    begin();
    CUdeviceptr memory = exportable(BYTES);
    CUstream stream;
    ok(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    sem_init(&brake, 0, 0);
    ok(cuLaunchHostFunc(stream, [](void *) { while (sem_wait(&brake) != 0) {} }, nullptr));
    std::thread caller([=] {
        if (!in_call) return;
        ok(cuCtxSetCurrent(context));
        uint32_t word;
        rounds[0] = 1;
        ok(cuMemcpyDtoH(&word, memory, 4)); // in order behind it
        rounds[0] = 2;
    });
    if (!in_call) caller.join();
    wait_after("stuck");
    CUdeviceptr other;
    ok(cuMemAlloc(&other, 100)); // passes the gate if that is open
    wait_after("goes on");
    sem_post(&brake);
    if (in_call) caller.join();
    ok(cuStreamSynchronize(stream));
    wait_after("free");
}

// A thread that launches once it is told to, and a main thread that closes all it has meanwhile.
static void closing() {
    begin();
    CUdeviceptr memory = exportable(BYTES);
    say_where("memory", reinterpret_cast<void *>(memory));
    wait_after("ready");
    int copy = dup(1);
    close_range(3, unsigned(copy) - 1, 0);
    close_range(unsigned(copy) + 1, ~0u, 0);
    wait_after("closed");
    ok(cuMemsetD32(memory, 1, 1));
    wait_after("filled");
}

// A child of fork, made while devices are held still, is not.
static void forking() {
    begin();
    CUdeviceptr memory = exportable(BYTES);
    wait_after("ready");
    pid_t child = fork();
    if (child == 0) {
        cuMemsetD8(memory, 1, 1); // whatever comes of it
        _exit(7);
    }
    int status = 0;
    while (waitpid(child, &status, 0) != child) {
    }
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    wait_after("forked");
    ok(cuMemsetD8(memory, 1, 1));
}

// Threads that change memory that the driver can move to the host.
static void movable() {
    begin();
    CUdeviceptr memory;
    ok(cuMemAlloc(&memory, BYTES));
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; ++number)
        threads.emplace_back(many_times, number, [=](uint32_t round) {
            CUdeviceptr mine = memory + size_t(number) * (BYTES / 4);
            uint32_t before = round - 1;
            if (round > 1) ok(cuMemcpyDtoH(&before, mine, 4));
            expect(before == round - 1);
            ok(cuMemsetD32(mine, round, 1024));
        });
    wait_after("ready");
    ends = true;
    for (std::thread &thread : threads) thread.join();
}

static void nothing() {
    say_where("control", dlsym(RTLD_DEFAULT, "ckpt_control"));
    wait_after("ready");
}

// A context of its own, and no primary one.
static void own_context() {
    say_where("control", dlsym(RTLD_DEFAULT, "ckpt_control"));
    ok(cuInit(0));
    wait_after("no context");
    ok(cuCtxCreate(&context, nullptr, 0, 0));
    CUdeviceptr managed;
    ok(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
    memset(reinterpret_cast<void *>(managed), 0x5a, BYTES);
    say_where("managed", reinterpret_cast<void *>(managed));
    wait_after("ready");
    ok(cuCtxDestroy(context));
    wait_after("destroyed");
}

int main(int argc, char **argv) {
    expect(argc == 3);
    std::string way = argv[1];
    wait_by_signal();
    if (way == "traffic") traffic(argv[2]);
    else if (way == "capture") capture();
    else if (way == "stuck") stuck(false);
    else if (way == "stuck in a call") stuck(true);
    else if (way == "closing") closing();
    else if (way == "forking") forking();
    else if (way == "own context") own_context();
    else if (way == "movable") movable();
    else nothing();
    puts("done");
}
