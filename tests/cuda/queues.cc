#include "queues.h"

#include <map>

#include "call.h"
#include "contexts.h"
#include "graphs.h"
#include "live.h"
#include "pools.h"

namespace test_double {

namespace {

thread_local bool default_is_per_thread = false;

// The default stream of this thread in each context. It ends with the context, or never.
thread_local std::map<unsigned long long, CUstream> own_defaults; // by the context's id

CUstream new_default(CUcontext context) {
    return Live<CUstream_st>::create(CUstream_st{context, CU_STREAM_DEFAULT, 0, context == nullptr ? 0 : context->id});
}

CUstream legacy_default(CUcontext context) {
    if (context->legacy == nullptr) context->legacy = new_default(context);
    return context->legacy;
}

CUstream own_default(CUcontext context) {
    CUstream &stream = own_defaults[context->id];
    if (stream == nullptr) stream = new_default(context);
    return stream;
}

bool is_legacy(CUstream stream) { return stream == stream->context->legacy; }
bool is_blocking(CUstream stream) { return (stream->flags & CU_STREAM_NON_BLOCKING) == 0; }

// What is put into a stream now is to begin after all that is in another.
void put_after(CUstream stream, CUstream earlier) {
    uint64_t count = earlier->queue->pushed();
    if (earlier->queue->has_done(count)) return;
    stream->queue->push([queue = earlier->queue, count] { queue->wait_until_done(count); });
}

void order_with_legacy(CUstream stream) {
    if (!is_legacy(stream)) {
        if (is_blocking(stream) && stream->context->legacy != nullptr) put_after(stream, stream->context->legacy);
        return;
    }
    for (CUstream other : streams_of(stream->context))
        if (other != stream && is_blocking(other)) put_after(stream, other);
}

} // namespace

PerThreadDefault::PerThreadDefault() { default_is_per_thread = true; }
PerThreadDefault::~PerThreadDefault() { default_is_per_thread = false; }

CUstream stream_meant(CUstream stream) {
    Locked locked;
    bool is_default = stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    if (!is_default) return Live<CUstream_st>::has(stream) ? stream : nullptr;
    if (check_current_context() != CUDA_SUCCESS) return nullptr;
    bool is_own = stream == CU_STREAM_PER_THREAD || (stream == nullptr && default_is_per_thread);
    return is_own ? own_default(current_context()) : legacy_default(current_context());
}

void enqueue(CUstream stream, Work work) {
    Locked locked;
    order_with_legacy(stream);
    stream->queue->push(std::move(work));
}

CUresult submit(CUstream stream, CUgraphNodeType type, Work work) {
    Locked locked;
    if (stream->capture != nullptr) return stream->capture->add(type, std::move(work));
    if (is_legacy(stream) && is_any_capturing(stream->context)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    enqueue(stream, std::move(work));
    return CUDA_SUCCESS;
}

CUresult submit_and_wait(CUstream stream, CUgraphNodeType type, Work work) {
    if (stream->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult result = submit(stream, type, std::move(work));
    if (result == CUDA_SUCCESS) stream->queue->wait();
    return result;
}

std::vector<CUstream> streams_of(CUcontext context) {
    Locked locked;
    return Live<CUstream_st>::those([&](CUstream_st &stream) { return stream.context == context; });
}

std::vector<std::shared_ptr<on_cpu::Stream>> queues_of(CUcontext context) {
    Locked locked;
    std::vector<std::shared_ptr<on_cpu::Stream>> queues;
    for (CUstream stream : Live<CUstream_st>::those([&](CUstream_st &one) { return context == nullptr || one.context == context; }))
        queues.push_back(stream->queue);
    return queues;
}

void destroy_streams_of(CUcontext context) {
    for (CUstream stream : streams_of(context)) Live<CUstream_st>::destroy(stream);
    for (CUevent event : Live<CUevent_st>::those([&](CUevent_st &event) { return event.context == context; }))
        Live<CUevent_st>::destroy(event);
}

bool is_any_capturing(CUcontext context) {
    for (CUstream stream : streams_of(context))
        if (stream->capture != nullptr && stream->capture->forbids_default) return true;
    return false;
}

void after_synchronising() { trim_pools(); }

} // namespace test_double
