#include "contexts.h"

#include <map>
#include <vector>

#include "allocations.h"
#include "arrays.h"
#include "call.h"
#include "devices.h"
#include "live.h"
#include "modules.h"
#include "queues.h"

namespace test_double {

namespace {

thread_local std::vector<CUcontext> stack;

// The primary context of a device, how often it is retained, and the flags that the next one gets.
struct Primary {
    CUcontext context = nullptr;
    unsigned retained = 0, flags = 0;
};

Primary &primary(CUdevice device) {
    static auto *all = new std::map<CUdevice, Primary>;
    return (*all)[device];
}

CUcontext new_context(CUdevice device, unsigned flags, bool is_primary) {
    static unsigned long long last_id = 0;
    return Live<CUctx_st>::create(CUctx_st{device, flags, is_primary, ++last_id});
}

void synchronise(CUcontext context) {
    for (auto &queue : queues_of(context)) queue->wait();
}

// Not with the tables locked: work that is awaited may need them.
void end_context(CUcontext context) {
    synchronise(context);
    Locked locked;
    unload_modules_of(context);
    destroy_streams_of(context);
    destroy_arrays_of(context);
    for (uint64_t address : allocations_that([&](const Allocation &one) { return one.context == context; }))
        end_allocation(address);
    for (CUcontext other : Live<CUctx_st>::those([](CUctx_st &) { return true; })) other->peers.erase(context);
    Live<CUctx_st>::destroy(context);
}

bool exists(CUcontext context) {
    Locked locked;
    return Live<CUctx_st>::has(context);
}

} // namespace

CUcontext current_context() { return stack.empty() ? nullptr : stack.back(); }

CUresult check_current_context() {
    if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return exists(current_context()) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

Within::Within(CUcontext context) { stack.push_back(context); }
Within::~Within() { stack.pop_back(); }

} // namespace test_double

using namespace test_double;

static CUresult create(CUcontext *context, unsigned flags, CUdevice device) {
    if (context == nullptr || (flags & ~unsigned(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    Locked locked;
    *context = new_context(device, flags, false);
    stack.push_back(*context);
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    ENTER(INITIALISED);
    return create(context, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *parameters, unsigned flags, CUdevice device) {
    ENTER(INITIALISED);
    if (parameters != nullptr && (parameters->numExecAffinityParams != 0 || parameters->cigParams != nullptr))
        return CUDA_ERROR_NOT_SUPPORTED;
    return create(context, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    ENTER(INITIALISED);
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!exists(context) || context->is_primary) return CUDA_ERROR_INVALID_CONTEXT;
    if (current_context() == context) stack.pop_back();
    end_context(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    ENTER(INITIALISED);
    if (!exists(context)) return CUDA_ERROR_INVALID_CONTEXT;
    stack.push_back(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    ENTER(INITIALISED);
    if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context != nullptr) *context = stack.back();
    stack.pop_back();
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER(INITIALISED);
    if (context != nullptr && !exists(context)) return CUDA_ERROR_INVALID_CONTEXT;
    if (!stack.empty()) stack.pop_back();
    if (context != nullptr) stack.push_back(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    ENTER(INITIALISED);
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *context = current_context();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    ENTER(A_CONTEXT);
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = current_context()->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context) {
    ENTER(INITIALISED);
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (context == nullptr) context = current_context();
    if (!exists(context)) return CUDA_ERROR_INVALID_CONTEXT;
    *device = context->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned *flags) {
    ENTER(A_CONTEXT);
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = current_context()->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) {
    ENTER(INITIALISED);
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (context != nullptr ? !exists(context) : check_current_context() != CUDA_SUCCESS) return CUDA_ERROR_INVALID_CONTEXT;
    *version = 3020;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
    ENTER(INITIALISED);
    if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (context == nullptr) context = current_context();
    if (!exists(context)) return CUDA_ERROR_INVALID_CONTEXT;
    *id = context->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER(A_CONTEXT);
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = GREATEST_PRIORITY;
    return CUDA_SUCCESS;
}

static CUresult synchronise_whole(CUcontext context) {
    if (!exists(context)) return CUDA_ERROR_INVALID_CONTEXT;
    // Of any stream, also of one that does not wait for the default one.
    for (CUstream stream : streams_of(context))
        if (stream->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    synchronise(context);
    after_synchronising();
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    ENTER(A_CONTEXT);
    return synchronise_whole(current_context());
}

CUresult cuCtxSynchronize_v2(CUcontext context) {
    ENTER(INITIALISED);
    return synchronise_whole(context == nullptr ? current_context() : context);
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    ENTER(A_CONTEXT);
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!exists(peer)) return CUDA_ERROR_INVALID_CONTEXT;
    if (peer->device == current_context()->device) return CUDA_ERROR_INVALID_DEVICE;
    Locked locked;
    return current_context()->peers.insert(peer).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    ENTER(A_CONTEXT);
    if (!exists(peer)) return CUDA_ERROR_INVALID_CONTEXT;
    Locked locked;
    return current_context()->peers.erase(peer) != 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER(INITIALISED);
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    Locked locked;
    Primary &one = primary(device);
    if (one.context == nullptr) one.context = new_context(device, one.flags, true);
    ++one.retained;
    *context = one.context;
    return CUDA_SUCCESS;
}

// Ends the primary context, as if the device had none so far.
static void reset(CUdevice device) {
    CUcontext context;
    {
        Locked locked;
        context = primary(device).context;
        primary(device).context = nullptr;
    }
    if (context != nullptr) end_context(context);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    ENTER(INITIALISED);
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    {
        Locked locked;
        if (primary(device).retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
        if (--primary(device).retained != 0) return CUDA_SUCCESS;
    }
    reset(device);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    ENTER(INITIALISED);
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    reset(device);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    ENTER(INITIALISED);
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    if ((flags & ~unsigned(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
    Locked locked;
    primary(device).flags = flags;
    if (primary(device).context != nullptr) primary(device).context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *is_active) {
    ENTER(INITIALISED);
    if (flags == nullptr || is_active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    Locked locked;
    *flags = primary(device).flags;
    *is_active = primary(device).context != nullptr;
    return CUDA_SUCCESS;
}
