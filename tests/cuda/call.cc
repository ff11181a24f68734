#include "call.h"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "contexts.h"

namespace test_double {

namespace {

// Where calls pass. All of it lives as long as the process, whose last threads may still call.
struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool closed = false;
    unsigned in_progress = 0;
    std::map<std::string, uint64_t> calls;
};

Gate &gate() {
    static Gate *gate = new Gate;
    return *gate;
}

std::atomic<bool> initialised{false};

// Of a child of fork whose parent had initialised the driver: as on a GPU (T12), none of its calls is carried out.
bool is_childs = false;

void note_child() { is_childs = true; }

// NAME:K, and :ERROR if it is to be another than unknown, several with commas between.
struct Failure {
    std::string name;
    uint64_t call;
    CUresult error;
};

std::vector<Failure> failures_in(const char *text) {
    std::vector<Failure> failures;
    std::stringstream all(text == nullptr ? "" : text);
    for (std::string one; std::getline(all, one, ',');) {
        size_t first = one.find(':'), second = one.find(':', first + 1);
        if (first == std::string::npos) continue;
        bool is_unknown = second == std::string::npos;
        failures.push_back({one.substr(0, first), strtoull(one.c_str() + first + 1, nullptr, 10),
                            is_unknown ? CUDA_ERROR_UNKNOWN : CUresult(atoi(one.c_str() + second + 1))});
    }
    return failures;
}

CUresult failure_among(const std::vector<Failure> &failures, const char *name, uint64_t call) {
    for (const Failure &one : failures) {
        if (one.name != name || one.call != call) continue;
        // So that a test knows that it has happened.
        const char *list = getenv("CKPT_DOUBLE_FAILED");
        if (list != nullptr) std::ofstream(list, std::ios::app) << name << ':' << call << '\n';
        return one.error;
    }
    return CUDA_SUCCESS;
}

// What the file says that there may be, of calls since it is there.
CUresult failure_of_now(const char *name) {
    static auto *calls = new std::map<std::string, uint64_t>;
    const char *path = getenv("CKPT_DOUBLE_FAIL_WHILE");
    if (path == nullptr) return CUDA_SUCCESS;
    std::ifstream file(path);
    if (!file) return CUDA_SUCCESS;
    std::string text;
    std::getline(file, text);
    return failure_among(failures_in(text.c_str()), name, ++(*calls)[name]);
}

// Of the call of this number. The gate's lock is held.
CUresult failure(const char *name, uint64_t call) {
    static const auto *failures = new std::vector<Failure>(failures_in(getenv("CKPT_DOUBLE_FAIL")));
    CUresult wanted = failure_among(*failures, name, call);
    return wanted != CUDA_SUCCESS ? wanted : failure_of_now(name);
}

} // namespace

Call::Call(const char *name, Needs needs) {
    if (is_childs) {
        // Without a lock, which a thread of the parent's may have had.
        refusal = CUDA_ERROR_NOT_INITIALIZED;
        return;
    }
    std::unique_lock<std::mutex> lock(gate().mutex);
    CUresult wanted = failure(name, ++gate().calls[name]);
    gate().changed.wait(lock, [] { return !gate().closed; });
    ++gate().in_progress;
    lock.unlock();
    if (wanted != CUDA_SUCCESS)
        refusal = wanted;
    else if (needs != NOTHING && !initialised)
        refusal = CUDA_ERROR_NOT_INITIALIZED;
    else if (needs == A_CONTEXT)
        refusal = check_current_context();
}

Call::~Call() {
    if (is_childs) return;
    std::lock_guard<std::mutex> lock(gate().mutex);
    --gate().in_progress;
    gate().changed.notify_all();
}

CUresult failure_of(const char *name) {
    std::lock_guard<std::mutex> lock(gate().mutex);
    return failure(name, ++gate().calls[name]);
}

bool close_gate(Deadline deadline) {
    std::unique_lock<std::mutex> lock(gate().mutex);
    gate().closed = true;
    if (gate().changed.wait_until(lock, deadline, [] { return gate().in_progress == 0; })) return true;
    gate().closed = false;
    gate().changed.notify_all();
    return false;
}

void open_gate() {
    std::lock_guard<std::mutex> lock(gate().mutex);
    gate().closed = false;
    gate().changed.notify_all();
}

void set_initialised() {
    if (!initialised.exchange(true)) pthread_atfork(nullptr, nullptr, note_child);
}
bool is_initialised() { return initialised; }

uint64_t calls_of(const char *name) {
    std::lock_guard<std::mutex> lock(gate().mutex);
    auto found = gate().calls.find(name);
    return found == gate().calls.end() ? 0 : found->second;
}

std::recursive_mutex &tables() {
    static auto *mutex = new std::recursive_mutex;
    return *mutex;
}

} // namespace test_double
