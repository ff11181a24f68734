// Entry points of the driver's checkpoint, for the process that calls them. While it is locked every other call waits; while it
// is checkpointed no device has anything of it: no descriptor, no shared mapping, only addresses that are kept, and the content
// in ordinary memory of the host.
#include <stdlib.h>
#include <unistd.h>

#include <thread>

#include "allocations.h"
#include "call.h"
#include "devices.h"
#include "live.h"
#include "physical.h"
#include "pools.h"
#include "queues.h"

using namespace test_double;

namespace {

CUprocessState state = CU_PROCESS_STATE_RUNNING;
// One step at a time.
std::mutex &steps() {
    static auto *steps = new std::mutex;
    return *steps;
}

CUresult check(const char *name, int pid) {
    CUresult wanted = failure_of(name);
    if (wanted != CUDA_SUCCESS) return wanted;
    if (!is_initialised()) return CUDA_ERROR_NOT_INITIALIZED;
    return pid == getpid() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool all_idle() {
    for (auto &queue : queues_of(nullptr))
        if (!queue->has_done(queue->pushed())) return false;
    return true;
}

// False if something still runs at the deadline.
bool wait_for_streams(Deadline deadline) {
    while (!all_idle()) {
        if (std::chrono::steady_clock::now() >= deadline) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

Deadline deadline_in(unsigned milliseconds) {
    auto limit = milliseconds == 0 ? std::chrono::hours(24) : std::chrono::milliseconds(milliseconds);
    return std::chrono::steady_clock::now() + limit;
}

// Whether there is something that the driver cannot take with it: managed memory, or what another process may have.
bool has_what_is_unsupported() {
    auto is_event_exported = [](const CUevent_st &one) { return one.is_exported; };
    auto is_pool_exported = [](const CUmemPoolHandle_st &one) { return one.is_exported; };
    if (!Live<CUevent_st>::those(is_event_exported).empty()) return true;
    if (!Live<CUmemPoolHandle_st>::those(is_pool_exported).empty()) return true;
    auto is_exchanged = [](const Allocation &one) { return one.is_exported || one.kind == Kind::IMPORTED; };
    auto is_unsupported = [](const Physical &one) { return one.device == NO_DEVICE || one.is_shared; };
    return !allocations_that(is_exchanged).empty() || Physical::any_is(is_unsupported);
}

// Whether the host has room for what has to be moved there.
bool finds_room() {
    static const char *room = getenv("CKPT_DOUBLE_HOST_BYTES");
    return room == nullptr || Physical::bytes_of_all() <= strtoull(room, nullptr, 10);
}

} // namespace

CUresult cuCheckpointProcessGetState(int pid, CUprocessState *answer) {
    CUresult result = check(__func__, pid);
    if (result != CUDA_SUCCESS) return result;
    if (answer == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> step(steps());
    *answer = state;
    return CUDA_SUCCESS;
}

// Of the double any thread may restore; that of the process itself is always there.
CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid) {
    CUresult result = check(__func__, pid);
    if (result != CUDA_SUCCESS) return result;
    if (tid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *tid = pid;
    return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *how) {
    CUresult result = check(__func__, pid);
    if (result != CUDA_SUCCESS) return result;
    std::lock_guard<std::mutex> step(steps());
    if (state != CU_PROCESS_STATE_RUNNING) return CUDA_ERROR_ILLEGAL_STATE;
    Deadline deadline = deadline_in(how == nullptr ? 0 : how->timeoutMs);
    if (!close_gate(deadline)) return CUDA_ERROR_NOT_READY;
    if (!wait_for_streams(deadline)) return open_gate(), CUDA_ERROR_NOT_READY;
    state = CU_PROCESS_STATE_LOCKED;
    return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *) {
    CUresult result = check(__func__, pid);
    if (result != CUDA_SUCCESS) return result;
    std::lock_guard<std::mutex> step(steps());
    if (state != CU_PROCESS_STATE_LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
    if (has_what_is_unsupported()) return CUDA_ERROR_NOT_SUPPORTED;
    if (!finds_room()) return CUDA_ERROR_OUT_OF_MEMORY;
    Physical::evict_all();
    close_device();
    state = CU_PROCESS_STATE_CHECKPOINTED;
    return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *how) {
    CUresult result = check(__func__, pid);
    if (result != CUDA_SUCCESS) return result;
    std::lock_guard<std::mutex> step(steps());
    if (state != CU_PROCESS_STATE_CHECKPOINTED) return CUDA_ERROR_ILLEGAL_STATE;
    result = how == nullptr ? move_to_machine(nullptr, 0) : move_to_machine(how->gpuPairs, how->gpuPairsCount);
    if (result != CUDA_SUCCESS) return result;
    bool is_back = !all_is_taken() && Physical::bring_back_all() && open_device();
    state = is_back ? CU_PROCESS_STATE_LOCKED : CU_PROCESS_STATE_FAILED;
    return is_back ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *) {
    CUresult result = check(__func__, pid);
    if (result != CUDA_SUCCESS) return result;
    std::lock_guard<std::mutex> step(steps());
    if (state != CU_PROCESS_STATE_LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
    state = CU_PROCESS_STATE_RUNNING;
    open_gate();
    return CUDA_SUCCESS;
}
