// T10: what stands in the way of a checkpoint and of a restore.
//
//     t10_limits kernel     a kernel that runs for seconds: lock with a time-out, then again without
//     t10_limits memory     less memory free than a restore needs: found out beforehand
//
// `kernel` passes if the process is RUNNING after the time-out, the kernel undisturbed, and the later lock succeeds.
// `memory` passes if a process that is CHECKPOINTED can learn how much is free without a context, and comparing it with what
// the checkpoint released refuses a restore that would not fit. A card that is really full is not made: that would take
// more than the memory these experiments may use.
#include <thread>

#include "pattern.cuh"

static __global__ void spin(long long cycles, int *done) {
    long long begun = clock64();
    while (clock64() - begun < cycles) {
    }
    *done = 1;
}

static int long_kernel() {
    int *done, value, kilohertz;
    RT(cudaMalloc(&done, sizeof *done));
    RT(cudaMemset(done, 0, sizeof *done));
    RT(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, 0));
    spin<<<1, 1>>>(4ll * kilohertz * 1000, done);
    RT(cudaGetLastError());
    Step first, second;
    std::string state;
    std::thread([&] {
        first = lock(getpid(), 500);
        state = state_of(getpid());
        note("lock with 500 ms: %s after %.0f ms, state %s", cu_name(first.error), first.seconds * 1e3, state.c_str());
        if (first.error == CUDA_SUCCESS) {
            unlock(getpid());
            return;
        }
        second = lock(getpid(), 0);
        note("lock without a limit: %s after %.0f ms, state %s", cu_name(second.error), second.seconds * 1e3,
             state_of(getpid()));
        if (second.error == CUDA_SUCCESS) unlock(getpid());
    }).join();
    RT(cudaDeviceSynchronize());
    RT(cudaMemcpy(&value, done, sizeof value, cudaMemcpyDeviceToHost));
    bool passed = first.error == CUDA_ERROR_NOT_READY && state == "RUNNING" && second.error == CUDA_SUCCESS && value == 1;
    return result("T10", passed, "kernel: %s after %.0f ms, %s; then %s after %.0f ms, the kernel %s", cu_name(first.error),
                  first.seconds * 1e3, state.c_str(), cu_name(second.error), second.seconds * 1e3,
                  value == 1 ? "ended by itself" : "was LOST");
}

static size_t free_bytes() { return size_t(std::max(card_mib("free"), 0L)) * MIB; }

static bool would_fit(size_t needed, size_t free_bytes) { return needed <= free_bytes; }

static int little_memory() {
    constexpr size_t BYTES = 8 * GIB;
    void *memory;
    RT(cudaMalloc(&memory, BYTES));
    fill(memory, BYTES, 14);
    size_t before = free_bytes(), during = 0;
    Cycle done;
    std::thread([&] { done = cycle(getpid(), [&] { during = free_bytes(); }); }).join();
    done.print("memory");
    size_t after = free_bytes();
    size_t needed = during > before ? during - before : 0;
    note("free before %zu MiB, CHECKPOINTED %zu MiB, after %zu MiB", before / MIB, during / MIB, after / MIB);
    bool passed = done.ok() && needed >= BYTES && would_fit(needed, during) && !would_fit(needed, needed - MIB) &&
                  wrong_words(memory, BYTES, 14) == 0;
    return result("T10", passed, "memory: the checkpoint of %zu MiB released %zu MiB, seen without a context", BYTES / MIB,
                  needed / MIB);
}

int main(int count, char **arguments) {
    std::string what = count > 1 ? arguments[1] : "";
    if (what == "kernel") return long_kernel();
    if (what == "memory") return little_memory();
    return fprintf(stderr, "t10_limits kernel|memory\n"), 2;
}
