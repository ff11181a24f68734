// What every experiment needs: return codes checked, times, the driver's entry points, the state of the process, and one
// line of result. Programs use the CUDA runtime linked statically, as nvcc does by default; what only the driver has is
// looked up in libcuda.so.1, so that nothing here needs a driver to be built.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

constexpr size_t MIB = 1 << 20;
constexpr size_t GIB = 1 << 30;

// A line of the record: what was seen on the way.
[[gnu::format(printf, 1, 2)]] inline void note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("# ", stdout);
    vprintf(format, arguments);
    putchar('\n');
    fflush(stdout);
    va_end(arguments);
}

// The result, once in a run: "T1 PASS 32 GiB in 5.1 s". Returns the exit status.
[[gnu::format(printf, 3, 4)]] inline int result(const char *name, bool passed, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("%s %s ", name, passed ? "PASS" : "FAIL");
    vprintf(format, arguments);
    putchar('\n');
    fflush(stdout);
    va_end(arguments);
    return passed ? 0 : 1;
}

inline double now_s() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

[[noreturn]] inline void broken(const char *what, const char *why, const char *file, int line) {
    note("%s:%d: %s: %s", file, line, what, why);
    exit(3);
}

#define RT(call)                                                                                                       \
    do {                                                                                                               \
        cudaError_t error_ = (call);                                                                                   \
        if (error_ != cudaSuccess) broken(#call, cudaGetErrorString(error_), __FILE__, __LINE__);                      \
    } while (0)

#define CU(call)                                                                                                       \
    do {                                                                                                               \
        CUresult error_ = (call);                                                                                      \
        if (error_ != CUDA_SUCCESS) broken(#call, cu_name(error_), __FILE__, __LINE__);                                \
    } while (0)

// System calls that return -1 and set errno.
#define SYS(call)                                                                                                      \
    do {                                                                                                               \
        if ((call) == -1) broken(#call, strerror(errno), __FILE__, __LINE__);                                          \
    } while (0)

// The driver's entry points that the runtime has no name for.
#define DRIVER_CALLS(X)                                                                                                \
    X(cuInit)                                                                                                          \
    X(cuDriverGetVersion)                                                                                              \
    X(cuGetErrorName)                                                                                                  \
    X(cuDeviceGet)                                                                                                     \
    X(cuDeviceGetAttribute)                                                                                            \
    X(cuCheckpointProcessGetRestoreThreadId)                                                                           \
    X(cuCheckpointProcessGetState)                                                                                     \
    X(cuCheckpointProcessLock)                                                                                         \
    X(cuCheckpointProcessCheckpoint)                                                                                   \
    X(cuCheckpointProcessRestore)                                                                                      \
    X(cuCheckpointProcessUnlock)                                                                                       \
    X(cuMemGetAllocationGranularity)                                                                                   \
    X(cuMemAddressReserve)                                                                                             \
    X(cuMemAddressFree)                                                                                                \
    X(cuMemCreate)                                                                                                     \
    X(cuMemRelease)                                                                                                    \
    X(cuMemMap)                                                                                                        \
    X(cuMemUnmap)                                                                                                      \
    X(cuMemSetAccess)                                                                                                  \
    X(cuMemExportToShareableHandle)                                                                                    \
    X(cuMemImportFromShareableHandle)

struct Driver {
#define MEMBER(name) decltype(&::name) name = nullptr;
    DRIVER_CALLS(MEMBER)
#undef MEMBER
};

inline const Driver &driver() {
    static const Driver table = [] {
        Driver found;
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
        if (library == nullptr) broken("dlopen", dlerror(), __FILE__, __LINE__);
#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define LOOK_UP(name)                                                                                                  \
    found.name = reinterpret_cast<decltype(found.name)>(dlsym(library, TEXT(name)));                                   \
    if (found.name == nullptr) note("libcuda.so.1 has no %s", TEXT(name));
        DRIVER_CALLS(LOOK_UP)
#undef LOOK_UP
        return found;
    }();
    return table;
}

inline const char *cu_name(CUresult result) {
    const char *name = nullptr;
    if (driver().cuGetErrorName != nullptr) driver().cuGetErrorName(result, &name);
    return name != nullptr ? name : "unknown CUresult";
}

inline const char *state_name(CUprocessState state) {
    switch (state) {
    case CU_PROCESS_STATE_RUNNING: return "RUNNING";
    case CU_PROCESS_STATE_LOCKED: return "LOCKED";
    case CU_PROCESS_STATE_CHECKPOINTED: return "CHECKPOINTED";
    case CU_PROCESS_STATE_FAILED: return "FAILED";
    default: return "unknown";
    }
}

inline const char *state_of(int pid) {
    CUprocessState state;
    CUresult error = driver().cuCheckpointProcessGetState(pid, &state);
    return error == CUDA_SUCCESS ? state_name(state) : cu_name(error);
}

// One of the four steps on a process, timed.
struct Step {
    CUresult error;
    double seconds;
};

inline Step lock(int pid, unsigned timeout_ms) {
    CUcheckpointLockArgs arguments = {};
    arguments.timeoutMs = timeout_ms;
    double begun = now_s();
    CUresult error = driver().cuCheckpointProcessLock(pid, &arguments);
    return {error, now_s() - begun};
}

inline Step checkpoint(int pid) {
    CUcheckpointCheckpointArgs arguments = {};
    double begun = now_s();
    CUresult error = driver().cuCheckpointProcessCheckpoint(pid, &arguments);
    return {error, now_s() - begun};
}

inline Step restore(int pid) {
    CUcheckpointRestoreArgs arguments = {};
    double begun = now_s();
    CUresult error = driver().cuCheckpointProcessRestore(pid, &arguments);
    return {error, now_s() - begun};
}

inline Step unlock(int pid) {
    CUcheckpointUnlockArgs arguments = {};
    double begun = now_s();
    CUresult error = driver().cuCheckpointProcessUnlock(pid, &arguments);
    return {error, now_s() - begun};
}

// All four in order. Stops at the first error; `at` names the step.
struct Cycle {
    Step lock = {}, checkpoint = {}, restore = {}, unlock = {};
    CUresult error = CUDA_SUCCESS;
    const char *at = "";

    bool ok() const { return error == CUDA_SUCCESS; }
    double seconds() const { return lock.seconds + checkpoint.seconds + restore.seconds + unlock.seconds; }
    void print(const char *what) const {
        note("%s: lock %.1f ms, checkpoint %.1f ms, restore %.1f ms, unlock %.1f ms%s%s %s", what, lock.seconds * 1e3,
             checkpoint.seconds * 1e3, restore.seconds * 1e3, unlock.seconds * 1e3, ok() ? "" : ", failed at ", at,
             ok() ? "" : cu_name(error));
    }
};

template <typename F> inline Cycle cycle(int pid, F while_checkpointed, unsigned timeout_ms = 10000) {
    Cycle done;
    auto take = [&](Step &step, Step taken, const char *name) {
        step = taken;
        done.error = taken.error;
        done.at = name;
        return done.ok();
    };
    if (!take(done.lock, lock(pid, timeout_ms), "lock")) return done;
    if (!take(done.checkpoint, checkpoint(pid), "checkpoint")) return done;
    while_checkpointed();
    if (!take(done.restore, restore(pid), "restore")) return done;
    take(done.unlock, unlock(pid), "unlock");
    return done;
}

// MiB of the first card that are "free" or "used", as the management library says in a process of its own: in one that the driver has
// checkpointed, it does not return.
inline long card_mib(const char *which) {
    std::string command = std::string("nvidia-smi -i 0 --format=csv,noheader,nounits --query-gpu=memory.") + which;
    FILE *answer = popen(command.c_str(), "re");
    long mib = -1;
    if (answer == nullptr) return mib;
    if (fscanf(answer, "%ld", &mib) != 1) mib = -1;
    pclose(answer);
    return mib;
}

// ---- what the process looks like from the kernel's side ----

inline std::vector<std::string> lines_of(const char *path) {
    std::vector<std::string> lines;
    FILE *file = fopen(path, "r");
    if (file == nullptr) return lines;
    char *line = nullptr;
    size_t room = 0;
    while (getline(&line, &room, file) != -1) {
        line[strcspn(line, "\n")] = 0;
        lines.push_back(line);
    }
    free(line);
    fclose(file);
    return lines;
}

inline size_t resident_mib() {
    for (const std::string &line : lines_of("/proc/self/status"))
        if (line.rfind("VmRSS:", 0) == 0) return strtoull(line.c_str() + 6, nullptr, 10) / 1024;
    return 0;
}

inline std::vector<std::string> names_in(const char *directory) {
    std::vector<std::string> names;
    DIR *open_directory = opendir(directory);
    if (open_directory == nullptr) return names;
    while (dirent *entry = readdir(open_directory))
        if (entry->d_name[0] != '.') names.push_back(entry->d_name);
    closedir(open_directory);
    return names;
}

// Writes memory, threads, descriptors and mappings of this process to the record: what a restorer must reproduce. The
// whole of /proc/self/maps goes to the folder RECORD, when that is set.
inline void snapshot(const char *test, const char *when) {
    note("%s: resident %zu MiB, state %s", when, resident_mib(), state_of(getpid()));
    std::string threads;
    for (const std::string &tid : names_in("/proc/self/task")) {
        auto comm = lines_of(("/proc/self/task/" + tid + "/comm").c_str());
        threads += " " + tid + "=" + (comm.empty() ? "?" : comm[0]);
    }
    note("%s: threads:%s", when, threads.c_str());
    for (const std::string &fd : names_in("/proc/self/fd")) {
        char target[512];
        ssize_t length = readlink(("/proc/self/fd/" + fd).c_str(), target, sizeof target - 1);
        if (length > 0) note("%s: descriptor %s -> %.*s", when, fd.c_str(), int(length), target);
    }
    auto maps = lines_of("/proc/self/maps");
    size_t devices = 0;
    for (const std::string &line : maps)
        if (line.find("/dev/") != std::string::npos) {
            ++devices;
            note("%s: mapping %s", when, line.c_str());
        }
    note("%s: %zu mappings, %zu of devices", when, maps.size(), devices);
    if (const char *folder = getenv("RECORD")) {
        FILE *file = fopen((std::string(folder) + "/" + test + "-" + when + ".maps").c_str(), "w");
        if (file == nullptr) return;
        for (const std::string &line : maps) fprintf(file, "%s\n", line.c_str());
        fclose(file);
    }
}
