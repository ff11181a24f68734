// Much device memory, of which each step changes a part: for measuring how long devices are away.
//
//   vast MIB CHANGED_PER_MILLE KERNELS
//
// No two words of it are alike but by chance, and it knows of each what it must be. A thread uses the device every millisecond. It
// does what it reads, and answers with a line:
//
//   step       changes a part: pieces of 1 MiB, all over
//   away       says for how many ms the device has been away at the longest since it was asked last: how long the thread waited
//   driver     has the driver checkpoint and restore this process, from another thread: says the ms of its four steps
//   compare    says how many words are not what they must be
//
// It ends with its input.
#include "expect.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#define ok EXPECT_OK

namespace {

constexpr size_t MIB = 1 << 20, PIECE_MIB = 1024;
constexpr unsigned BLOCKS = 64, THREADS = 64;

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) { return std::chrono::duration<double, std::milli>(Clock::now() - begin).count(); }

CUcontext context;
CUfunction fill_mixed, count_others;
std::vector<CUdeviceptr> pieces;
// Of each MiB, what its content is made of.
std::vector<uint32_t> seeds;
std::atomic<double> longest_ms{0};
std::atomic<uint64_t> beats{0};

CUdeviceptr place_of(size_t mib) { return pieces[mib / PIECE_MIB] + mib % PIECE_MIB * MIB; }

void launch(CUfunction function, std::vector<void *> parameters) {
    ok(cuLaunchKernel(function, BLOCKS, 1, 1, THREADS, 1, 1, 0, nullptr, parameters.data(), nullptr));
}

void fill(size_t mib) {
    CUdeviceptr place = place_of(mib);
    uint64_t count = MIB / 4;
    launch(fill_mixed, {&place, &count, &seeds[mib]});
}

// Until the process ends.
void beat() {
    CUstream stream;
    CUdeviceptr word;
    ok(cuCtxSetCurrent(context));
    ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    ok(cuMemAlloc(&word, 4));
    for (Clock::time_point last = Clock::now();;) {
        ok(cuMemsetD32Async(word, 1, 1, stream));
        ok(cuStreamSynchronize(stream));
        double waited_ms = ms_since(last);
        last = Clock::now();
        if (waited_ms > longest_ms) longest_ms = waited_ms;
        ++beats;
        usleep(1000);
    }
}

// The thread that waits may hardly have the device again: it is asked when it has.
double away_ms() {
    for (uint64_t before = beats; beats < before + 2;) usleep(200);
    return longest_ms.exchange(0);
}

void step(uint32_t number, size_t changed) {
    size_t mibs = seeds.size();
    for (size_t part = 0; part < changed; ++part) {
        size_t mib = (number * 7 + part * mibs / changed) % mibs;
        seeds[mib] += uint32_t(mibs);
        fill(mib);
    }
    ok(cuCtxSynchronize());
}

void by_the_driver() {
    CUcheckpointLockArgs lock = {};
    CUcheckpointCheckpointArgs checkpoint = {};
    CUcheckpointRestoreArgs restore = {};
    CUcheckpointUnlockArgs unlock = {};
    lock.timeoutMs = 10000;
    std::vector<double> ms;
    std::thread([&] {
        Clock::time_point begin = Clock::now();
        auto done = [&](CUresult result, const char *step) {
            if (result != CUDA_SUCCESS) printf("%s FAILED: error %d\n", step, int(result)), fflush(stdout), _exit(1);
            ms.push_back(ms_since(begin));
            begin = Clock::now();
        };
        done(cuCheckpointProcessLock(getpid(), &lock), "lock");
        done(cuCheckpointProcessCheckpoint(getpid(), &checkpoint), "checkpoint");
        done(cuCheckpointProcessRestore(getpid(), &restore), "restore");
        done(cuCheckpointProcessUnlock(getpid(), &unlock), "unlock");
    }).join();
    printf("driver %.3f %.3f %.3f %.3f\n", ms[0], ms[1], ms[2], ms[3]);
}

uint64_t compare() {
    CUdeviceptr others;
    std::vector<uint64_t> found(BLOCKS * THREADS);
    ok(cuMemAlloc(&others, found.size() * 8));
    ok(cuMemsetD8(others, 0, found.size() * 8));
    for (size_t mib = 0; mib < seeds.size(); ++mib) {
        CUdeviceptr place = place_of(mib);
        uint64_t count = MIB / 4;
        launch(count_others, {&place, &count, &seeds[mib], &others});
    }
    ok(cuMemcpyDtoH(found.data(), others, found.size() * 8));
    ok(cuMemFree(others));
    uint64_t sum = 0;
    for (uint64_t count : found) sum += count;
    return sum;
}

} // namespace

int main(int argc, char **argv) {
    EXPECT(argc == 4);
    const size_t mibs = strtoull(argv[1], nullptr, 10), changed = (mibs * strtoull(argv[2], nullptr, 10) + 999) / 1000;
    CUmodule module;
    ok(cuInit(0));
    ok(cuDevicePrimaryCtxRetain(&context, 0));
    ok(cuCtxSetCurrent(context));
    ok(cuModuleLoad(&module, argv[3]));
    ok(cuModuleGetFunction(&fill_mixed, module, "fill_mixed"));
    ok(cuModuleGetFunction(&count_others, module, "count_others"));
    for (size_t at = 0; at < mibs; at += PIECE_MIB) {
        CUdeviceptr piece;
        ok(cuMemAlloc(&piece, (mibs - at < PIECE_MIB ? mibs - at : PIECE_MIB) * MIB));
        pieces.push_back(piece);
    }
    for (size_t at = 0; at < mibs; ++at) {
        seeds.push_back(uint32_t(at));
        fill(at);
    }
    ok(cuCtxSynchronize());
    std::thread(beat).detach();
    puts("ready");
    fflush(stdout);
    uint32_t number = 0;
    for (char line[16]; fgets(line, sizeof line, stdin) != nullptr;) {
        const std::string asked(line);
        if (asked == "step\n") {
            step(++number, changed);
            printf("step %u\n", number);
        } else if (asked == "away\n") {
            printf("away %.3f\n", away_ms());
        } else if (asked == "driver\n") {
            by_the_driver();
        } else if (asked == "compare\n") {
            printf("others %llu\n", (unsigned long long)compare());
        } else {
            puts("what?");
        }
        fflush(stdout);
    }
    puts("done");
    fflush(stdout);
    _exit(0);
}
