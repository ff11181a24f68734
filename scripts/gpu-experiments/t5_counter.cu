// T5: a program with a static CUDA runtime that is to be restarted in a fresh process of the same pid and tids.
//
//     t5_counter plain|evict FOLDER STOP [STOP ...]
//
// It adds 1 to every word of 64 MiB of device memory again and again, and prints "count N" after it has seen that each word
// is N. Before it counts on from a STOP it checkpoints itself by the driver's calls, makes the file FOLDER/ready-STOP, and
// waits for FOLDER/go-STOP: meanwhile the process may be captured, killed and rebuilt. Then it restores itself.
// With `evict` the driver's mappings of devices are replaced by reservations of their addresses for the time between, as
// somebody must who rebuilds the process where no device is open yet.
#include <fcntl.h>
#include <sys/mman.h>

#include <thread>

#include "experiment.h"

constexpr int WORDS = 64 * MIB / sizeof(unsigned);

static __global__ void add_one(unsigned *words) {
    words[blockIdx.x * blockDim.x + threadIdx.x] += 1;
}

static __global__ void count_others(const unsigned *words, unsigned expected, unsigned *others) {
    if (words[blockIdx.x * blockDim.x + threadIdx.x] != expected) atomicAdd(others, 1);
}

struct Mapping {
    void *address;
    size_t bytes;
};

static std::vector<Mapping> mappings_of_devices() {
    std::vector<Mapping> found;
    for (const std::string &line : lines_of("/proc/self/maps")) {
        unsigned long begin, end;
        if (line.find("/dev/nvidia") != std::string::npos && sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2)
            found.push_back({reinterpret_cast<void *>(begin), end - begin});
    }
    return found;
}

static bool exists(const std::string &path) { return access(path.c_str(), F_OK) == 0; }

static void make(const std::string &path) {
    int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    SYS(descriptor);
    SYS(close(descriptor));
}

// Between the driver's checkpoint and its restore: what another thread of this process does, with everybody else waiting.
static void wait_to_go_on(const std::string &folder, int stop, bool evicts, const std::vector<Mapping> &devices) {
    snapshot("T5", ("stop-" + std::to_string(stop)).c_str());
    if (evicts)
        for (const Mapping &mapping : devices) {
            void *kept = mmap(mapping.address, mapping.bytes, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
            if (kept == MAP_FAILED) broken("mmap", strerror(errno), __FILE__, __LINE__);
        }
    make(folder + "/ready-" + std::to_string(stop));
    while (!exists(folder + "/go-" + std::to_string(stop))) usleep(10000);
    if (evicts)
        for (const Mapping &mapping : devices) SYS(munmap(mapping.address, mapping.bytes));
}

static bool stop_here(const std::string &folder, int stop, bool evicts) {
    std::vector<Mapping> devices = mappings_of_devices();
    Cycle done;
    std::thread([&] { done = cycle(getpid(), [&] { wait_to_go_on(folder, stop, evicts, devices); }); }).join();
    done.print("stop");
    return done.ok();
}

int main(int count, char **arguments) {
    if (count < 4) return fprintf(stderr, "t5_counter plain|evict FOLDER STOP [STOP ...]\n"), 2;
    bool evicts = strcmp(arguments[1], "evict") == 0;
    unsigned *words, *others;
    RT(cudaMalloc(&words, WORDS * sizeof *words));
    RT(cudaMalloc(&others, sizeof *others));
    RT(cudaMemset(words, 0, WORDS * sizeof *words));
    unsigned now = 0;
    for (int argument = 3; argument < count; ++argument) {
        for (unsigned stop = unsigned(atoi(arguments[argument])); now < stop;) {
            unsigned wrong = 0;
            add_one<<<WORDS / 256, 256>>>(words);
            now += 1;
            RT(cudaMemset(others, 0, sizeof *others));
            count_others<<<WORDS / 256, 256>>>(words, now, others);
            RT(cudaMemcpy(&wrong, others, sizeof wrong, cudaMemcpyDeviceToHost));
            if (wrong != 0) return printf("%u words are not %u\n", wrong, now), 1;
            printf("count %u\n", now);
            fflush(stdout);
        }
        bool is_last = argument + 1 == count;
        if (!is_last && !stop_here(arguments[2], int(now), evicts)) return 1;
    }
    puts("ended");
    return 0;
}
