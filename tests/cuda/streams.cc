// Entry points for streams.
#include "call.h"
#include "contexts.h"
#include "live.h"
#include "queues.h"

using namespace test_double;

static CUresult create(CUstream *stream, unsigned flags, int priority) {
    static unsigned long long last_id = 1000;
    if (stream == nullptr || (flags & ~unsigned(CU_STREAM_NON_BLOCKING)) != 0) return CUDA_ERROR_INVALID_VALUE;
    int clamped = priority > 0 ? 0 : priority < GREATEST_PRIORITY ? GREATEST_PRIORITY : priority;
    Locked locked;
    *stream = Live<CUstream_st>::create(CUstream_st{current_context(), flags, clamped, ++last_id});
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    ENTER(A_CONTEXT);
    return create(stream, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    ENTER(A_CONTEXT);
    return create(stream, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    ENTER(INITIALISED);
    std::shared_ptr<on_cpu::Stream> queue; // ends last, with the tables unlocked, when its work is done
    Locked locked;
    if (!Live<CUstream_st>::has(stream) || stream->context->legacy == stream) return CUDA_ERROR_INVALID_HANDLE;
    queue = stream->queue;
    Live<CUstream_st>::destroy(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream given) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult result = submit_and_wait(stream, CU_GRAPH_NODE_TYPE_EMPTY, [] {});
    after_synchronising();
    return result;
}

CUresult cuStreamQuery(CUstream given) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    Locked locked;
    bool is_idle = stream->queue->has_done(stream->queue->pushed());
    bool is_legacy = stream == stream->context->legacy;
    for (CUstream other : streams_of(stream->context))
        if (is_legacy && (other->flags & CU_STREAM_NON_BLOCKING) == 0)
            is_idle = is_idle && other->queue->has_done(other->queue->pushed());
    return is_idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamGetFlags(CUstream given, unsigned *flags) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream given, int *priority) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream given, unsigned long long *id) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *id = stream->id;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream given, CUcontext *context) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *context = stream->context;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream given, CUcontext *context, CUgreenCtx *green) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if (context == nullptr || green == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *context = stream->context;
    *green = nullptr;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream given, CUdevice *device) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *device = stream->context->device;
    return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream given, CUhostFn function, void *argument) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return submit(stream, CU_GRAPH_NODE_TYPE_HOST, [=] { function(argument); });
}

CUresult cuStreamAddCallback(CUstream given, CUstreamCallback callback, void *argument, unsigned flags) {
    ENTER(INITIALISED);
    CUstream stream = stream_meant(given);
    if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return submit(stream, CU_GRAPH_NODE_TYPE_HOST, [=] { callback(given, CUDA_SUCCESS, argument); });
}
