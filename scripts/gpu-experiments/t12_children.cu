// T12: children that a program with a CUDA context has forked, as the workers of a PyTorch DataLoader; and idle memory of pools.
//
//     t12_children keeps     the child has the parent's devices open, and mapped where they come along
//     t12_children closes    it closes them and takes the mappings away, then asks the runtime for memory, and ends by exit()
//     t12_children begun     the parent has called cuInit alone, and the child does what it has not
//     t12_children pool      8 GiB that a pool keeps for later, and the same trimmed
//
// `keeps` and `closes` pass if the parent's memory is whole after the four steps, the device's memory was free meanwhile, and the
// child has gone on. `closes` asks besides that the child's call fails and it ends well. `begun` passes if the child has no
// context either. `pool` passes if trimmed memory is not copied.
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "pattern.cuh"

constexpr size_t BYTES = 8 * GIB;

static bool is_device(const std::string &path) { return path.rfind("/dev/nvidia", 0) == 0; }

static std::vector<int> descriptors_of_devices() {
    std::vector<int> found;
    for (const std::string &fd : names_in("/proc/self/fd")) {
        char target[512];
        ssize_t length = readlink(("/proc/self/fd/" + fd).c_str(), target, sizeof target - 1);
        if (length > 0 && is_device(std::string(target, size_t(length)))) found.push_back(atoi(fd.c_str()));
    }
    return found;
}

struct Range {
    uintptr_t begin, end;
};

static std::vector<Range> mappings_of_devices() {
    std::vector<Range> found;
    for (const std::string &line : lines_of("/proc/self/maps")) {
        size_t at = line.find("/dev/nvidia");
        Range range;
        if (at != std::string::npos && sscanf(line.c_str(), "%lx-%lx", &range.begin, &range.end) == 2) found.push_back(range);
    }
    return found;
}

struct Shared {
    std::atomic<uint64_t> steps;
    std::atomic<bool> ends;
    std::atomic<int> error;
};

[[noreturn]] static void child(Shared *shared, bool closes) {
    note("child: %zu descriptors, %zu mappings of devices", descriptors_of_devices().size(), mappings_of_devices().size());
    if (closes) {
        for (int descriptor : descriptors_of_devices()) close(descriptor);
        for (const Range &range : mappings_of_devices()) munmap(reinterpret_cast<void *>(range.begin), range.end - range.begin);
        note("child: %zu descriptors, %zu mappings of devices are left", descriptors_of_devices().size(), mappings_of_devices().size());
        void *memory;
        shared->error = cudaMalloc(&memory, 1 << 20);
    }
    while (!shared->ends) {
        ++shared->steps;
        usleep(1000);
    }
    if (closes) exit(0);
    _exit(0);
}

static int children(const char *how) {
    bool closes = strcmp(how, "closes") == 0;
    auto *shared = static_cast<Shared *>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    long empty_mib = card_mib("used");
    void *memory, *pinned;
    RT(cudaMalloc(&memory, BYTES));
    RT(cudaMallocHost(&pinned, 64 * MIB));
    fill(memory, BYTES, 21);
    pid_t workers[4];
    for (pid_t &worker : workers) {
        worker = fork();
        SYS(worker);
        if (worker == 0) child(shared, closes);
    }
    while (shared->steps < 400) usleep(1000);
    snapshot("T12", how);
    long before_mib = card_mib("used"), during_mib = -1;
    uint64_t steps_before = shared->steps;
    Cycle done;
    std::thread([&] { done = cycle(getpid(), [&] { during_mib = card_mib("used"); }); }).join();
    done.print(how);
    unsigned long long wrong = done.ok() ? wrong_words(memory, BYTES, 21) : ~0ull;
    uint64_t steps_after = shared->steps;
    shared->ends = true;
    bool ended = true;
    for (pid_t worker : workers) {
        int status;
        SYS(waitpid(worker, &status, 0));
        if (status != 0) note("a child has ended with status %#x", status);
        ended &= status == 0;
    }
    note("MiB in use: %ld without the program, %ld before, %ld while checkpointed", empty_mib, before_mib, during_mib);
    bool freed = during_mib >= 0 && during_mib < empty_mib + 1024;
    bool refused = !closes || shared->error != cudaSuccess;
    return result("T12", done.ok() && wrong == 0 && freed && ended && refused && steps_after > steps_before,
                  "%s: %s%s%s, %llu wrong words; in use %ld, %ld, %ld MiB; the children %s, their calls: %s", how,
                  done.ok() ? "restored" : "failed at ", done.ok() ? "" : done.at, done.ok() ? "" : cu_name(done.error), wrong,
                  empty_mib, before_mib, during_mib, ended ? "end well" : "end BADLY",
                  closes ? cudaGetErrorName(cudaError_t(shared->error.load())) : "none");
}

