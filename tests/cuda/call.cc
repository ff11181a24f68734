#include "call.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <string>

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

} // namespace

Call::Call(const char *name, Needs needs) {
    std::unique_lock<std::mutex> lock(gate().mutex);
    ++gate().calls[name];
    gate().changed.wait(lock, [] { return !gate().closed; });
    ++gate().in_progress;
    lock.unlock();
    if (needs != NOTHING && !initialised)
        refusal = CUDA_ERROR_NOT_INITIALIZED;
    else if (needs == A_CONTEXT)
        refusal = check_current_context();
}

Call::~Call() {
    std::lock_guard<std::mutex> lock(gate().mutex);
    --gate().in_progress;
    gate().changed.notify_all();
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

void set_initialised() { initialised = true; }
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
