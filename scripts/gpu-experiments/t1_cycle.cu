// T1: the driver's four steps on a process with live device memory, taken by another thread of it or by another process.
//
//     t1_cycle thread|process MIB [CYCLES]
//
// Passes if the process is RUNNING again and every byte, a stream, an event and pinned memory are what they were.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <thread>

#include "pattern.cuh"

constexpr size_t PINNED_BYTES = 16 * MIB;

// The other process: waits for a byte, takes the steps on its parent, and writes the times back. It was forked before the
// driver was touched, and initialises nothing unless the driver asks for it.
static void drive(int from, int to, pid_t target) {
    char go;
    while (read(from, &go, 1) == 1) {
        double begun = now_s();
        CUprocessState state;
        CUresult error = driver().cuCheckpointProcessGetState(target, &state);
        note("other process: state without cuInit: %s", error == CUDA_SUCCESS ? state_name(state) : cu_name(error));
        if (error == CUDA_ERROR_NOT_INITIALIZED) {
            CU(driver().cuInit(0));
            note("other process: cuInit took %.0f ms", (now_s() - begun) * 1e3);
        }
        int tid = 0;
        error = driver().cuCheckpointProcessGetRestoreThreadId(target, &tid);
        note("other process: restore thread %d (%s), the process is %d", tid, cu_name(error), target);
        Cycle done = cycle(target, [] {});
        if (write(to, &done, sizeof done) != sizeof done) _exit(1);
    }
    _exit(0);
}

struct Other {
    int to = -1, from = -1;
    pid_t pid = -1;
};

static Other start_other() {
    int there[2], back[2];
    SYS(pipe(there));
    SYS(pipe(back));
    pid_t parent = getpid();
    pid_t child = fork();
    SYS(child);
    if (child == 0) {
        close(there[1]);
        close(back[0]);
        drive(there[0], back[1], parent);
    }
    close(there[0]);
    close(back[1]);
    prctl(PR_SET_PTRACER, child);
    return {there[1], back[0], child};
}

static Cycle by_process(const Other &other) {
    Cycle done;
    if (write(other.to, "g", 1) != 1 || read(other.from, &done, sizeof done) != sizeof done)
        broken("the other process", "it has ended", __FILE__, __LINE__);
    done.at = "a step"; // the pointer is one of the other process
    return done;
}

static Cycle by_thread(const char *size) {
    Cycle done;
    std::thread([&] {
        int tid = 0;
        CUresult error = driver().cuCheckpointProcessGetRestoreThreadId(getpid(), &tid);
        note("restore thread %d (%s), the process is %d", tid, cu_name(error), getpid());
        done = cycle(getpid(), [&] { snapshot("T1", (std::string(size) + "-checkpointed").c_str()); });
    }).join();
    return done;
}

int main(int count, char **arguments) {
    if (count < 3) return fprintf(stderr, "t1_cycle thread|process MIB [CYCLES]\n"), 2;
    bool by_other = strcmp(arguments[1], "process") == 0;
    size_t bytes = strtoull(arguments[2], nullptr, 10) * MIB;
    int cycles = count > 3 ? atoi(arguments[3]) : 1;
    Other other;
    if (by_other) other = start_other();

    void *memory, *pinned;
    cudaStream_t stream;
    cudaEvent_t event;
    RT(cudaMalloc(&memory, bytes));
    RT(cudaMallocHost(&pinned, PINNED_BYTES));
    RT(cudaStreamCreate(&stream));
    RT(cudaEventCreate(&event));
    fill(memory, bytes, 1);
    memset(pinned, 0x5a, PINNED_BYTES);
    snapshot("T1", (std::string(arguments[2]) + "-before").c_str());

    bool ok = true;
    Cycle last;
    for (int round = 0; round < cycles && ok; ++round) {
        size_t free_before, free_after, total;
        RT(cudaMemGetInfo(&free_before, &total));
        last = by_other ? by_process(other) : by_thread(arguments[2]);
        last.print(arguments[1]);
        if (!last.ok()) {
            note("state afterwards: %s", state_of(getpid()));
            ok = false;
            break;
        }
        ok = strcmp(state_of(getpid()), "RUNNING") == 0;
        unsigned long long wrong = wrong_words(memory, bytes, 1);
        RT(cudaMemGetInfo(&free_after, &total));
        note("wrong words: %llu; free before %zu MiB, after %zu MiB", wrong, free_before / MIB, free_after / MIB);
        ok = ok && wrong == 0;
        for (size_t at = 0; at < PINNED_BYTES; ++at) ok = ok && static_cast<char *>(pinned)[at] == 0x5a;
        RT(cudaMemcpyAsync(pinned, memory, PINNED_BYTES, cudaMemcpyDeviceToHost, stream));
        RT(cudaEventRecord(event, stream));
        RT(cudaEventSynchronize(event));
        ok = ok && static_cast<uint64_t *>(pinned)[1] == word_at(1, 1);
        memset(pinned, 0x5a, PINNED_BYTES);
    }
    snapshot("T1", (std::string(arguments[2]) + "-after").c_str());
    if (by_other) {
        close(other.to);
        int status;
        waitpid(other.pid, &status, 0);
    }
    double gib = double(bytes) / GIB;
    return result("T1", ok, "by another %s, %.2f GiB: checkpoint %.2f GB/s, restore %.2f GB/s, all four %.0f ms", arguments[1],
                  gib, double(bytes) / 1e9 / last.checkpoint.seconds, double(bytes) / 1e9 / last.restore.seconds,
                  last.seconds() * 1e3);
}