static int begun() {
    CU(driver().cuInit(0));
    note("%zu descriptors, %zu mappings of devices", descriptors_of_devices().size(), mappings_of_devices().size());
    int ends[2];
    SYS(pipe(ends));
    pid_t worker = fork();
    SYS(worker);
    if (worker == 0) {
        int said[2] = {driver().cuInit(0), cudaFree(nullptr)};
        _exit(write(ends[1], said, sizeof said) == sizeof said ? 0 : 1);
    }
    int said[2] = {-1, -1}, status = -1;
    SYS(waitpid(worker, &status, 0));
    if (status == 0 && read(ends[0], said, sizeof said) != sizeof said) note("it has said nothing");
    return result("T12", status == 0 && said[1] != cudaSuccess, "begun: the child's cuInit: %s, its context: %s",
                  cu_name(CUresult(said[0])), cudaGetErrorName(cudaError_t(said[1])));
}

static int pool() {
    cudaMemPool_t kept;
    RT(cudaDeviceGetDefaultMemPool(&kept, 0));
    uint64_t all = UINT64_MAX, reserved = 0, left = 0;
    RT(cudaMemPoolSetAttribute(kept, cudaMemPoolAttrReleaseThreshold, &all));
    void *memory;
    RT(cudaMallocAsync(&memory, BYTES, nullptr));
    fill(memory, BYTES, 22);
    RT(cudaFreeAsync(memory, nullptr));
    RT(cudaDeviceSynchronize());
    RT(cudaMemPoolGetAttribute(kept, cudaMemPoolAttrReservedMemCurrent, &reserved));
    size_t idle_mib = 0, trimmed_mib = 0, before_mib = resident_mib();
    Cycle idle, trimmed;
    std::thread([&] { idle = cycle(getpid(), [&] { idle_mib = resident_mib(); }); }).join();
    idle.print("8 GiB idle in a pool");
    RT(cudaMemPoolTrimTo(kept, 0));
    RT(cudaMemPoolGetAttribute(kept, cudaMemPoolAttrReservedMemCurrent, &left));
    std::thread([&] { trimmed = cycle(getpid(), [&] { trimmed_mib = resident_mib(); }); }).join();
    trimmed.print("trimmed");
    bool passed = idle.ok() && trimmed.ok() && left < 64 * MIB && trimmed_mib < before_mib + 1024;
    return result("T12", passed, "pool: %.1f GiB reserved and idle: %.0f ms, resident %zu -> %zu MiB; trimmed to %.1f GiB: %.0f ms, %zu MiB",
                  double(reserved) / GIB, idle.seconds() * 1e3, before_mib, idle_mib, double(left) / GIB, trimmed.seconds() * 1e3, trimmed_mib);
}

int main(int count, char **arguments) {
    std::string what = count > 1 ? arguments[1] : "";
    if (what == "keeps" || what == "closes") return children(arguments[1]);
    if (what == "begun") return begun();
    if (what == "pool") return pool();
    return fprintf(stderr, "t12_children keeps|closes|begun|pool\n"), 2;
}
