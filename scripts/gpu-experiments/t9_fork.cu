// T9: fork() while the process is CHECKPOINTED, as a copy-on-write twin is made; then the parent is restored.
//
// Passes if the twin sees the host's memory as it was, also after the parent has changed it, and the parent's device memory
// is whole. The twin makes no CUDA calls, as ours would not.
#include <sys/wait.h>

#include <thread>

#include "pattern.cuh"

constexpr size_t DEVICE_BYTES = 1 * GIB, HOST_BYTES = 256 * MIB;

static bool holds(const std::vector<uint64_t> &words, uint64_t seed) {
    for (size_t at = 0; at < words.size(); at += 257)
        if (words[at] != word_at(at, seed)) return false;
    return true;
}

static void put(std::vector<uint64_t> &words, uint64_t seed) {
    for (size_t at = 0; at < words.size(); ++at) words[at] = word_at(at, seed);
}

int main() {
    void *device;
    std::vector<uint64_t> host(HOST_BYTES / 8);
    put(host, 11);
    RT(cudaMalloc(&device, DEVICE_BYTES));
    fill(device, DEVICE_BYTES, 12);
    int pipe_ends[2];
    SYS(pipe(pipe_ends));
    pid_t twin = -1;
    double fork_s = 0;
    Cycle done;
    std::thread([&] {
        done = cycle(getpid(), [&] {
            double begun = now_s();
            twin = fork();
            fork_s = now_s() - begun;
            if (twin == 0) {
                close(pipe_ends[1]);
                char go;
                bool before = holds(host, 11);
                bool waited = read(pipe_ends[0], &go, 1) == 1;
                _exit(before && waited && holds(host, 11) ? 0 : 1);
            }
        });
    }).join();
    done.print("with a twin");
    SYS(twin);
    put(host, 13);
    unsigned long long wrong = done.ok() ? wrong_words(device, DEVICE_BYTES, 12) : ~0ull;
    if (write(pipe_ends[1], "g", 1) != 1) note("the twin has ended already");
    int status;
    SYS(waitpid(twin, &status, 0));
    if (done.ok()) {
        Cycle again;
        std::thread([&] { again = cycle(getpid(), [] {}); }).join();
        again.print("once more, without");
        if (!again.ok() || wrong_words(device, DEVICE_BYTES, 12) != 0) wrong += 1;
    }
    return result("T9", done.ok() && wrong == 0 && status == 0, "fork took %.1f ms, twin %s, parent: %s%s, %llu wrong words",
                  fork_s * 1e3, status == 0 ? "consistent" : "WRONG", done.ok() ? "restored" : "failed at ",
                  done.ok() ? "" : done.at, wrong);
}
