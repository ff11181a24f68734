// Entry points for events.
#include "call.h"
#include "contexts.h"
#include "graphs.h"
#include "live.h"
#include "queues.h"

using namespace test_double;

static bool exists(CUevent event) {
    Locked locked;
    return Live<CUevent_st>::has(event);
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    ENTER(A_CONTEXT);
    unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    bool has_ipc = (flags & CU_EVENT_INTERPROCESS) != 0, has_times = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    if (event == nullptr || (flags & ~known) != 0 || (has_ipc && has_times)) return CUDA_ERROR_INVALID_VALUE;
    Locked locked;
    *event = Live<CUevent_st>::create(CUevent_st{current_context(), flags});
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
    ENTER(INITIALISED);
    Locked locked;
    if (!exists(event)) return CUDA_ERROR_INVALID_HANDLE;
    Live<CUevent_st>::destroy(event);
    return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream given) {
    CUstream stream = stream_meant(given);
    if (stream == nullptr || !exists(event)) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->context != event->context) return CUDA_ERROR_INVALID_HANDLE;
    event->capture = stream->capture;
    if (stream->capture != nullptr) return CUDA_SUCCESS; // it only says what comes after what
    return submit(stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event->times.record());
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    ENTER(INITIALISED);
    return record(event, stream);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
    ENTER(INITIALISED);
    if ((flags & ~unsigned(CU_EVENT_RECORD_EXTERNAL)) != 0) return CUDA_ERROR_INVALID_VALUE;
    return record(event, stream);
}

CUresult cuEventQuery(CUevent event) {
    ENTER(INITIALISED);
    if (!exists(event)) return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
    return event->times.has_come() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event) {
    ENTER(INITIALISED);
    if (!exists(event)) return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
    event->times.wait();
    after_synchronising();
    return CUDA_SUCCESS;
}

static CUresult elapsed(float *milliseconds, CUevent from, CUevent to) {
    if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!exists(from) || !exists(to)) return CUDA_ERROR_INVALID_HANDLE;
    if (((from->flags | to->flags) & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
    if (!from->times.was_recorded() || !to->times.was_recorded()) return CUDA_ERROR_INVALID_HANDLE;
    if (!from->times.has_come() || !to->times.has_come()) return CUDA_ERROR_NOT_READY;
    *milliseconds = to->times.milliseconds_since(from->times);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to) {
    ENTER(INITIALISED);
    return elapsed(milliseconds, from, to);
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent from, CUevent to) {
    ENTER(INITIALISED);
    return elapsed(milliseconds, from, to);
}

CUresult cuStreamWaitEvent(CUstream given, CUevent event, unsigned flags) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if ((flags & ~unsigned(CU_EVENT_WAIT_EXTERNAL)) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (stream == nullptr || !exists(event)) return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture != nullptr) {
        stream->capture = event->capture; // it captures too from now on
        return CUDA_SUCCESS;
    }
    return submit(stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event->times.awaited());
}
