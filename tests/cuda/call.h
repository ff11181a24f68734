// What every entry point begins with. A call is refused before cuInit, and without a context where it needs one; it waits while
// the process is locked for a checkpoint; and the lock waits for the calls that are in progress. No entry point calls another,
// because a call inside of a call would wait for the lock that waits for it.
#pragma once

#include <cuda.h>

#include <stdint.h>

#include <chrono>
#include <mutex>

namespace test_double {

enum Needs { NOTHING, INITIALISED, A_CONTEXT };

class Call {
  public:
    Call(const char *name, Needs needs);
    ~Call();
    Call(const Call &) = delete;
    CUresult refusal = CUDA_SUCCESS;
};

// The error that a call of this name returns now, where CKPT_DOUBLE_FAIL wants one; it is counted as a call.
CUresult failure_of(const char *name);

using Deadline = std::chrono::steady_clock::time_point;

// Lets no further call in, and returns when those in progress have ended: false, with the gate open, if not before the deadline.
bool close_gate(Deadline deadline);
void open_gate();

// Marks the driver as initialised. False before.
void set_initialised();
bool is_initialised();

// How often an entry point was called.
uint64_t calls_of(const char *name);

// All tables of the double have one lock. It is never held while something is awaited.
std::recursive_mutex &tables();
struct Locked {
    std::lock_guard<std::recursive_mutex> lock{tables()};
};

} // namespace test_double

// The first line of an entry point.
#define ENTER(needs)                                                                                                            \
    test_double::Call call(__func__, test_double::needs);                                                                       \
    if (call.refusal != CUDA_SUCCESS) return call.refusal
